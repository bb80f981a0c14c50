"""Predictions of a trained network for new inputs, a batch at a time, into a table."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn

from ..data.batch import Inputs, call, leaves, map_inputs
from ..data.stores import InputStore, Located
from ..data.unlabelled import Unlabelled
from ..networks.evaluating import evaluating
from ..runtime.cells import escaped
from ..runtime.files import replacing
from ..runtime.printable import printable
from .new_inputs import NewInputs

BATCH = 256  # inputs per forward pass: always the same, because the last bits of a matrix product depend on it
KINDS = (".parquet", ".csv")


def predicted(network: nn.Module, inputs: NewInputs, store: InputStore, *, batch_size: int = BATCH) -> Iterator[Tensor]:
    """(batch, classes) probabilities, batch by batch, on the CPU. The network stays on its device."""
    device = next((tensor.device for tensor in (*network.parameters(), *network.buffers())), torch.device("cpu"))
    done = 0
    with evaluating(network):
        for batch in store.batches(torch.arange(len(store)).split(batch_size)):
            moved = map_inputs(lambda tensor: tensor.to(device), batch)
            logits = _logits(network, inputs.prepare.measuring(moved))
            if not torch.isfinite(logits).all():
                row = done + int((~torch.isfinite(logits)).any(1).nonzero()[0])
                raise ValueError(
                    f"the network's output for the input at position {row} is not finite; the inputs may hold NaN or "
                    "infinite values: fill them in or remove these samples"
                )
            yield logits.log_softmax(1).exp().cpu()
            done += len(logits)


def _logits(network: nn.Module, inputs: Inputs) -> Tensor:
    try:
        return call(network, inputs)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        shapes = " and ".join(str(tuple(tensor.shape[1:])) for tensor in leaves(inputs))
        raise ValueError(
            f"inputs of shape {shapes} do not fit the model ({' '.join(str(error).split())[:200]}); pass inputs like "
            "those it was trained on"
        ) from error


def probabilities(
    network: nn.Module, inputs: NewInputs, data: Any, loader: Mapping[str, Any] | None = None
) -> np.ndarray[Any, Any]:
    """(samples, classes) float32 probabilities of everything in `data`."""
    store = inputs.open(data, loader=loader).store
    parts = [part.float().numpy() for part in predicted(network, inputs, store)]
    return np.concatenate(parts) if parts else np.zeros((0, len(inputs.classes)), dtype=np.float32)


def write_predictions(
    network: nn.Module,
    inputs: NewInputs,
    opened: Unlabelled,
    path: Path | None,
    *,
    batch_size: int = BATCH,
    advance: Any = None,
) -> int:
    """Write a row per sample: id, path where known, predicted_label, probability (of that label), probabilities.

    Args:
        network: what predicts.
        inputs: how its inputs are prepared.
        opened: the inputs and their ids.
        path: a .parquet, or a .csv with a column p_CLASS per class; None for a short CSV on stdout.
        batch_size: inputs per forward pass.
        advance: called with the number of samples after each batch.

    Returns:
        The number of rows.
    """
    if path is not None and path.suffix not in KINDS:
        raise ValueError(f"{path} must end in {' or '.join(KINDS)}")
    schema, done = _schema(inputs.classes, path, located=isinstance(opened.store, Located)), 0

    def tables() -> Iterator[pa.Table]:
        nonlocal done
        for probs in predicted(network, inputs, opened.store, batch_size=batch_size):
            yield _rows(probs, opened, done, inputs.classes, schema, as_text=path is None or path.suffix == ".csv")
            done += len(probs)
            if advance is not None:
                advance(len(probs))

    if path is None:
        _to_stdout(tables(), sys.stdout)
        return done
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = pq.ParquetWriter if path.suffix == ".parquet" else pa_csv.CSVWriter
    with replacing(path) as temporary, writer(temporary, schema) as file:
        for table in tables():
            file.write_table(table)
    return done


def _schema(classes: tuple[str, ...], path: Path | None, *, located: bool) -> pa.Schema:
    fields = [("id", pa.string()), *([("path", pa.string())] if located else [])]
    fields += [("predicted_label", pa.string()), ("probability", pa.float32())]
    if path is None:
        return pa.schema(fields)
    if path.suffix == ".csv":
        return pa.schema([*fields, *((f"p_{name}", pa.float32()) for name in classes)])
    return pa.schema([*fields, ("probabilities", pa.list_(pa.float32()))])


def _rows(
    probs: Tensor, opened: Unlabelled, start: int, classes: tuple[str, ...], schema: pa.Schema, *, as_text: bool
) -> pa.Table:
    values = probs.float().numpy()
    best = values.argmax(1)
    columns: dict[str, Any] = {
        "id": [opened.ids[start + row] for row in range(len(values))],
        "predicted_label": [classes[number] for number in best],
        "probability": values[np.arange(len(values)), best],
        "probabilities": list(values),
        **{f"p_{name}": values[:, number] for number, name in enumerate(classes)},
    }
    if "path" in schema.names and isinstance(opened.store, Located):
        columns["path"] = [str(opened.store.path(start + row)) for row in range(len(values))]
    if as_text:  # no spreadsheet may run them
        for name in {"id", "path", "predicted_label"} & set(columns):
            columns[name] = [escaped(cell) for cell in columns[name]]
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _to_stdout(tables: Iterator[pa.Table], out: TextIO) -> None:
    for number, table in enumerate(tables):
        text = table.to_pandas().to_csv(index=False, header=number == 0)
        print(printable(text) if out.isatty() else text, end="", file=out)
