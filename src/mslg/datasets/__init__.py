"""Data sets by name, and files of a user's own."""

from __future__ import annotations

from ..registry import Entry, Registry

DATASETS = Registry(
    "data set",
    {
        "digits": Entry("mslg.datasets.digits:digits", "1,797 real 8×8 images of handwritten digits, embedded"),
    },
)
