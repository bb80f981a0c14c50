"""CSV, TSV, Excel and Parquet manifests: one row per sample, with the path of an image, a text, or numeric features.

path    an image, relative to the manifest and below its folder (also accepted: `file_name`)
text    a text to classify, where there is no path
label   the given label, a class number from 0 or a name
id, split (train, test), verified_label, true_label: optional

Without `path` and `text`, all other columns must be numeric: they are the features.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...registry import unknown
from ...runtime.cells import unescaped
from ...runtime.files import regular
from ..images import PLAIN as IMAGES
from ..images import EscapingPath
from ..labels import MOST_CLASSES, encode_labels
from ..stores import InputStore, LabelsOnly, TensorStore
from ..texts import TextStore, Vocabulary
from .bundle import Bundle
from .from_table import image_bundle, refuse_shared_ids, table_bundle
from .image_files import open_images
from .options import Reading
from .tables import read_excel, read_parquet

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("mslg")

LABELS = ("label", "verified_label", "true_label")
KNOWN = ("path", "text", *LABELS, "id", "split")
SPLITS = ("train", "test")
SEPARATORS = {".csv": ",", ".tsv": "\t"}
NAME_IT = " Name the column: --{}-column COLUMN."
KINDS = (*SEPARATORS, ".parquet", ".xlsx")


def manifest(path: Path, *, reading: Reading, inputs_needed: bool = True) -> Bundle:
    """Read a manifest. True labels are used for evaluation only; `clean=N` takes samples with verified labels. Where no
    inputs are needed, a table of labels will do, whatever other columns it has."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; pass the path of a .csv or .parquet with path and label")
    table = _read(path, reading.columns)
    return table_of_samples(table, path.name, path.parent, reading=reading, inputs_needed=inputs_needed)


def table_of_samples(
    table: pd.DataFrame, name: str, folder: Path, *, reading: Reading, inputs_needed: bool = True
) -> Bundle:
    """The data set in a manifest's table. Paths are relative to the folder."""
    _check_columns(list(table.columns), name)
    if not len(table):
        raise ValueError(f"{name} has no rows")
    classes = _encode(table, name)
    _check_splits(table, name)
    if "path" in table:
        _check_paths(table["path"], name)
    refuse_shared_ids(table, name)
    if "path" in table:
        _log_ignored(table, tuple(column for column in KNOWN if column != "text"), name)
        return image_bundle(table, folder, classes, reading, name=name, confined=True)
    if "text" in table:
        _log_ignored(table, KNOWN, name)
        return table_bundle(table, classes, _texts(table, reading, name).at, name=name)
    if not inputs_needed:
        return table_bundle(table, classes, lambda rows: LabelsOnly(len(rows)), name=name)
    store = TensorStore(_features(table, name), [str(column) for column in table if column not in KNOWN])
    return table_bundle(table, classes, store.at, name=name)


def unlabelled_table(
    path: Path, *, reading: Reading, columns: Sequence[str] | None = None
) -> tuple[InputStore, list[str] | None]:
    """The inputs of a manifest and their ids, whatever labels it has or lacks.

    Args:
        path: a .csv or .parquet.
        reading: how inputs are read.
        columns: the features, in the order of the training table; not for texts and images.
    """
    table, name = _read(path, reading.columns), path.name
    if not len(table):
        raise ValueError(f"{name} has no rows")
    ids = table["id"].tolist() if "id" in table else None
    if columns is not None:
        missing = [column for column in columns if column not in table]
        if missing:
            raise ValueError(
                f"{name} has no column {' and no column '.join(missing[:3])}; the model was trained on the columns "
                f"{', '.join(columns[:8])}{', …' if len(columns) > 8 else ''}"
            )
        return TensorStore(_features(table[list(columns)], name), list(columns)), ids
    if reading.vocabulary is not None:
        if "text" not in table:
            raise ValueError(f"{name} has no column 'text', and the model classifies texts; it has: {_listed(table)}")
        return _texts(table, reading, name), ids
    if "path" in table:
        _check_paths(table["path"], name)
        store, kept = open_images(table["path"].array, path.parent, reading, name=name, confined=True)
        names = table["path"].tolist() if ids is None else ids
        return store, [names[position] for position in kept.tolist()]
    return TensorStore(_features(table, name)), ids


def _listed(table: pd.DataFrame) -> str:
    return ", ".join(map(str, table.columns))


