"""Frozen features: a backbone encodes every sample once, and the method trains a small network on the result.

Features are cached on disk by content (backbone, its weights, the preparation of the images, each sample), so a killed
extraction continues where it was, and the next run on the same pictures, with any labels, names, method or seed, starts
at once. The folder is MSLG_CACHE, or ~/.cache/mslg.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ..data.augmentation import UNCHANGED, Augment
from ..data.batch import call, leaves, map_inputs
from ..data.image_stores import decoded_for, frame_of
from ..data.source import Source
from ..data.stores import TensorStore
from ..runtime.durations import in_words, range_in_words
from ..runtime.seeds import seeded
from ..runtime.threads import ThreadTrial
from ..runtime.time_left import TimeLeft
from .build import example_of, network_factory
from .evaluating import evaluating
from .feature_cache import DIGEST, Digests, FeatureCache
from .head import find_head, recorded_inputs
from .packaged import packaged_side
from .weights import weights_hash

log = logging.getLogger("mslg")

# Nobody means an untrained backbone of a library.
PRETRAINED = {"torchvision": "DEFAULT", "timm": "DEFAULT", "packaged": "DEFAULT"}
HASHED = 100_000  # files: in larger sets path, size and time stand for the content, as reading all of it takes hours
SAVED_EVERY = 5.0  # seconds of computing that a kill may cost
MEASURED = 4  # batches that the estimate of the time rests on
BRIEF = 10.0  # seconds that are not worth announcing
ON_CPU, ON_GPU = 16, 128  # samples per forward pass: on a CPU, activations should fit into its cache


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
    example = leaves(example_of(source))[0]
    words = ["rgb"] if example.shape[1] == 1 else []
    if name.startswith("packaged:"):
        side = packaged_side(min(example.shape[2:]))
        words += [f"resize-{side}", f"centre-{side}", "normalise-0.5"]
    else:
        words += ["resize-224", "centre-224", "normalise-imagenet"]
    log.debug("images are prepared for %s by: %s", name, " ".join(words))
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
    batch_size: int | None = None,
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
        batch_size: samples per forward pass; by default what suits the device.
        device: where the backbone runs; "auto" for the GPU if there is one.
        progress: whether to show a progress bar.

    Returns:
        A source whose inputs have the shape (samples, features).
    """
    title = name or type(network).__name__
    head, layer = find_head(network)
    files, source = source.store, _decoded_for(source, prepare)
    folder = (cache_folder() if cache is None else Path(cache)) / "features"
    kept = FeatureCache(folder / f"{_file_name(title)}-{_key(source, network, head, prepare, title)}.rows")
    digests = _digests(source)
    positions, rows = kept.find(digests)
    missing = _first_of_each(digests, np.flatnonzero(positions < 0))
    if len(missing):
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        size = batch_size or (ON_CPU if str(device) == "cpu" else ON_GPU)
        log.info("plan: encode %s samples with %s (once; the features are cached)", f"{len(missing):,}", title)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with progress_bar(f"features ({title})", len(source), progress, len(source) - len(missing)) as bar:
                _compute(source, network, layer, prepare, kept, missing, digests, size, torch.device(device), bar)
        except OSError as error:
            if error.errno is None:
                raise
            hint = "free some space, or name another folder in MSLG_CACHE"
            raise OSError(error.errno, f"could not write {kept.path} ({error.strerror}); {hint}") from error
        positions, rows = kept.find(digests)
    else:
        log.info("using the cached features of %d samples (%s): %s", len(source), title, kept.path)
    assert rows is not None
    features = torch.from_numpy(_at(rows, positions))
    if callable(getattr(files, "path", None)):
        return replace(source, store=FilesFeatures(features, files))
    return replace(source, store=TensorStore(features), shown=source.store if source.shown is None else source.shown)


def _decoded_for(source: Source, prepare: Augment) -> Source:
    """The source with image files decoded no larger than the preparation needs them."""
    first = next((word for word in prepare.words if word != "rgb"), "")
    side = re.fullmatch(r"resize-(\d+)", first)
    return source if side is None else replace(source, store=decoded_for(source.store, int(side[1])))


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
    cache: FeatureCache,
    positions: np.ndarray[Any, Any],
    digests: Digests,
    batch_size: int,
    device: torch.device,
    bar: _Bar,
) -> None:
    """Append the features at these positions to the cache, every few seconds and at the end."""
    # Images channel by channel in each pixel: a quarter faster on a CPU, with the same result but for rounding.
    network.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    waiting: list[np.ndarray[Any, Any]] = []
    done, saved, trial = 0, time.monotonic(), ThreadTrial(logging.DEBUG)
    measured: tuple[float, int] | None = None  # since when, and how many were done

    def save() -> None:
        rows = np.concatenate(waiting)
        cache.append(digests[positions[done - len(rows) : done]], rows)
        waiting.clear()

    try:
        with evaluating(network), recorded_inputs(layer) as recorded:
            for inputs in source.store.batches(torch.from_numpy(positions).split(batch_size)):
                with trial.timed() if device.type == "cpu" else nullcontext():
                    call(network, map_inputs(lambda tensor: _placed(tensor, device), prepare.measuring(inputs)))
                waiting.append(recorded[0].flatten(1).float().cpu().numpy())
                done += len(waiting[-1])
                bar.advance(len(waiting[-1]))
                if trial.decided and measured is None:
                    measured = time.monotonic(), done
                elif (
                    measured is not None and done - measured[1] == MEASURED * batch_size < len(positions) - measured[1]
                ):
                    left = (time.monotonic() - measured[0]) / (done - measured[1]) * (len(positions) - done)
                    if left > BRIEF:
                        log.info("plan: encoding takes %s", range_in_words(left / 1.5, 2 * left))
                if time.monotonic() - saved > SAVED_EVERY:
                    save()
                    saved = time.monotonic()
    finally:
        if waiting:
            save()


