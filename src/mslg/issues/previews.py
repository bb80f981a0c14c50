"""The preview of a sample: a small picture, a text, or its values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Subset

from ..data.batch import leaves
from ..data.dataset_store import DatasetStore
from ..data.images import as_seen, eight_bits, opened
from ..data.source import Source
from ..data.stores import InputStore, Located, TensorStore, Worded
from ..runtime.seeds import seeded

NATIVE = 64  # pixels: a picture no larger than this is kept without loss
LONGEST_TEXT = 4_000  # characters
MOST_VALUES = 64  # longer rows are drawn as an outline,
LARGEST = 3.402e38  # of a number of four digits that single precision holds: JSON has no infinity
STRETCHES = 128  # the lowest and the highest value in each of this many stretches
THIN = 6  # pictures with a larger aspect ratio are stretched to this one

Kind = Literal["image", "text", "values"]


class Preview(NamedTuple):
    """A PNG or WebP file, a text in UTF-8, or values as JSON."""

    kind: Kind
    content: bytes


def previews_of(source: Source, positions: Sequence[int], *, side: int) -> list[Preview]:
    """The previews of several samples, as of each alone; rows of numbers all at once, which takes half the time."""
    store = source.store if source.shown is None else source.shown
    if type(store) is TensorStore and isinstance(store.tensors, Tensor) and store.tensors.dim() == 2:
        return _values(next(iter(store.batches([torch.tensor(positions, dtype=torch.int64)]))), store.columns)
    return [preview_of(source, position, side=side) for position in positions]


def preview_of(source: Source, position: int, *, side: int) -> Preview:
    """The preview of a sample, pictures at most `side` pixels wide and high. For a sample that cannot be shown it is a
    text that says why: previews are made after training, which no error may undo."""
    store = source.store if source.shown is None else source.shown
    try:
        with seeded(torch.device("cpu"), 0, "view"):  # a Dataset may change its items at random
            return _preview(store, position, side)
    except Exception as error:  # of a broken file, or out of a Dataset that is not ours
        return _text(f"This sample cannot be shown: {str(error) or type(error).__name__}")


def _preview(store: InputStore, position: int, side: int) -> Preview:
    if type(store) is not TensorStore:  # to ask whether it has the protocols would take longer than the preview
        if isinstance(store, Located):
            return _of_file(store.path(position), side)
        if isinstance(store, Worded):
            return _text(store.text(position))
    if isinstance(store, DatasetStore) and (text := _text_of(store.dataset, position)) is not None:
        return _text(text)
    inputs = next(iter(store.batches([torch.tensor([position])])))
    tensors = [tensor[0].detach().cpu() for tensor in leaves(inputs) if len(tensor)]
    for tensor in tensors:
        if (pixels := _pixels(tensor)) is not None:
            return _picture(Image.fromarray(pixels), side)
    for tensor in tensors:
        if (row := tensor.squeeze()).dim() <= 1:
            return _values(row.reshape(1, -1), getattr(store, "columns", None))[0]
    shapes = " and ".join("×".join(map(str, tensor.shape)) for tensor in tensors) or "nothing"
    return _text(f"Inputs of this shape have no preview: {shapes}")


def _text_of(dataset: Any, position: int) -> str | None:
    """The text of a Dataset's item: from its method `text`, or the item itself if it is a string."""
    while isinstance(dataset, Subset):
        dataset, position = dataset.dataset, int(dataset.indices[position])
    if callable(text := getattr(dataset, "text", None)):
        return str(text(position))
    inputs = dataset[position][0]
    parts = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, tuple | list) else [inputs]
    texts = [part for part in parts if isinstance(part, str)]
    return "\n".join(texts) if texts else None


def _text(text: str) -> Preview:
    if len(text) > LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT]}… ({len(text)} characters in all)"
    return Preview("text", text.encode(errors="replace"))


def _of_file(path: Path, side: int) -> Preview:
    with opened(path) as image:
        image.draft("RGB", (2 * side, 2 * side))  # a JPEG is decoded at a fraction of its size
        return _picture(as_seen(image), side)


def _pixels(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    """(height, width) or (height, width, 3) bytes of a tensor that is a picture: grey, colour, or colour and opacity.
    Values outside [0, 1] are scaled to it by the sample's own minimum and maximum."""
    if tensor.dim() == 2:
        tensor = tensor.unsqueeze(0)
    if tensor.dim() != 3 or tensor.shape[0] not in (1, 3, 4) or min(tensor.shape[1:]) < 2:
        return None
    values = torch.nan_to_num(tensor[:3].float())
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 1:
        values = (values - low) / max(high - low, 1e-12)
    pixels: np.ndarray[Any, np.dtype[np.uint8]] = (255 * values).round().to(torch.uint8).permute(1, 2, 0).numpy()
    return pixels[:, :, 0] if pixels.shape[2] == 1 else pixels


def _picture(image: Image.Image, side: int) -> Preview:
    plain = eight_bits(image)
    if plain.mode not in ("L", "RGB", "RGBA"):
        plain = plain.convert("RGBA" if "transparency" in plain.info or plain.mode in ("LA", "PA") else "RGB")
    width, height = plain.size
    kept = max(width, height) <= min(side, NATIVE)
    if not kept:
        # A strip a few pixels wide shows nothing: the short side is stretched.
        least = max(width, height) / THIN
        scale = min(1.0, side / max(width, height))
        wanted = (max(1, round(scale * max(width, least))), max(1, round(scale * max(height, least))))
        plain = plain.resize(wanted, Image.Resampling.LANCZOS, reducing_gap=2.0)
    file = BytesIO()
    if kept:
        plain.save(file, "PNG")
    else:
        plain.save(file, "WEBP", quality=80, method=4)
    return Preview("image", file.getvalue())


def _values(rows: Tensor, columns: Sequence[str] | None) -> list[Preview]:
    """Of each row few values as they are, many (a signal, features) as an outline."""
    values = torch.nan_to_num(rows.float()).clamp(-LARGEST, LARGEST).numpy()
    length = values.shape[1]
    names = []
    if length <= MOST_VALUES:
        parts = {"values": values}
        if columns is not None and len(columns) == length:
            names = [f'"names": {json.dumps(list(columns), ensure_ascii=False)}']
    else:
        count = min(STRETCHES, length)
        starts = np.arange(count) * length // count
        extremes = {"low": np.minimum, "high": np.maximum}
        parts = {name: extreme.reduceat(values, starts, axis=1) for name, extreme in extremes.items()}
    lists = {name: rows_as_json(part) for name, part in parts.items()}
    found = []
    for row in range(len(values)):
        fields = [f'"length": {length}', *(f'"{name}": {part[row]}' for name, part in lists.items()), *names]
        found.append(Preview("values", f"{{{', '.join(fields)}}}".encode(errors="replace")))
    return found


def rows_as_json(values: np.ndarray[Any, np.dtype[np.float32]]) -> list[str]:
    """Each row as a list in JSON, of numbers of four digits. All are formatted at once, by Arrow: a run writes
    hundreds of thousands of them when it has ended."""
    exact = values.astype(np.float64)
    size = np.abs(exact, out=np.ones_like(exact), where=exact != 0)
    unit = 10.0 ** (np.floor(np.log10(size)) - 3)
    numbers = pa.array((np.rint(exact / unit) * unit).astype(np.float32).ravel()).cast(pa.string())
    ends = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
    joined = pc.binary_join(pa.ListArray.from_arrays(ends, numbers), ", ")
    return [f"[{row}]" for row in joined.to_pylist()]
