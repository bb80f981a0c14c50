"""Data sets by name, and one reader per file format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...registry import Entry, Registry

DATASETS = Registry(
    "data set",
    {
        "digits": Entry("mslg.data.readers.digits:digits", "1,797 images of handwritten digits, 8×8, included"),
        "cifar10": Entry("mslg.data.readers.cifar:cifar10", "60,000 images in 10 classes, 32×32", ("root",)),
        "cifar100": Entry("mslg.data.readers.cifar:cifar100", "60,000 images in 100 classes, 32×32", ("root",)),
        "cifar10-features": Entry(
            "mslg.data.readers.cifar10_features:cifar10_features",
            "CIFAR-10 as features of a pretrained network",
            ("root",),
        ),
        "fashion-mnist": Entry(
            "mslg.data.readers.fashion_mnist:fashion_mnist", "70,000 greyscale images of clothes, 28×28", ("root",)
        ),
        "clothing1m": Entry(
            "mslg.data.readers.clothing1m:clothing1m",
            "a million shop images in 14 classes, labelled from text",
            ("root",),
        ),
        "food101n": Entry(
            "mslg.data.readers.food101n:food101n", "310,009 images of 101 dishes, labelled by search queries", ("root",)
        ),
        "animal10n": Entry(
            "mslg.data.readers.animal10n:animal10n", "55,000 images of 10 animals, in pairs that look alike", ("root",)
        ),
        "webvision": Entry(
            "mslg.data.readers.webvision:webvision",
            "images found by web search for ImageNet's class names (mini by default)",
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
    """The number of classes of a registered data set, without reading it; None for other data."""
    if data.get("mini") is False:
        return 1000  # the whole of webvision
    return CLASSES.get(str(data.get("source")))
