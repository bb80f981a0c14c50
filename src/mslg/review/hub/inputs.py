"""The inputs of a run's samples as columns of a table, where they are in memory or can be opened again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ...data.from_python import as_source
from ...data.source import Positions, Source
from ...data.stores import LabelsOnly, TensorStore
from ...data.texts import TextStore
from ...registry import UntrustedCode, import_only
from ...runs.folder import Run
from ...runs.recipes import checked
from ...runs.run_data import open_run_data
from ...runs.settings import Named, Options, Settings
from ..cleaned.folder import refuse_inside, refuse_outside

TEXT, FEATURES = "text", "features"


class Unavailable(Exception):
    """The inputs cannot be written. The message is for everybody; `detail`, with paths, is for this machine's user."""

    def __init__(self, why: str, detail: str = "") -> None:
        super().__init__(why)
        self.detail = detail


@dataclass(frozen=True)
class InputColumns:
    """Inputs by the id of the sample."""

    parts: Mapping[str, Tensor | np.ndarray[Any, Any]]  # by the name of the column
    position: Mapping[str, int] | None  # None if the ids are positions

    @classmethod
    def of(cls, source: Source, taken: Sequence[str]) -> InputColumns:
        """Texts, the columns of a table, or arrays. No column has a name that is `taken`."""
        store = source.store if source.shown is None else source.shown
        if isinstance(store, LabelsOnly):
            raise Unavailable("only the labels of the samples were known")
        if not isinstance(store, TextStore | TensorStore):
            raise Unavailable("the samples were read from a Dataset object, not from files, a table or arrays")
        ids = source.ids
        return cls(
            {TEXT: store.texts} if isinstance(store, TextStore) else _free(_parts(store), taken),
            None if isinstance(ids, Positions) else {name: position for position, name in enumerate(ids)},
        )

    def at(self, ids: Sequence[str]) -> dict[str, pa.Array]:
        """The columns for these samples."""
        positions = [int(name) if self.position is None else self.position[name] for name in ids]
        return {name: _array(part, positions) for name, part in self.parts.items()}


def open_inputs(run: Run, noisy: Any, *, target: Path, within: Sequence[Path], taken: Sequence[str]) -> InputColumns:
    """The inputs of the data that was passed in, or else of the data that the run names, opened again.

    Raises:
        Unavailable: there are none, or they are not those of the run.
        EscapingPath: the run's folder names data outside of the folders `within`.
        ValueError: other data was passed in, or the data is in the folder `target`, which is replaced.
    """
    source = _reopened(run, target, within) if noisy is None else as_source(noisy, "the noisy set")
    found = InputColumns.of(source, taken)
    if source.fingerprint() != run.config["data"].get("fingerprint"):
        if noisy is not None:
            raise ValueError(f"the data or its given labels are not those that {run.path} was trained on")
        raise Unavailable("the data is no longer as it was in training")
    return found


def _reopened(run: Run, target: Path, within: Sequence[Path]) -> Source:
    settings = Settings.of(checked(run.config))
    data = settings.data
    if data.source is None:
        raise Unavailable(
            "the run was started in Python with data in memory",
            "pass it again: mslg.export(run, to='huggingface', noisy=(X, y)), or the result that fit returned",
        )
    if data.features is not None:
        raise Unavailable("the network was trained on features of the inputs, which are not files")
    homes = [os.path.realpath(folder) for folder in within]
    for named in (data.source.removeprefix("hf:"), data.root):
        if named is not None and (path := Path(named)).exists():
            refuse_outside(path, homes, name=path.resolve().parent)
            refuse_inside(path, target)
    try:
        with import_only(()):  # the network is not needed
            plain = replace(settings, network=Named())
            return open_run_data(plain, Options(progress=False))[1].train
    except UntrustedCode as error:
        raise Unavailable("the data is made by code of its own", str(error)) from error
    except FileNotFoundError as error:
        detail = f"{error}; relative paths start at the folder in which mslg fit was run: go there"
        raise Unavailable("the data was no longer where it was in training", detail) from error
    except (OSError, ValueError, ImportError) as error:
        raise Unavailable("the data could not be opened again", str(error)) from error


def _parts(store: TensorStore) -> dict[str, Tensor]:
    tensors, columns = store.tensors, store.columns
    if isinstance(tensors, Mapping):
        return {str(name): tensor for name, tensor in tensors.items()}
    if isinstance(tensors, tuple):
        return {f"{FEATURES}_{number}": tensor for number, tensor in enumerate(tensors)}
    if columns is None or tensors.dim() != 2 or len(set(columns)) != tensors.shape[1]:
        return {FEATURES: tensors}
    return {name: tensors[:, number] for number, name in enumerate(columns)}


def _free(parts: Mapping[str, Tensor], taken: Sequence[str]) -> dict[str, Tensor]:
    """A feature called as one of the other columns gets a longer name."""
    found: dict[str, Tensor] = {}
    for name, part in parts.items():
        while name in taken or name in found:
            name = f"feature_{name}"
        found[name] = part
    return found


def _array(part: Tensor | np.ndarray[Any, Any], positions: Sequence[int]) -> pa.Array:
    """Lists of fixed size, nested as the inputs have dimensions."""
    if not isinstance(part, Tensor):
        return pa.array([str(part[position]) for position in positions], pa.large_string())
    chosen = part[torch.tensor(positions, dtype=torch.int64)]
    found = pa.array(chosen.reshape(-1).numpy())
    for size in reversed(chosen.shape[1:]):
        found = pa.FixedSizeListArray.from_arrays(found, size)
    return found
