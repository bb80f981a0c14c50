"""ANIMAL-10N: 55,000 images of five pairs of similar animals, about 8 % of them labelled wrongly."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from ..images import EXTENSIONS
from .bundle import Bundle
from .from_table import image_bundle
from .options import Reading

NAMES = (
    *("cat", "lynx", "wolf", "coyote", "cheetah"),
    *("jaguar", "chimpanzee", "orangutan", "hamster", "guinea pig"),
)
FOLDERS = {"training": "train", "testing": "test"}


def animal10n(root: Path, *, reading: Reading) -> Bundle:
    """Files `<label>_<anything>.jpg` in `training` and `testing`. No training label is verified: pass a clean set, or
    `clean="auto"`."""
    root = root / "raw_image" if (root / "raw_image").is_dir() else root
    rows = []
    for folder, split in FOLDERS.items():
        if not (root / folder).is_dir():
            raise FileNotFoundError(
                f"there is no folder {root / folder}; pass root= (--root): the folder that contains raw_image, "
                "with training and testing in it"
            )
        # Sorted: the order of a directory listing differs between machines.
        for name in sorted(os.listdir(root / folder)):  # noqa: PTH208 (faster, and names are enough)
            if name.startswith(".") or not name.lower().endswith(EXTENSIONS):
                continue
            label = name.split("_", 1)[0]
            if not label.isdigit() or int(label) >= len(NAMES):
                raise ValueError(f"{root / folder / name} has no label from 0 to 9 before the first '_' of its name")
            rows.append((f"{folder}/{name}", int(label), split))
    table = pd.DataFrame(rows, columns=["path", "label", "split"])
    return image_bundle(table, root, NAMES, reading, name="animal10n")
