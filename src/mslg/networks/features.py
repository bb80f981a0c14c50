"""Frozen features: a backbone encodes every sample once, and the method trains a small network on the result.

Features are cached on disk by content (backbone, its weights, the preparation of the images, the samples), so the next
run on the same data, with any noise, method or seed, starts at once. The folder is MSLG_CACHE, or ~/.cache/mslg.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ..data.augmentation import UNCHANGED, Augment
from ..data.batch import call, leaves, map_inputs
from ..data.source import Source
from ..data.stores import TensorStore
from ..runtime.seeds import seeded
from .build import example_of, network_factory
from .evaluating import evaluating
from .head import find_head, recorded_inputs
from .weights import weights_hash

log = logging.getLogger("mslg")

PRETRAINED = {"torchvision": "DEFAULT", "timm": "DEFAULT"}  # nobody means an untrained backbone of a library
PROBES = 64  # samples whose inputs are hashed for a set that is read lazily


def cache_folder() -> Path:
    """Where features are cached."""
    return Path(os.environ.get("MSLG_CACHE") or Path.home() / ".cache" / "mslg")


def preparation(name: str, source: Source, augment: Augment = UNCHANGED) -> Augment:
    """How images are prepared for a backbone: as in `augment`, or by default as for the libraries' training."""
    if augment.random:
        left_out = [step.word for step in augment.steps if step.random]
        log.warning("features are computed once, so random augmentation is left out: %s", " ".join(left_out))
    prepared = augment.prepared()
    if prepared.steps or name.partition(":")[0] not in PRETRAINED:
        return prepared
    grey = leaves(example_of(source))[0].shape[1] == 1
    words = [*(["rgb"] if grey else []), "resize-224", "centre-224", "normalise-imagenet"]
    log.info("images are prepared for %s by: %s", name, " ".join(words))
    return Augment.parse(words)


def backbone(
    name: str,
    source: Source,
    *,
    prepare: Augment = UNCHANGED,
    weights: str | None = None,
    allow_import: bool = True,
) -> nn.Module:
    """A network by name, with its library's pretrained weights unless others are passed. `allow_import` as in
    `Registry.resolve`."""
    kind = name.partition(":")[0]
    if weights is None and ":" not in name:
        log.warning("the backbone %s is untrained, so its features are of little use; pass weights=FILE", name)
    weights = weights or PRETRAINED.get(kind)
    factory = network_factory(name, source, augment=prepare, weights=weights, allow_import=allow_import)
    with seeded(torch.device("cpu"), 0, "backbone"):  # a new head must not depend on the run
        return factory()


def extract(
    source: Source,
    network: nn.Module,
    *,
    prepare: Augment = UNCHANGED,
    name: str | None = None,
    cache: Path | str | None = None,
    batch_size: int = 128,
    device: str | torch.device = "auto",
    progress: bool = True,
) -> Source:
    """Replace the inputs of a source by features, the inputs of the network's head.

    Args:
        source: the samples.
        network: the backbone; its weights are not changed.
        prepare: how its inputs are prepared; random steps are not allowed.
        name: what to call the backbone in messages and in the cache.
        cache: the cache's folder; `cache_folder()` by default.
        batch_size: samples per forward pass.
        device: where the backbone runs; "auto" for the GPU if there is one.
        progress: whether to show a progress bar.

    Returns:
        A source whose inputs have the shape (samples, features).
    """
    title = name or type(network).__name__
    head, layer = find_head(network)
    folder = (cache_folder() if cache is None else Path(cache)) / "features"
    path = folder / f"{_file_name(title)}-{_key(source, network, head, prepare, title)}.npy"
    features = _cached(path, len(source))
    if features is None:
        folder.mkdir(parents=True, exist_ok=True)
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        _compute(source, network, layer, prepare, path, batch_size, torch.device(device), title, progress)
        features = _cached(path, len(source))
        assert features is not None
    else:
        log.info("using cached features of %d samples by %s: %s", len(source), title, path)
    if callable(getattr(source.store, "path", None)):
        return replace(source, store=FilesFeatures(features, source.store))
    return replace(source, store=TensorStore(features), shown=source.store if source.shown is None else source.shown)


