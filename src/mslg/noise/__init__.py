"""Label noise by name. A kind takes labels, a rate and a generator, and returns new labels with what was done."""

from __future__ import annotations

from ..registry import Entry, Registry

NOISES = Registry(
    "noise",
    {
        "uniform": Entry("mslg.noise.uniform:uniform", "to every other class equally often"),
        "pair": Entry("mslg.noise.pair:pair", "to the next class"),
    },
)
