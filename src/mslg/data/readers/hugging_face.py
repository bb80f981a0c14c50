"""Local data sets of the Hugging Face `datasets` library: saved with `save_to_disk`, or an imagefolder."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..images import Frame, pixels_of
from ..labels import encode_known, encode_labels
from ..source import Source
from ..stores import TensorStore
from ..texts import TextStore, Vocabulary, vocabulary_of
from .bundle import Bundle
from .options import Reading

log = logging.getLogger("mslg")

KNOWN = ("verified_label", "true_label")  # optional labels, unknown for some samples
STRINGS = ("string", "large_string")


class HuggingFaceImages:
    """Images that the library decodes on access."""

    def __init__(self, rows: Any, column: str, frame: Frame, channels: int) -> None:
        self.rows, self.column, self.frame, self.channels = rows, column, frame, channels

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Tensor]:
        for index in indices:
            images = [self.rows[i][self.column] for i in index.tolist()]
            pixels = np.stack([pixels_of(image, self.frame, self.channels) for image in images])
            yield torch.from_numpy(pixels).float().div_(255)


def hugging_face(path: Path, *, reading: Reading) -> Bundle:
    """Read a data set, or a dict of splits with `train` and optionally `test`."""
    try:
        import datasets  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise ImportError("the datasets library is not installed; install it with: pip install datasets") from error
    if not path.exists():
        raise FileNotFoundError(
            f"there is no folder {path}; pass hf:PATH of a folder written by save_to_disk, or of an imagefolder"
        )
    saved = (path / "dataset_info.json").exists() or (path / "dataset_dict.json").exists()
    loaded = datasets.load_from_disk(str(path)) if saved else datasets.load_dataset("imagefolder", data_dir=str(path))
    splits = dict(loaded) if isinstance(loaded, dict) else {"train": loaded}
    if "train" not in splits:
        raise ValueError(f"{path} has no split 'train'; it has {', '.join(splits)}")
    frame = reading.frame
    parts: dict[str, Source] = {}
    for name in ("train", "test"):  # the training split determines how the test split is read
        if name in splits:
            parts[name] = _source(splits[name], reading, frame, f"{path} ({name})", parts.get("train"))
            frame = getattr(parts[name].store, "frame", None)
    return Bundle(parts["train"], parts.get("test"))


def is_hugging_face(data: Any) -> bool:
    """Whether this is a `datasets.Dataset`, without importing the library."""
    return type(data).__module__.startswith("datasets.") and hasattr(data, "column_names") and hasattr(data, "features")


def rows_source(
    rows: Any,
    *,
    name: str,
    like: Source | None = None,
    label: int | str | None = None,
    classes: Sequence[str] | None = None,
) -> Source:
    """A `datasets.Dataset` with images, texts or columns of numbers; its inputs are read as those of `like`."""
    if label is not None and label != "label":
        kept = [column for column in rows.column_names if column != "label"]
        rows = rows.select_columns(kept).rename_column(str(label), "label")
    frame = None if like is None else getattr(like.store, "frame", None)
    source = _source(rows, Reading(), frame, name, like)
    if classes is None or source.classes == tuple(classes):
        return source
    return replace(source, label=encode_labels(np.asarray(rows["label"]), classes, name)[0], classes=tuple(classes))


def _source(rows: Any, reading: Reading, frame: Frame | None, name: str, train: Source | None) -> Source:
    features = rows.features
    kinds = {column: type(feature).__name__ for column, feature in features.items()}
    named = [column for column, kind in kinds.items() if kind == "ClassLabel"]
    column = next((column for column in ("label", "labels", *named) if column in kinds), None)
    if column is None:
        raise ValueError(f"{name} has no column 'label'; it has: {', '.join(kinds)}")
    names = train.classes if train is not None else getattr(features[column], "names", None)
    label, classes = encode_labels(np.asarray(rows[column]), names, name)
    ids = tuple(map(str, rows["id"])) if "id" in kinds else tuple(str(number) for number in range(len(label)))
    image = next((column for column, kind in kinds.items() if kind == "Image"), None)
    others = [key for key in kinds if key not in (column, "id", *KNOWN)]
    store = _rows(rows, others, reading, train, name) if image is None else _images(rows, image, reading, frame)
    verified, true = (encode_known(rows[key], classes, len(label), name) if key in kinds else None for key in KNOWN)
    return Source(
        store=store,
        label=label,
        classes=classes,
        ids=ids,
        verified_label=verified,
        true_label=true,
        ids_given="id" in kinds,
    )


def _images(rows: Any, column: str, reading: Reading, frame: Frame | None) -> HuggingFaceImages:
    if frame is None:
        frame = Frame.fit({rows[i][column].size for i in range(min(len(rows), 100))}, reading.size)
    return HuggingFaceImages(rows, column, frame, reading.channels)


def _rows(rows: Any, columns: list[str], reading: Reading, train: Source | None, name: str) -> TextStore | TensorStore:
    """Texts, or numeric columns."""
    kinds = {column: str(getattr(rows.features[column], "dtype", "")) for column in columns}
    numeric = [column for column, kind in kinds.items() if kind.startswith(("float", "int"))]
    text = _text_column([column for column, kind in kinds.items() if kind in STRINGS], numeric, name)
    if text is not None:
        known = reading.vocabulary if train is None else vocabulary_of(train.store)
        return _texts(rows[text], text, known, reading, name)
    if not numeric:
        raise ValueError(
            f"{name} has no image column, no texts and no numeric columns; it has: {', '.join(rows.features)}"
        )
    return TensorStore(np.stack([np.asarray(rows[column], dtype=np.float32) for column in numeric], 1), numeric)


def _text_column(texts: list[str], numeric: list[str], name: str) -> str | None:
    """The column of texts to classify; None if the inputs are numbers. Ambiguous columns are an error."""
    if "text" in texts:
        return "text"
    if len(texts) == 1 and not numeric:
        return texts[0]
    if not texts:
        return None
    others = f" and the numbers {', '.join(numeric)}" if numeric else ""
    raise ValueError(
        f"{name} has the text columns {', '.join(texts)}{others}, and none is called 'text': rename the one to use "
        f"(rename_column('{texts[0]}', 'text')), or remove the columns that are no inputs (remove_columns)"
    )


def _texts(texts: Any, column: str, known: Vocabulary | None, reading: Reading, name: str) -> TextStore:
    array = np.asarray(texts, dtype=object)
    missing = [row for row, text in enumerate(array) if not text]
    if missing:
        raise ValueError(f"{name} has no {column} in row {missing[0]}; fill it in or remove the row (filter)")
    vocabulary = known or Vocabulary.of(array, most=reading.words, name=name)
    log.info("%s: texts of column '%s' as counts of %d words", name, column, len(vocabulary.words))
    return TextStore(array, vocabulary)
