"""Out-of-sample predictions of students distilled from teachers, by cross-fitting."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.batch import Inputs, call, leaves, map_inputs
from ..runtime.files import locked, write_atomically
from ..runtime.seeds import numpy_generator, seeded
from .read_arrays import Array

FORMAT = 1
log = logging.getLogger("mslg")

Loss = Callable[[Tensor, Tensor], Tensor]  # logits and indices of a batch → its loss


@dataclass(frozen=True)
class Distillation:
    """How teachers and students are trained.

    The student's loss is hard_share·CE(label) + (1 − hard_share)·τ²·CE(teacher at τ, student at τ) with temperature τ;
    the factor τ² keeps the gradient of the second part from vanishing for large τ.
    """

    folds: int = 2
    epochs: int = 15
    batch_size: int = 128
    learning_rate: float = 1e-3
    temperature: float = 16.0
    hard_share: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        problems = []
        if self.folds < 2:
            problems.append(f"folds={self.folds}: at least 2, so that each sample has a student that did not see it")
        if self.epochs < 1 or self.batch_size < 2:
            problems.append(f"epochs={self.epochs}, batch_size={self.batch_size}: at least 1 and 2")
        if self.learning_rate <= 0 or self.temperature <= 0:
            problems.append(f"learning_rate={self.learning_rate}, temperature={self.temperature}: above 0")
        if not 0 <= self.hard_share <= 1:
            problems.append(f"hard_share={self.hard_share}: a share between 0 and 1")
        if problems:
            raise ValueError("students cannot be trained with " + "; ".join(problems))


def cached_probabilities(
    path: str | Path | None,
    settings: Distillation,
    network: Callable[[], nn.Module],
    inputs: Inputs,
    label: Tensor,
    classes: int,
    device: torch.device,
) -> Array:
    """(samples, classes) probabilities of students, from the file if it exists, otherwise trained and written to it. Of
    several processes that need the same file, one trains and the others wait."""
    inputs = map_inputs(torch.as_tensor, inputs if not isinstance(inputs, np.ndarray) else torch.as_tensor(inputs))
    if any(len(part) != len(label) for part in leaves(inputs)):
        lengths = sorted({len(part) for part in leaves(inputs)})
        raise ValueError(f"there are {lengths} inputs for {len(label)} labels; pass one per sample, in the same order")
    if path is None:
        return cross_fit(settings, network, inputs, label, classes, device)
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"the cache {path} must be an .npz file")
    with seeded(device, settings.seed, "look"):  # must not use the global random state
        layers = str(network())
    about = json.dumps(
        {"format_version": FORMAT, **asdict(settings), "data": _fingerprint(inputs, label), "network": layers}
    )
    if path.exists():
        return _read(path, about)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path):
        if path.exists():
            return _read(path, about)
        probabilities = cross_fit(settings, network, inputs, label, classes, device)
        content = io.BytesIO()
        np.savez_compressed(content, probabilities=probabilities, label=label.numpy(), about=np.array(about))
        write_atomically(path, content.getvalue())
    return probabilities


def _read(path: Path, about: str) -> Array:
    try:
        with np.load(path, allow_pickle=False) as file:
            recorded, probabilities = json.loads(str(file["about"])), file["probabilities"]
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(f"{path} is not a cache of student probabilities ({error}); use another file") from error
    wanted = json.loads(about)
    other = [key for key in wanted if recorded.get(key) != wanted[key]]
    if other:
        raise ValueError(
            f"{path} was made with other values of {', '.join(other)}; delete it to train again, or use another file"
        )
    log.info("student probabilities from %s", path)
    checked: Array = probabilities
    return checked


def cross_fit(
    settings: Distillation,
    network: Callable[[], nn.Module],
    inputs: Inputs,
    label: Tensor,
    classes: int,
    device: torch.device,
) -> Array:
    """(samples, classes) probabilities, each row from a student that, like its teacher, was trained on other folds."""
    fold = _folds(label, settings)
    probabilities = torch.zeros(len(label), classes, dtype=torch.float64)
    for number in range(settings.folds):
        inside, outside = (
            torch.as_tensor(fold != number).nonzero()[:, 0],
            torch.as_tensor(fold == number).nonzero()[:, 0],
        )
        labels = label.to(device)
        teacher = _train(
            "teacher",
            network,
            settings,
            number,
            inputs,
            inside,
            device,
            lambda logits, index: F.cross_entropy(logits, labels[index]),  # noqa: B023
        )
        targets = torch.zeros(len(label), classes, device=device)
        targets[inside.to(device)] = (_logits(teacher, inputs, inside, device) / settings.temperature).softmax(1)
        student = _train(
            "student", network, settings, number, inputs, inside, device, _distillation_loss(settings, labels, targets)
        )
        right = _logits(student, inputs, outside, device).cpu().double()
        probabilities[outside] = right.softmax(1)
        accuracy = float((right.argmax(1) == label[outside]).double().mean())
        log.info("student %d of %d is right on %.1f %% of its fold", number + 1, settings.folds, 100 * accuracy)
    known: Array = probabilities.numpy()
    return known


def _folds(label: Tensor, settings: Distillation) -> Array:
    """The fold of each sample; every class is spread evenly."""
    generator = numpy_generator(settings.seed, "folds")
    fold = np.empty(len(label), dtype=np.int64)
    # Counted over all classes, so that classes of a single sample are not all in the first fold.
    order = np.concatenate(
        [generator.permutation(np.flatnonzero(label.numpy() == own)) for own in label.unique().numpy()]
    )
    fold[order] = np.arange(len(order)) % settings.folds
    if len(label) < 2 * settings.folds:
        raise ValueError(
            f"{len(label)} samples are too few for {settings.folds} folds; lower folds or pass probabilities"
        )
    return fold


def _distillation_loss(settings: Distillation, label: Tensor, targets: Tensor) -> Loss:
    def loss(logits: Tensor, index: Tensor) -> Tensor:
        hard = F.cross_entropy(logits, label[index])
        soft = F.cross_entropy(logits / settings.temperature, targets[index])
        return settings.hard_share * hard + (1 - settings.hard_share) * settings.temperature**2 * soft

    return loss


def _train(
    role: str,
    network: Callable[[], nn.Module],
    settings: Distillation,
    fold: int,
    inputs: Inputs,
    members: Tensor,
    device: torch.device,
    loss: Loss,
) -> nn.Module:
    with seeded(device, settings.seed, role, fold):
        model = network().to(device).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
        for epoch in range(settings.epochs):
            order = numpy_generator(settings.seed, role, fold, epoch).permutation(len(members))
            for part in _batches(members[torch.as_tensor(order)], settings.batch_size):
                index = part.to(device)
                optimizer.zero_grad(set_to_none=True)
                value = loss(call(model, _select(inputs, part, device)), index)
                value.backward()
                optimizer.step()
            log.debug("%s of fold %d, epoch %d: loss %.4f", role, fold, epoch, float(value.detach()))
    return model.eval()


def _batches(members: Tensor, size: int) -> Iterator[Tensor]:
    # Batch norm cannot train on a single sample.
    yield from (part for part in members.split(size) if len(part) > 1)


@torch.no_grad()
def _logits(model: nn.Module, inputs: Inputs, members: Tensor, device: torch.device) -> Tensor:
    return torch.cat([call(model, _select(inputs, part, device)) for part in members.split(512)])


def _select(inputs: Inputs, index: Tensor, device: torch.device) -> Any:
    return map_inputs(lambda tensor: tensor[index].to(device), inputs)


def _fingerprint(inputs: Inputs, label: Tensor) -> str:
    digest = hashlib.sha256(label.numpy().tobytes())
    for part in leaves(inputs):
        digest.update(part.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
