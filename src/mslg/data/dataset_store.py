"""Inputs from a map-style Dataset, read as a DataLoader reads them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from ..registry import unknown
from ..runtime.seeds import seeded
from .batch import Inputs
from .items import Layout, collate

CPU = torch.device("cpu")
# Options of a DataLoader that concern how items are read. Batches and their order are those of the run.
OPTIONS = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
)


class DatasetStore:
    """Inputs from any map-style Dataset.

    Args:
        dataset: with `__len__` and `__getitem__`; `__getitems__` is used if it has one.
        layout: where its items have their inputs; found from the first item by default.
        loader: options of a DataLoader.
        name: what to call the data in messages.
    """

    def __init__(
        self,
        dataset: Any,
        layout: Layout | None = None,
        loader: Mapping[str, Any] | None = None,
        *,
        name: str = "the data",
    ) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise TypeError(
                f"{type(dataset).__name__} has no length or cannot be indexed; soft labels are stored per sample, so a "
                "map-style Dataset with __len__ and __getitem__ is needed, or with key= an iterable one whose samples "
                "have names"
            )
        self.dataset, self.name = dataset, name
        self.loader = checked_loader(loader)
        self._layout = layout

    @property
    def layout(self) -> Layout:
        """Where the items have their inputs."""
        if self._layout is None:
            self._layout = Layout.of(self.dataset[0], labelled=False)
        return self._layout

    def __len__(self) -> int:
        return len(self.dataset)

    def at(self, positions: np.ndarray[Any, Any]) -> DatasetStore:
        """The inputs at these positions."""
        return DatasetStore(Subset(self.dataset, positions.tolist()), self.layout, self.loader, name=self.name)

    def like(self, dataset: Any) -> DatasetStore:
        """Another Dataset, read in the same way; its items may lack the label."""
        item, layout = dataset[0], self.layout
        if not isinstance(item, Mapping):
            parts = [place for place in (*layout.inputs, layout.label) if isinstance(place, int)]
            if not isinstance(item, tuple | list) or len(item) <= max(parts, default=0):
                layout = Layout.of(item, labelled=False, name=self.name)
        return DatasetStore(dataset, layout, self.loader, name=self.name)

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Inputs]:
        groups = iter(indices)
        first = list(islice(groups, 2))
        workers = int(self.loader.get("num_workers", 0))
        reader = _Reader(self.dataset, self.layout, self.loader.get("collate_fn"), self.name)
        if workers == 0 or len(first) < 2:  # a single batch is faster than the start of a worker
            for group in chain(first, groups):
                yield reader.__getitems__(group.tolist())
            return
        options = {name: value for name, value in self.loader.items() if name != "collate_fn"}
        yield from DataLoader(
            reader,  # type: ignore[arg-type]
            batch_sampler=(group.tolist() for group in chain(first, groups)),
            collate_fn=_unchanged,
            generator=torch.Generator(),  # otherwise it draws a number from the global one
            **options,
        )


class _Reader:
    """Reads a batch in one go, in this process or in a worker."""

    def __init__(self, dataset: Any, layout: Layout, collate_fn: Any, name: str) -> None:
        self.dataset, self.layout, self.collate_fn, self.name = dataset, layout, collate_fn, name

    def __getitems__(self, positions: Sequence[int]) -> Inputs:
        # Random transforms are a function of the batch, so they depend neither on the number of workers nor on where
        # a run was resumed; the order of an epoch is a function of the run's seed.
        number = zlib.crc32(np.asarray(positions, dtype=np.int64).tobytes())
        with seeded(CPU, number, "items"):
            items = self._items(positions)
            if self.collate_fn is None:
                return collate([self.layout.inputs_of(item) for item in items], self.name)
            return self.layout.of_batch(self.collate_fn(items))

    def _items(self, positions: Sequence[int]) -> list[Any]:
        if callable(several := getattr(self.dataset, "__getitems__", None)):
            return list(several(list(positions)))
        return [self.dataset[position] for position in positions]


def checked_loader(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options of a DataLoader, if they are some that concern how items are read."""
    found = dict(options or {})
    for name in found:
        if name not in OPTIONS:
            raise unknown("option of loader", name, OPTIONS)
    return found


def loader_options(loader: DataLoader[Any]) -> dict[str, Any]:
    """What a DataLoader was made with."""
    from torch.utils.data import default_collate
    from torch.utils.data._utils.collate import default_convert

    found = {name: getattr(loader, name) for name in OPTIONS}
    if found["collate_fn"] in (default_collate, default_convert):
        del found["collate_fn"]
    return {name: value for name, value in found.items() if value not in (None, 0, False)}


def _unchanged(batch: Any) -> Any:
    return batch
