"""How many labels are flagged: those with a likelier class, or as many as were asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from .error_rate import ErrorRate, check_fdr

ALLOWED = "likelier, expected, fdr=0.1 (any rate between 0 and 1), or a number of labels such as 500"


@dataclass(frozen=True)
class Flagging:
    """What was asked for.

    likelier   the labels for which another class is likelier (the default)
    expected   as many labels as are estimated to be wrong
    fdr        as many labels as possible while at most this fraction of them is expected to be right
    count      this many
    """

    kind: Literal["likelier", "expected", "fdr", "count"] = "likelier"
    value: float = 0.0

    @classmethod
    def parse(cls, text: str | int | None, fdr: float | None = None) -> Flagging:
        """From the settings `flag` and `fdr`."""
        if text is None:
            return cls() if fdr is None else cls("fdr", fdr)
        if fdr is not None:
            raise ValueError(f"flag = {text} and fdr = {fdr} both say how many labels to flag; give one of them")
        word = str(text).strip()
        if word in ("likelier", "expected"):
            return cls(word)  # type: ignore[arg-type]
        name, _, rate = word.partition("=")
        try:
            if name == "fdr":
                return cls("fdr", float(rate))
            if word.isdigit():
                return cls("count", int(word))
        except ValueError:
            pass
        raise ValueError(f"flag is '{text}'; allowed are {ALLOWED}")

    def check(self, why: str | None) -> None:
        """Raise for what cannot be kept; `why` says which evidence is missing."""
        if self.kind == "fdr":
            check_fdr(self.value, why)
        if self.kind == "expected" and why is not None:
            raise ValueError(
                f"flag = expected needs an estimate of how many labels are wrong, and there is none: {why}; check 100 "
                "random samples first (mslg start DATA), or name a number (--flag 500)"
            )

    def limit(self, rate: ErrorRate, log_odds: Tensor) -> int | None:
        """How many of the worst labels are flagged; None: those with a likelier class. Log odds in descending order."""
        if self.kind == "fdr":
            return rate.length_for_fdr(log_odds, self.value)
        if self.kind == "count":
            return min(int(self.value), len(log_odds))
        if self.kind == "expected" and rate.calibration is not None:
            return round(rate.calibration.wrong_share(rate.samples).estimate * len(log_odds))
        return None

    @property
    def fdr(self) -> float | None:
        """The false discovery rate, if that was asked for."""
        return self.value if self.kind == "fdr" else None
