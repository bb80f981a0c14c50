"""How many labels are flagged: those with a likelier class, or as many as were asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .error_rate import check_fdr

Flag = Literal["likelier", "expected", "balanced"] | int

ALLOWED = "likelier, balanced, expected, fdr=0.1 (any rate between 0 and 1), or a number of labels such as 500"


@dataclass(frozen=True)
class Flagging:
    """What was asked for, as `rank_labels` takes it."""

    flag: Flag = "likelier"
    fdr: float | None = None

    @classmethod
    def parse(cls, text: str | int | None, fdr: float | None = None) -> Flagging:
        """From the settings `flag` and `fdr`."""
        if text is None:
            return cls(fdr=fdr)
        if fdr is not None:
            raise ValueError(f"flag = {text} and fdr = {fdr} both say how many labels to flag; give one of them")
        word = str(text).strip()
        if word.isdecimal():
            return cls(int(word))
        for flag in ("likelier", "balanced", "expected"):
            if word == flag:
                return cls(flag)
        name, _, rate = word.partition("=")
        try:
            if name == "fdr":
                return cls(fdr=float(rate))
        except ValueError:
            pass
        raise ValueError(f"flag is '{text}'; allowed are {ALLOWED}")

    @property
    def needs_estimate(self) -> bool:
        """Whether it rests on an estimate of how many labels are wrong."""
        return self.fdr is not None or self.flag in ("balanced", "expected")

    def check(self, why: str | None) -> None:
        """Raise for what cannot be kept; `why` says which evidence is missing."""
        if self.fdr is not None:
            check_fdr(self.fdr, why)
        elif self.needs_estimate and why is not None:
            raise ValueError(
                f"flag = {self.flag} needs an estimate of how many labels are wrong, and there is none: {why}; check "
                "100 random samples first (mslg start DATA), or name a number (--flag 500)"
            )
