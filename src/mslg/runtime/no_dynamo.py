"""Training without torch's compiler, whose import takes as long as all of torch."""

from __future__ import annotations

import sys

from torch.optim import Optimizer


def leave_dynamo_out() -> None:
    """Keep optimizers from importing torch's compiler, which they do only to say that it should pass them over.

    For commands: they compile nothing. In a process that compiles, torch's own behaviour stays.
    """
    if "torch._dynamo" in sys.modules:
        return
    for method in (Optimizer.add_param_group, Optimizer.zero_grad, Optimizer.state_dict, Optimizer.load_state_dict):
        plain = getattr(method, "__wrapped__", None)
        if plain is not None:
            plain.__dynamo_disable = plain  # where torch looks first
