"""WebVision 1.0: images found by web searches for the names of the ImageNet classes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from .bundle import Bundle
from .from_table import image_bundle
from .list_files import check_range, pairs
from .options import Reading

MINI = 50
CLASSES = 1000


def webvision(root: Path, *, mini: bool = True, reading: Reading) -> Bundle:
    """The mini subset of many papers: the first 50 classes of the Google images. With mini=False all 1,000 classes,
    and the Flickr images too. The validation list is the test set. No training label is verified."""
    info = root / "info"
    files = [info / "train_filelist_google.txt"]
    if not mini and (info / "train_filelist_flickr.txt").exists():
        files.append(info / "train_filelist_flickr.txt")
    train = pd.concat([_listed(file) for file in files], ignore_index=True)
    test = _listed(info / "val_filelist.txt")
    test["path"] = "val_images_256/" + test["path"]
    table = pd.concat([train.assign(split="train"), test.assign(split="test")], ignore_index=True)
    count = MINI if mini else CLASSES
    table = table[table["label"] < count].reset_index(drop=True)
    return image_bundle(table, root, [str(number) for number in range(count)], reading, name="webvision")


def _listed(path: Path) -> pd.DataFrame:
    table = pairs(path)
    check_range(table["label"], CLASSES, path)
    return table