def _texts(table: pd.DataFrame, reading: Reading, name: str) -> TextStore:
    """The texts, encoded with the vocabulary of the training texts."""
    _refuse_missing(table, "text", name)
    texts = table["text"].to_numpy(dtype=object)
    training = texts[table["split"].to_numpy() == "train"] if "split" in table else texts
    vocabulary = reading.vocabulary or Vocabulary.of(training, most=reading.words, name=name)
    log.info("%s: texts as counts of %d words", name, len(vocabulary.words))
    return TextStore(texts, vocabulary)


def _log_ignored(table: pd.DataFrame, known: tuple[str, ...], name: str) -> None:
    ignored = [str(column) for column in table if column not in known]
    if ignored:
        log.info("%s: ignored columns: %s", name, ", ".join(ignored))


def _refuse_missing(table: pd.DataFrame, column: str, name: str) -> None:
    missing = table[column].isna()
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise ValueError(f"{name} has no {column} in row {row + 1} (after the header); fill it in or remove the row")


def _read(path: Path, named: Mapping[str, str]) -> pd.DataFrame:
    import pandas as pd

    try:
        regular(path)
        if path.suffix == ".parquet":
            table = read_parquet(path)
        else:
            read: Any = read_excel if path.suffix == ".xlsx" else partial(pd.read_csv, sep=SEPARATORS[path.suffix])
            names = [str(column) for column in read(path, nrows=0).columns]
            # Class names such as NA or 007 are text, so the types of known columns are not inferred.
            known = (*KNOWN, "file_name", *named.values())
            text: dict[str, Any] = {column: str for column in names if column in known}
            missing: dict[str, list[str]] = {column: [""] for column in text}
            numbers = {column: ["", "NA", "NaN", "nan"] for column in names if column not in text}
            table = read(path, dtype=text, keep_default_na=False, na_values={**missing, **numbers})
            for column in text:
                table[column] = table[column].map(unescaped, na_action="ignore")
    except ImportError:
        raise
    except Exception as error:  # a damaged file makes libraries raise nearly anything
        raise ValueError(
            f"{path} cannot be read as a table ({error}); write it as .csv (comma, UTF-8), .tsv or .parquet"
        ) from error
    table = _renamed(table, named, path.name)
    if "path" not in table and "file_name" in table:
        table = table.rename(columns={"file_name": "path"})
    for column in ("path", "id", "split"):
        if column in table:
            _refuse_missing(table, column, path.name)
        if column in table and not pd.api.types.is_string_dtype(table[column]):
            table[column] = table[column].astype(str)
    return table


def _renamed(table: pd.DataFrame, named: Mapping[str, str], name: str) -> pd.DataFrame:
    """The table with the columns named by the user under the usual names. A clean set may have the usual names."""
    for usual, own in named.items():
        if own == usual or (own not in table and usual in table):
            continue
        if own not in table:
            close = get_close_matches(own, [str(column) for column in table], n=1, cutoff=0.6)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            raise ValueError(
                f"{name} has no column '{own}' (--{usual}-column); it has: {', '.join(map(str, table.columns))}.{hint}"
            )
        table = table.drop(columns=[usual], errors="ignore").rename(columns={own: usual})
    return table


def _check_columns(columns: list[str], name: str) -> None:
    for column in columns:
        close = get_close_matches(str(column), KNOWN, n=1, cutoff=0.8)
        if column not in KNOWN and close and close[0] not in columns:
            raise unknown(f"column in {name}", column, KNOWN)  # a misspelled true_label must not become a feature
    if "label" not in columns:
        own = [str(column) for column in columns if column not in KNOWN]  # known ones mean something else
        usual = [column for column in own if column.lower() in ("class", "target", "y", "category", "labels")]
        close = usual or get_close_matches("label", own, n=1, cutoff=0.5)
        hint = f" Did you mean '{close[0]}'? Say so: --label-column {close[0]}." if close else NAME_IT.format("label")
        raise ValueError(f"{name} has no column 'label'; it has: {', '.join(map(str, columns))}.{hint}")


