"""Image folders: `<class>/x.jpg`, deeper folders allowed, with or without `train/` and `test/` above the classes."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ...runtime.time_left import TimeLeft
from ..images import EXTENSIONS, UNREAD, missing_decoder
from .bundle import Bundle
from .from_table import image_bundle
from .options import Reading

log = logging.getLogger("mslg")

SPLITS = ("train", "test")


def folder(path: Path, *, reading: Reading) -> Bundle:
    """Read an image folder. Classes are the sorted names of its subfolders; ids are the paths below it. Hidden files
    and files without an image extension are ignored."""
    import pandas as pd

    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder {path}; pass one that contains a folder of images per class")
    tops = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    divided = "train" in tops and set(tops) <= set(SPLITS)
    rows = []
    for split in SPLITS if divided else [""]:
        for name in readable(sorted(images_below(path / split)), path):
            below = name.split("/")
            if len(below) < 2:
                raise ValueError(
                    f"{path / split / name} is in no class folder; put each image into a folder named after its class "
                    f"({path / split}/<class>/{name}), or write a manifest (.csv with path,label)"
                )
            rows.append((f"{split}/{name}" if divided else name, below[0], split or "train"))
    if not rows:
        raise ValueError(
            f"{path} has no images in folders; expected {path}/<class>/<name>, names ending in {', '.join(EXTENSIONS)}"
        )
    table = pd.DataFrame(rows, columns=["path", "class", "split"])
    classes = sorted(table["class"].unique().tolist())
    if len(classes) < 2:
        raise ValueError(
            f"{path} has images of one class only, '{classes[0]}'; a classifier needs at least two: expected one "
            "folder per class directly below"
        )
    table["label"] = table["class"].map({name: number for number, name in enumerate(classes)})
    return image_bundle(table, path, classes, reading, name=str(path))


def readable(names: list[str], path: Path) -> list[str]:
    """The names of images that can be read: others are counted in a warning."""
    if other := sorted(name for name in names if name.lower().endswith(UNREAD)):
        files = "1 file" if len(other) == 1 else f"{len(other)} files"
        log.warning("%s: %s left out, of a format that is not read (%s); convert to JPEG", path, files, other[0])
        names = [name for name in names if name not in set(other)]
    for (kind, install), count in Counter(filter(None, map(missing_decoder, names))).items():
        log.warning("%s: %d %s photos are left out; to read them: %s", path, count, kind, install)
    return [name for name in names if missing_decoder(name) is None]


def images_below(top: Path) -> Iterator[str]:
    """The images below a folder, as paths with forward slashes, also those of formats that are not read. Symbolic links
    are followed, cycles excepted."""
    seen, shown = set(), TimeLeft(f"{top}: looking for images")
    for here, folders, files in os.walk(top, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        below = Path(here).relative_to(top).as_posix()
        shown.advance(len(files))
        for name in files:
            if not name.startswith(".") and name.lower().endswith((*EXTENSIONS, *UNREAD)):
                yield name if below == "." else f"{below}/{name}"
