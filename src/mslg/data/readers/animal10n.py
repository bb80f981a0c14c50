"""ANIMAL-10N: 55,000 images of five pairs of animals that look alike, about 8 % of them labelled wrongly."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from ..images import EXTENSIONS, Reading
from .assemble import image_bundle
from .bundle import Bundle

NAMES = (
    *("cat", "lynx", "wolf", "coyote", "cheetah"),
    *("jaguar", "chimpanzee", "orangutan", "hamster", "guinea pig"),
)
FOLDERS = {"training": "train", "testing": "test"}


def animal10n(root: Path, *, reading: Reading) -> Bundle:
    """Files `<label>_<anything>.jpg` in `training` and `testing`. No training label is verified: give a clean set, or
    use `clean="auto"`."""
    root = root / "raw_image" if (root / "raw_image").is_dir() else root
    rows = []
    for folder, split in FOLDERS.items():
        if not (root / folder).is_dir():
            raise FileNotFoundError(
                f"there is no folder {root / folder}; pass root= (--root): the folder that contains raw_image, "
                "with training and testing in it"
            )
        # Sorted: the order in which a folder lists its files differs between machines.
        for name in sorted(os.listdir(root / folder)):  # noqa: PTH208 (names are all that is needed, and fast)
            if name.startswith(".") or not name.lower().endswith(EXTENSIONS):
                continue
            label = name.split("_", 1)[0]
            if not label.isdigit() or int(label) >= len(NAMES):
                raise ValueError(f"{root / folder / name} has no label from 0 to 9 before the first '_' of its name")
            rows.append((f"{folder}/{name}", int(label), split))
    table = pd.DataFrame(rows, columns=["path", "label", "split"])
    return image_bundle(table, root, NAMES, reading, name="animal10n")
