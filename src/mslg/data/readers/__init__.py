"""Data sets by name, and files of a user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...registry import Entry, Registry

DATASETS = Registry(
    "data set",
    {
        "digits": Entry("mslg.data.readers.digits:digits", "1,797 real 8×8 images of handwritten digits, embedded"),
        "cifar10": Entry("mslg.data.readers.cifar:cifar10", "60,000 images of 10 kinds of things, 32×32", ("root",)),
        "cifar100": Entry("mslg.data.readers.cifar:cifar100", "60,000 images of 100 kinds of things, 32×32", ("root",)),
        "cifar10-features": Entry(
            "mslg.data.readers.cifar10_features:cifar10_features",
            "CIFAR-10 as features of a pretrained network",
            ("root",),
        ),
        "fashion-mnist": Entry(
            "mslg.data.readers.fashion_mnist:fashion_mnist", "70,000 images of clothes, 28×28, grey", ("root",)
        ),
        "clothing1m": Entry(
            "mslg.data.readers.clothing1m:clothing1m",
            "a million shop images in 14 classes, labelled by texts",
            ("root",),
        ),
        "food101n": Entry(
            "mslg.data.readers.food101n:food101n", "310,009 images of 101 dishes, labelled by a search", ("root",)
        ),
        "animal10n": Entry(
            "mslg.data.readers.animal10n:animal10n", "55,000 images of 10 animals that look alike", ("root",)
        ),
        "webvision": Entry(
            "mslg.data.readers.webvision:webvision",
            "images searched for by ImageNet's class names (mini by default)",
            ("root",),
        ),
    },
    group="mslg.datasets",
    option="as DATA",
    forms="package.module:function, or the path of an image folder, a .csv, a .parquet or an .npz",
)

CLASSES = {
    "digits": 10,
    "cifar10": 10,
    "cifar100": 100,
    "cifar10-features": 10,
    "fashion-mnist": 10,
    "clothing1m": 14,
    "food101n": 101,
    "animal10n": 10,
    "webvision": 50,
}


def number_of_classes(data: Mapping[str, Any]) -> int | None:
    """How many classes the data of these settings has, without reading it; None for a user's own files."""
    if data.get("mini") is False:
        return 1000  # the whole of webvision
    return CLASSES.get(str(data.get("source")))
