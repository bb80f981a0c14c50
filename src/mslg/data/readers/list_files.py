"""The text files in which large data sets list their images."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ...runtime.files import regular


def lines(path: Path) -> pd.Series:
    """The non-empty lines of a file."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; pass root= (--root): the folder of the data set as unpacked")
    stripped = pd.Series(regular(path).read_text(encoding="utf-8").splitlines(), dtype="str").str.strip()
    return stripped[stripped != ""].reset_index(drop=True)


def pairs(path: Path) -> pd.DataFrame:
    """Lines `<path> <class number>`. Paths may contain commas and spaces, so a line is split at its last space."""
    entries = lines(path)
    parts = entries.str.rsplit(n=1, expand=True).reindex(columns=[0, 1])
    numbers = pd.to_numeric(parts[1], errors="coerce")
    if numbers.isna().any():
        row = int(numbers.isna().to_numpy().nonzero()[0][0])
        raise ValueError(f"{path} has the line '{entries.iloc[row]}'; '<path> <class number>' was expected")
    return pd.DataFrame({"path": parts[0].str.strip(), "label": numbers.astype("int64")})


def check_range(labels: pd.Series, classes: int, path: Path) -> None:
    """Raise if a class number is out of range."""
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise ValueError(
            f"{path} has the label {int(wrong.iloc[0])} ({len(wrong)} such lines); labels must be whole numbers from 0 "
            f"to {classes - 1}"
        )
