"""Methods by name. Each entry names a class by its import path, so that listing them imports no torch."""

from __future__ import annotations

from ..registry import Entry, Registry

METHODS = Registry(
    "method",
    {
        "mslg": Entry("mslg.methods.mslg:MSLG", "soft labels by a meta-gradient on clean samples", ("clean set",)),
        "cross-entropy": Entry("mslg.methods.cross_entropy:CrossEntropy", "the given labels as they are"),
        "clean-only": Entry("mslg.methods.clean_only:CleanOnly", "control: the clean samples alone", ("clean set",)),
        "noisy-plus-clean": Entry(
            "mslg.methods.noisy_plus_clean:NoisyPlusClean", "control: noisy and clean samples together", ("clean set",)
        ),
    },
)
