"""Networks that were passed through `torch.compile`."""

from __future__ import annotations

import logging
from typing import Any

from torch import nn

log = logging.getLogger("mslg")


def uncompiled(network: nn.Module) -> nn.Module:
    """The network itself where a compiled one was passed, whole or in parts. A compiled graph records no operations, so
    nothing but its first gradient can be taken, and weights cannot be exchanged."""
    found = getattr(network, "_orig_mod", network)
    compiled = found is not network
    for module in list(found.modules()):
        if getattr(module, "_compiled_call_impl", None) is not None:  # by module.compile()
            module._compiled_call_impl = None
            compiled = True
        for name, child in list(module.named_children()):
            if hasattr(child, "_orig_mod"):
                setattr(module, name, child._orig_mod)
                compiled = True
    if compiled:
        log.info("%s was compiled; it is trained as it was before torch.compile", type(found).__name__)
    result: Any = found
    return result  # type: ignore[no-any-return]
