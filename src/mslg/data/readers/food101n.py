"""Food-101N: 310,009 images of 101 dishes, labelled by search queries and partly verified by people."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from ..image_stores import frame_of
from .bundle import Bundle
from .from_table import image_bundle
from .list_files import lines
from .options import Reading

log = logging.getLogger("mslg")

RELEASE = "Food-101N_release"


def food101n(root: Path, *, food101: str | None = None, reading: Reading) -> Bundle:
    """The label is the name of the folder. A verification flag of 1 means that it is right, 0 that it is wrong (the
    right one is unknown), so `clean=N` takes samples with flag 1. The test set consists of the validation samples with
    flag 1, and no validation sample is trained on; or of the test split of Food-101, if `food101` names its folder."""
    root = root / RELEASE if (root / RELEASE).is_dir() else root
    meta = root / "meta"
    classes = _after_header(meta / "classes.txt").tolist()
    keys = _after_header(meta / "imagelist.tsv")
    table = pd.DataFrame({"key": keys, "label": _labels(keys, classes, meta / "imagelist.tsv")})
    verified = [_verified(meta / "verified_train.tsv")]
    validation = _verified(meta / "verified_val.tsv")
    if food101 is None:
        # With flag 0 too: these images are validation data as well.
        table = table[~table["key"].isin(validation.index)]
        right = validation[validation == 1].index.to_series()
        test = pd.DataFrame({"key": right, "label": _labels(right, classes, meta / "verified_val.tsv")})
        test["path"] = "images/" + test["key"]
        folder = root
    else:
        verified.append(validation)
        test, folder = _food101(Path(food101), classes)
    table = table.copy()
    _report_unlisted(verified[0], keys)
    flags = pd.concat(verified)
    flags = flags[~flags.index.duplicated()]
    table["verified_label"] = np.where(table["key"].map(flags) == 1, table["label"], -1)
    table["path"] = "images/" + table["key"]
    table, test = (part.assign(id=part["key"], split=split) for part, split in ((table, "train"), (test, "test")))
    if folder == root:
        test["verified_label"] = test["label"]
        return image_bundle(pd.concat([table, test], ignore_index=True), root, classes, reading, name="food101n")
    train = image_bundle(table, root, classes, reading, name="food101n")
    alike = replace(reading, frame=frame_of(train.train.store))
    other = image_bundle(test.assign(split="train"), folder, classes, alike, name="food-101 (test)")
    return Bundle(train.train, other.train)


def _after_header(path: Path) -> pd.Series:
    """The lines after the header, which the list of classes has too."""
    return lines(path).iloc[1:].reset_index(drop=True)


def _labels(keys: pd.Series, classes: list[str], path: Path) -> pd.Series:
    number = {name: position for position, name in enumerate(classes)}
    labels = keys.str.split("/", n=1).str[0].map(number)
    if labels.isna().any():
        raise ValueError(f"{path} names '{keys[labels.isna()].iloc[0]}', whose folder is not in meta/classes.txt")
    return labels.astype("int64")


def _verified(path: Path) -> pd.Series:
    """Verification flags by image."""
    rows = _after_header(path).str.rsplit("\t", n=1, expand=True).reindex(columns=[0, 1])
    if not rows[1].isin(["0", "1"]).all():
        row = rows[~rows[1].isin(["0", "1"])].iloc[0]
        raise ValueError(f"{path} has the line '{row[0]}\t{row[1]}'; '<class>/<name>.jpg<TAB>0 or 1' was expected")
    flags = pd.Series(rows[1].astype("int64").to_numpy(), index=rows[0].to_numpy())
    return flags[~flags.index.duplicated()]


def _report_unlisted(flags: pd.Series, keys: pd.Series) -> None:
    unlisted = ~flags.index.isin(keys)
    if unlisted.any():
        # In the release, one image is verified under another class than it is listed under.
        log.info("food101n: %d verified rows are not in the image list and are ignored", int(unlisted.sum()))


def _food101(root: Path, classes: list[str]) -> tuple[pd.DataFrame, Path]:
    root = root / "food-101" if (root / "food-101").is_dir() else root
    keys = lines(root / "meta" / "test.txt")
    labels = _labels(keys, classes, root / "meta" / "test.txt")
    return pd.DataFrame({"key": keys, "label": labels, "path": "images/" + keys + ".jpg"}), root
