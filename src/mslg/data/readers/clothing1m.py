"""Clothing1M: a million shop images in 14 classes, labelled from the surrounding text; some verified by people."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd

from .bundle import Bundle
from .from_table import image_bundle
from .list_files import check_range, lines, pairs
from .options import Reading

log = logging.getLogger("mslg")

CLEAN = {"train": "clean-train", "val": "clean-val"}  # clean lists, and the names of the clean sets


def clothing1m(root: Path, *, reading: Reading) -> Bundle:
    """Training samples from the noisy list with noisy labels, test samples from the clean test list with clean ones.
    Its clean sets are `clean-val` (as in the paper) and `clean-train`."""
    folders = (root, root / "annotations")
    notes = next((folder for folder in folders if (folder / "noisy_label_kv.txt").exists()), root)
    classes = lines(notes / "category_names_eng.txt").tolist()
    labels = {}
    for kind in ("noisy", "clean"):
        table = pairs(notes / f"{kind}_label_kv.txt")
        check_range(table["label"], len(classes), notes / f"{kind}_label_kv.txt")
        # An image may be in both files: the list it is taken from decides which label to use.
        labels[kind] = table.drop_duplicates("path").set_index("path")["label"]
    parts = {"train": _part(notes, "noisy_train", labels["noisy"])}
    for split in ("test", *CLEAN):
        if split == "test" or (notes / f"clean_{split}_key_list.txt").exists():
            parts[CLEAN.get(split, split)] = _part(notes, f"clean_{split}", labels["clean"])
    train = _without_test(parts["train"], parts["test"])
    verified = pd.concat([part for name, part in parts.items() if name in CLEAN.values()] or [train.head(0)])
    known = verified.drop_duplicates("path").set_index("path")["label"]
    train["verified_label"] = train["path"].map(known).fillna(-1).astype("int64")
    parts["train"] = train
    table = pd.concat([part.assign(split=name) for name, part in parts.items()], ignore_index=True)
    for name, part in parts.items():  # a clean sample's label is verified
        if name != "train":
            table.loc[table["split"] == name, "verified_label"] = part["label"].to_numpy()
    table["id"] = table["path"]
    table["path"] = _located(root, table["path"])
    return image_bundle(table, root, classes, reading, name="clothing1m")


def _part(notes: Path, split: str, labels: pd.Series) -> pd.DataFrame:
    path = notes / f"{split}_key_list.txt"
    keys = lines(path)
    label = keys.map(labels)
    if label.isna().any():
        raise ValueError(
            f"{path} names '{keys[label.isna()].iloc[0]}' ({int(label.isna().sum())} such lines), for which "
            f"{split.split('_')[0]}_label_kv.txt has no label"
        )
    return pd.DataFrame({"path": keys, "label": label.astype("int64")})


def _without_test(train: pd.DataFrame, test: pd.DataFrame) -> pd.DataFrame:
    shared = train["path"].isin(test["path"])
    if shared.any():
        log.warning("clothing1m: %d images of the test list are left out of training", int(shared.sum()))
    return train[~shared].copy()


def _located(root: Path, keys: pd.Series) -> pd.Series:
    """Keys begin with `images/`; in some copies the ten folders below it are directly in the root."""
    return keys if (root / "images").is_dir() else keys.str.removeprefix("images/")