class FilesFeatures(TensorStore):
    """Features of files, with the paths of the files."""

    def __init__(self, features: Tensor, files: Any) -> None:
        super().__init__(features)
        self.files = files

    def at(self, positions: np.ndarray[Any, Any]) -> FilesFeatures:
        """The features at these positions."""
        return FilesFeatures(self.tensors[torch.from_numpy(positions)], self.files.at(positions))

    def path(self, position: int) -> Path:
        """Where the file of a row of features is."""
        path: Path = self.files.path(position)
        return path


def _compute(
    source: Source,
    network: nn.Module,
    layer: nn.Module,
    prepare: Augment,
    path: Path,
    batch_size: int,
    device: torch.device,
    title: str,
    progress: bool,
) -> None:
    """Write the features to a temporary file and rename it at the end, so that a file of this name is complete."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    network.to(device)
    rows: np.ndarray[Any, Any] | None = None
    done = 0
    try:
        title = f"features ({title})"
        with progress_bar(title, len(source), progress) as bar, evaluating(network), recorded_inputs(layer) as recorded:
            for inputs in source.store.batches(torch.arange(len(source)).split(batch_size)):
                call(network, map_inputs(lambda tensor: tensor.to(device), prepare.measuring(inputs)))
                features = recorded[0].flatten(1).float().cpu().numpy()
                if rows is None:
                    shape = (len(source), features.shape[1])
                    rows = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=shape)
                rows[done : done + len(features)] = features
                done += len(features)
                bar.advance(len(features))
        assert isinstance(rows, np.memmap)
        rows.flush()
        temporary.replace(path)
    except OSError as error:
        if error.errno is None:
            raise
        hint = "free some space, or name another folder in MSLG_CACHE"
        raise OSError(error.errno, f"could not write {path} ({error.strerror}); {hint}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _cached(path: Path, samples: int) -> Tensor | None:
    """Cached features, memory-mapped rather than read."""
    try:
        rows = np.load(path, mmap_mode="c", allow_pickle=False)
    except FileNotFoundError:
        return None
    except (ValueError, EOFError, OSError) as error:
        log.warning("%s is damaged (%s) and is computed again", path, error)
        return None
    return torch.from_numpy(rows) if len(rows) == samples else None


def _key(source: Source, network: nn.Module, head: str, prepare: Augment, title: str) -> str:
    """A hash of everything that the features depend on, which does not include labels."""
    digest = hashlib.blake2b(digest_size=12)
    parts = [title, weights_hash(network, without=head), *map(str, prepare.identity()), str(len(source))]
    digest.update("\0".join(parts).encode())
    for content in _content(source):
        digest.update(content)
    return digest.hexdigest()


def _content(source: Source) -> Iterator[bytes]:
    """Bytes that change with the inputs: all of them if they are in memory, otherwise sizes and times of files."""
    if isinstance(source.store, TensorStore):
        for tensor in leaves(source.store.tensors):
            yield f"{tuple(tensor.shape)} {tensor.dtype}".encode()
            for rows in tensor.split(4096):
                yield rows.contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return
    yield "\0".join(source.ids).encode()
    if callable(path := getattr(source.store, "path", None)):
        for position in range(len(source)):
            status = Path(path(position)).stat()
            yield f"{status.st_size} {status.st_mtime_ns}".encode()
    probes = torch.linspace(0, len(source) - 1, min(PROBES, len(source))).long()
    for inputs in source.store.batches([probes]):
        for tensor in leaves(inputs):
            yield tensor.contiguous().numpy().tobytes()


def _file_name(title: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", title)[:60]


class _Bar(Protocol):
    def advance(self, samples: int) -> None: ...


class _Lines:
    """A log line per fifth of the samples, for files and pipes."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.done = title, total, 0

    def advance(self, samples: int) -> None:
        before, self.done = self.done, self.done + samples
        if 5 * before // self.total < 5 * self.done // self.total:
            log.info("%s: %d of %d samples", self.title, self.done, self.total)


class _Rich:
    def __init__(self, bar: Any, task: Any) -> None:
        self.bar, self.task = bar, task

    def advance(self, samples: int) -> None:
        self.bar.update(self.task, advance=samples)


@contextmanager
def progress_bar(title: str, total: int, shown: bool) -> Iterator[_Bar]:
    """Shows how many of the samples are done: a bar on a terminal, lines elsewhere."""
    if not shown or not sys.stderr.isatty():
        yield _Lines(title, total)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        yield _Rich(bar, bar.add_task(title, total=total))