def _encode(table: pd.DataFrame, name: str) -> tuple[str, ...]:
    """Replace labels by class numbers in place, −1 where a verified or true one is unknown; return the class names."""
    import pandas as pd

    present = [column for column in LABELS if column in table]
    if table["label"].isna().any():
        row = int(np.flatnonzero(table["label"].isna())[0])
        raise ValueError(
            f"{name} has no label in row {row + 1} (after the header); fill it in or remove the row "
            f"({int(table['label'].isna().sum())} such rows)"
        )
    columns = {column: _numbers_if_all(table[column]) for column in present}
    if any(values is None for values in columns.values()):
        texts = {column: table[column].astype("str") for column in present}
        names = sorted(set().union(*(values.dropna().unique().tolist() for values in texts.values())))
        number = pd.Series(np.arange(len(names)), index=names)
        for column, values in texts.items():
            table[column] = values.map(number).fillna(-1).astype(np.int64)
        return tuple(names)
    for column, numbers in columns.items():
        assert numbers is not None
        table[column] = numbers
        if column != "label" and int(numbers.min()) < -1:
            raise ValueError(
                f"{name} has the {column} {int(numbers.min())}; use class numbers from 0, and −1 where unknown"
            )
    highest = max(int(values.max()) for values in columns.values() if values is not None)
    names = [str(number) for number in range(min(highest + 1, MOST_CLASSES))]
    if highest >= len(names) or (table["label"] < 0).any():
        column = next(key for key, values in columns.items() if values is not None and int(values.max()) == highest)
        wrong = table["label"] if (table["label"] < 0).any() else table[column]
        encode_labels(wrong.to_numpy(), None, name)  # raises with the right message
    return tuple(names)


def _numbers_if_all(values: pd.Series) -> pd.Series | None:
    """Class numbers, −1 where missing; None if one of them is text, as `007` is."""
    import pandas as pd

    known = values.dropna()
    if pd.api.types.is_integer_dtype(values.dtype):
        return values.fillna(-1).astype(np.int64)
    if pd.api.types.is_float_dtype(values.dtype) and (known == known.round()).all() and known.abs().max() < 2**53:
        return values.fillna(-1).astype(np.int64)
    distinct = known.astype("str").unique()
    if not all(_is_number(text) for text in distinct):
        return None
    return values.astype("str").map({text: int(text) for text in distinct}).fillna(-1).astype(np.int64)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) is not None


def _check_splits(table: pd.DataFrame, name: str) -> None:
    for split in table["split"].unique().tolist() if "split" in table else []:
        if split not in SPLITS:
            raise unknown(f"split in {name}", split, SPLITS)


def _check_paths(paths: pd.Series, name: str) -> None:
    """Refuse paths outside the manifest's folder. Symbolic links are checked when files are opened."""
    outside = paths.str.contains(r"^(?:[/\\~]|[A-Za-z]:)|(?:^|[/\\])\.\.(?:[/\\]|$)|\x00", regex=True)
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise EscapingPath(
            f"{name} has the path '{paths.iloc[row]}' in row {row + 1} (after the header; {int(outside.sum())} such "
            "rows); paths must be relative to the manifest and stay below its folder, without '..'"
        )


def _of_images(table: pd.DataFrame, columns: list[str]) -> list[str]:
    """Those of the columns whose first value is the name of an image file."""
    return [column for column in columns if Path(str(table[column].iloc[0])).suffix.lower() in IMAGES]


def _features(table: pd.DataFrame, name: str) -> torch.Tensor:
    import pandas as pd

    if ("changed" in table and "true_label" in table) or "label_source" in table:
        raise ValueError(
            f"{name} contains only labels, as written by mslg noise and mslg apply; pass the data they belong to, and "
            f"this file as its labels: mslg fit DATA --labels {name}"
        )
    columns = [column for column in table if column not in KNOWN]
    texts = [str(column) for column in columns if not pd.api.types.is_numeric_dtype(table[column])]
    if texts or not columns:
        close = _of_images(table, texts) or get_close_matches("path", texts, n=1, cutoff=0.5)
        hint = f" Did you mean '{close[0]}'? Say so: --path-column {close[0]}." if close else ""
        if texts and not close:
            hint = f" If '{texts[0]}' contains the texts to classify, say so: --text-column {texts[0]}."
        which = f"the columns {', '.join(texts)} are not numeric" if texts else "there are no others"
        raise ValueError(
            f"{name} has no column 'path' or 'text', so its other columns must be features, but {which}; "
            f"it has: {', '.join(map(str, table.columns))}.{hint}"
        )
    log.info(
        "%s: %d features: %s", name, len(columns), ", ".join(map(str, columns[:8])) + ("…" if len(columns) > 8 else "")
    )
    values = table[columns].to_numpy(dtype=np.float32, na_value=np.nan)
    if not np.isfinite(values).all():
        row, column = (int(positions[0]) for positions in np.nonzero(~np.isfinite(values)))
        raise ValueError(
            f"{name} has NaN or infinite values, first in column '{columns[column]}', row {row + 1} "
            "(after the header); fill them in or remove these rows"
        )
    return torch.tensor(values)
