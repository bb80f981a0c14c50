"""Which way to the tangent a network's operators support: tried in order, and remembered."""

from __future__ import annotations

import logging
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from . import tangent_modes as tangents
from .rules import Unsupported
from .tangent_modes import Direction, ForwardPass, TangentFunction

log = logging.getLogger("mslg")

Mode = Literal["exact", "compiled", "difference", "double-backward", "head"]
MODES: tuple[Mode, ...] = get_args(Mode)


class TangentMode(NamedTuple):
    """A way to compute tangents."""

    function: TangentFunction
    description: str
    exact: bool = True


COMPILED = TangentMode(tangents.by_compiled_passes, "compiled forward-mode differentiation")
GRAPH = TangentMode(tangents.from_graph, "the recorded graph")
DUAL = TangentMode(tangents.dual_numbers, "forward-mode differentiation of a second pass")
DUAL_MATH = TangentMode(tangents.dual_numbers_with_math_attention, "forward-mode differentiation with math attention")
TWICE = TangentMode(tangents.double_backward, "double backward")
TWICE_MATH = TangentMode(tangents.double_backward_with_math_attention, "double backward with math attention")
ONE_SIDED = TangentMode(tangents.one_sided_difference, "a one-sided finite difference", exact=False)
CENTRAL = TangentMode(tangents.central_difference, "a central finite difference", exact=False)

EXACT = (GRAPH, DUAL, DUAL_MATH, TWICE, TWICE_MATH, CENTRAL)
FALLBACKS: dict[Mode, tuple[TangentMode, ...]] = {
    "exact": EXACT,
    "compiled": (COMPILED, *EXACT),
    "head": EXACT,
    "double-backward": (TWICE, TWICE_MATH, CENTRAL),
    "difference": (ONE_SIDED,),
}


class Fallbacks:
    """Computes tangents by the first mode that works. A mode that fails is logged once and not tried again."""

    def __init__(self, mode: Mode, *, central: bool = False) -> None:
        self.modes = [CENTRAL] if mode == "difference" and central else list(FALLBACKS[mode])
        self._failures: list[str] = []  # of modes given up since the last log line

    @property
    def current(self) -> TangentMode:
        """The mode in use."""
        return self.modes[0]

    def tangent(self, forward: ForwardPass, direction: Direction) -> Tensor:
        """(batch, classes) directional derivative of the pass's logits."""
        network = type(forward.network).__name__
        while True:
            try:
                tangent = self.current.function(forward, direction).detach()
            except (Unsupported, NotImplementedError, RuntimeError) as error:
                if len(self.modes) == 1 or isinstance(error, torch.OutOfMemoryError):
                    raise
                self._give_up(error, network)
            else:
                if self._failures:
                    self._log(network)
                return tangent

    def _give_up(self, error: Exception, network: str) -> None:
        reason = " ".join(str(error).split())[:160]
        problem = f"has no rule for {reason}" if isinstance(error, Unsupported) else f"fails ({reason})"
        self._failures.append(f"{self.modes.pop(0).description} {problem}")
        log.debug("%s: %s", network, self._failures[-1])

    def _log(self, network: str) -> None:
        """One line per change of mode: what is used, and why."""
        log.log(
            logging.INFO if self.current.exact else logging.WARNING,
            "%s: %s tangent by %s, because %s%s",
            network,
            "exact" if self.current.exact else "approximate",
            self.current.description,
            self._failures[0],
            " and no other exact way works either" if len(self._failures) > 1 and not self.current.exact else "",
        )
        self._failures.clear()