def _placed(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.to(device, memory_format=torch.channels_last if tensor.ndim == 4 else torch.preserve_format)


def _at(rows: np.ndarray[Any, Any], positions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The rows at these positions, still memory-mapped if they follow each other."""
    start = int(positions[0]) if len(positions) else 0
    if np.array_equal(positions, np.arange(start, start + len(positions))):
        return rows[start : start + len(positions)]
    chosen: np.ndarray[Any, Any] = rows[positions]
    return chosen


def _first_of_each(digests: Digests, positions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """These positions without those whose content has occurred before."""
    first: dict[bytes, int] = {}
    for position in positions.tolist():
        first.setdefault(bytes(digests[position]), position)
    return np.array(list(first.values()), dtype=np.int64)


def _key(source: Source, network: nn.Module, head: str, prepare: Augment, title: str) -> str:
    """A hash of everything that all features depend on: not labels, and not the samples."""
    digest = hashlib.blake2b(digest_size=12)
    parts = [title, weights_hash(network, without=head), *map(str, prepare.identity())]
    parts += [str(frame_of(source.store)), str(tuple(leaves(example_of(source))[0].shape[1:]))]
    digest.update("\0".join(parts).encode())
    return digest.hexdigest()


def _digests(source: Source) -> Digests:
    """(samples,) digests that change with the inputs: of the files if there are any, otherwise of the tensors."""
    found = np.zeros(len(source), dtype=f"V{DIGEST}")
    if callable(path := getattr(source.store, "path", None)):
        shown = TimeLeft("looking for cached features", len(source))
        for position in range(len(source)):
            found[position] = _of_file(Path(path(position)), whole=len(source) <= HASHED)
            shown.advance(1)
        return found
    done = 0
    for inputs in source.store.batches(torch.arange(len(source)).split(1024)):
        rows = [tensor.contiguous().flatten(1).numpy() for tensor in leaves(inputs)]
        for parts in zip(*rows, strict=True):
            digest = hashlib.blake2b(digest_size=DIGEST)
            for part in parts:
                digest.update(part.tobytes())
            found[done] = digest.digest()
            done += 1
    return found


def _of_file(path: Path, *, whole: bool) -> bytes:
    if whole:
        return hashlib.blake2b(path.read_bytes(), digest_size=DIGEST).digest()
    status = path.stat()
    parts = f"{path.resolve()}\0{status.st_size}\0{status.st_mtime_ns}"
    return hashlib.blake2b(parts.encode(), digest_size=DIGEST).digest()


def _file_name(title: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", title)[:60]


class _Bar(Protocol):
    def advance(self, samples: int) -> None: ...


class _Lines:
    """A log line per fifth of the samples, with the time left, for files and pipes."""

    def __init__(self, title: str, total: int, done: int) -> None:
        self.title, self.total, self.done = title, total, done
        self.first, self.begun = done, time.monotonic()

    def advance(self, samples: int) -> None:
        before, self.done = self.done, self.done + samples
        if 5 * before // self.total < 5 * self.done // self.total:
            left = (time.monotonic() - self.begun) / (self.done - self.first) * (self.total - self.done)
            words = f", about {in_words(left)} left" if self.done < self.total else ""
            log.info("%s: %d of %d samples%s", self.title, self.done, self.total, words)


class _Rich:
    def __init__(self, bar: Any, task: Any) -> None:
        self.bar, self.task = bar, task

    def advance(self, samples: int) -> None:
        self.bar.update(self.task, advance=samples)


@contextmanager
def progress_bar(title: str, total: int, shown: bool, done: int = 0) -> Iterator[_Bar]:
    """Shows how many of the samples are done: a bar on a terminal, lines elsewhere."""
    if done:
        log.info("%s: %d of %d samples are cached already", title, done, total)
    if not shown or not sys.stderr.isatty():
        yield _Lines(title, total, done)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:  # its columns include the time left
        yield _Rich(bar, bar.add_task(title, total=total, completed=done))
