"""Decoupled meta label purifier (Tu et al., 2023): labels learned through the closed-form head on frozen features.

    W(Y)   = (XᵀX + ridge·n·I)⁻¹ XᵀY                  the head that fits the labels Y best
    dL/dY  = X (XᵀX + ridge·n·I)⁻¹ Cᵀ (dL/dZ)         with L the loss of Z = C·W(Y) on clean features C

so the gradient of the clean loss to every label is exact, and needs no network. Intrinsic correction descends along it;
extrinsic correction trains a linear classifier on the corrected labels, whose predictions now and then replace them.
Then a new network is trained on the purified labels.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..data.batch import Batch, call
from ..data.sample_table import SampleTable, file_if_large, pieces_of
from ..data.samples import Samples
from ..data.splits import Splits
from ..networks.evaluating import evaluating
from ..networks.head import recorded_inputs
from ..runtime.distributed import averaged, ranks
from ..training.losses import soft_cross_entropy
from ..training.method import SingleNetwork, StepResult, Task
from ..training.schedules import Restarted

log = logging.getLogger("mslg")

BETAS = (0.5, 0.999)  # of Adam, for the labels and for the auxiliary classifier
TINY = 1e-8  # Adam's ε


class DMLP(SingleNetwork):
    """Warm-up, purification, and training on the purified labels in one run.

    warm_up            fraction of the run, or epochs if ≥ 1, trained on the given labels to learn features; 0 if the
                       network's body is already good, such as one pretrained without labels
    purify_steps       label updates, each over the whole training set
    label_rate         step of a label update: how far an entry of a label moves at most
    exchange_every     label updates between two exchanges of the labels for the auxiliary classifier's predictions
                       (the paper's T); 0 = no extrinsic correction
    auxiliary_rate     learning rate of the auxiliary classifier
    confidence_weight  of the auxiliary classifier's reward for undecided predictions
    ridge              of the closed-form head, relative to the variance of a feature
    hard               train on the most probable class of each purified label instead of on the label
    """

    needs = frozenset({"clean set"})
    advice = "a smaller label_rate or a larger ridge"

    given: Tensor

    def __init__(
        self,
        task: Task,
        *,
        warm_up: float = 1 / 6,
        purify_steps: int = 100,
        label_rate: float = 0.01,
        exchange_every: int = 20,
        auxiliary_rate: float = 0.03,
        confidence_weight: float = 0.4,
        ridge: float = 0.1,
        hard: bool = True,
    ) -> None:
        super().__init__(task)
        if purify_steps < 1:
            raise ValueError(f"purify_steps is {purify_steps}; at least 1 update purifies the labels")
        if exchange_every < 0:
            raise ValueError(f"exchange_every is {exchange_every}; it must be 0 (no exchange) or more")
        for name, value in {"label_rate": label_rate, "auxiliary_rate": auxiliary_rate, "ridge": ridge}.items():
            if value <= 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
        if confidence_weight < 0:
            raise ValueError(f"confidence_weight is {confidence_weight}; it must be 0 or more")
        self.purify_steps, self.label_rate, self.exchange_every = purify_steps, label_rate, exchange_every
        self.auxiliary_rate, self.confidence_weight = auxiliary_rate, confidence_weight
        self.ridge, self.hard = ridge, hard
        self.first_label_epoch = task.warm_up_epochs(warm_up, before="the purification of the labels")
        start = self.first_label_epoch / task.epochs
        self.schedule = Restarted(start, task.schedule, task.schedule) if start else task.schedule
        self.purified = False  # whether the table holds labels
        self.labels = task.new_sample_table("purified_labels", task.classes)
        self.register_buffer("given", task.given.to(task.device), persistent=False)

    def begin_epoch(self, epoch: int, data: Splits) -> None:
        if data.clean is None:
            raise ValueError(
                "dmlp needs clean samples and there are none; pass clean= (--clean): a set of verified samples, or a "
                "number of verified samples to take out of the data"
            )
        if epoch == self.first_label_epoch and not self.task.warm:
            self.purify(data)
            if epoch > 0:  # a network that has seen no given label needs no successor
                self.restart()

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        if not self.purified:
            return self.cross_entropy_step(batch)
        log_probs = self.log_probs(batch.inputs)
        soft = self.soft_labels(batch.index)
        target = _identity(soft)[soft.argmax(1)] if self.hard else soft
        loss = soft_cross_entropy(log_probs, target).mean()
        self.descend(self.optimizer, loss)
        changed = (soft.argmax(1) != batch.label).float().mean()
        return StepResult({"loss": loss, "labels/changed": changed}, log_probs)

    def soft_labels(self, index: Tensor) -> Tensor:
        rows = self.labels[index]
        if not self.purified:
            return _identity(rows)[self.given[index]]
        positive = rows.clamp_min(0) + torch.finfo(rows.dtype).tiny  # labels are learned without a constraint
        return positive / positive.sum(1, keepdim=True)

    # Purification

    def purify(self, data: Splits) -> None:
        """Learn the labels of all training samples on the features of the present network."""
        samples = data.unbiased_clean
        assert samples is not None
        features = FrozenFeatures(self._store_features(data), data.own().to(self.task.device))
        try:
            clean = features.standardised(self._clean_features(data, samples))
            for index in features.pieces():
                self.labels[index] = _identity(self.labels[index])[self.given[index]]
            purifier = LabelPurifier(
                features,
                self.labels,
                clean,
                samples.label.to(clean.device),
                ridge=self.ridge,
                label_rate=self.label_rate,
                auxiliary_rate=self.auxiliary_rate,
                confidence_weight=self.confidence_weight,
            )
            for number in range(self.purify_steps):
                if self.exchange_every and number and number % self.exchange_every == 0:
                    purifier.exchange()
                purifier.step()
            self.purified = True
            self._report(features)
        finally:
            features.delete()

    def _report(self, features: FrozenFeatures) -> None:
        changed = torch.zeros((), dtype=torch.float64, device=self.given.device)
        for index in features.pieces():
            changed += (self.labels[index].argmax(1) != self.given[index]).sum()
        share = float(summed([changed])[0]) / features.samples
        log.info("dmlp: purification changed %.1f %% of the labels", 100 * share)

    def _store_features(self, data: Splits) -> SampleTable:
        """A table of the inputs of the head for every training sample of this process. It is needed for the length of
        this call only, so it is no part of the checkpoint."""
        table: SampleTable | None = None
        head = self.task.head(self.network)
        with evaluating(self.network), recorded_inputs(head) as inputs:
            for batch in data.in_order():
                call(self.network, batch.inputs)
                rows = pooled(inputs[0])
                if table is None:
                    samples, width, kind = len(self.given), rows.shape[1], torch.float32
                    path = file_if_large(self.task.tables, "features", samples, width, kind)
                    table = SampleTable(samples, width, dtype=kind, device=self.task.device, path=path, journal=False)
                table[batch.index] = rows
        assert table is not None
        return table

    def _clean_features(self, data: Splits, samples: Samples) -> Tensor:
        """(clean samples, features) the inputs of the head; every process has all of them."""
        rows = []
        with evaluating(self.network), recorded_inputs(self.task.head(self.network)) as inputs:
            for batch in data.in_order(samples):
                call(self.network, batch.inputs)
                rows.append(pooled(inputs[0]).float())
        return torch.cat(rows)

    # State

    def extra(self) -> dict[str, Any]:
        return {"purified": self.purified}

    def restore_extra(self, extra: dict[str, Any]) -> None:
        self.purified = bool(extra["purified"])

    def continue_from(self, state: Mapping[str, Any]) -> None:
        if not state["_extra_state"]["extra"]["purified"]:
            raise ValueError("the earlier run ended before it had any labels, so it cannot be used as a warm start")
        super().continue_from(state)


class FrozenFeatures:
    """Features of the training samples, one (rows, 1 + features) piece at a time: each of mean 0 and variance 1 over
    the training set, after a column of ones for the bias. All arithmetic is in double precision: sums over millions of
    samples, and over processes, must not depend on their order."""

    def __init__(self, table: SampleTable, own: Tensor) -> None:
        self.table, self.own = table, own
        total, squares = (torch.zeros(table.columns[0], dtype=torch.float64, device=own.device) for _ in range(2))
        for index in self.pieces():
            rows = table[index].double()
            total, squares = total + rows.sum(0), squares + (rows**2).sum(0)
        count = torch.tensor(float(len(own)), dtype=torch.float64, device=total.device)
        count, total, squares = summed([count, total, squares])
        self.samples = int(count)
        self.mean = total / count
        deviation = (squares / count - self.mean**2).clamp_min(0).sqrt()
        # A feature that never varies, such as a dead unit, is nothing but rounding errors once divided by them.
        varies = deviation > 1e-6 * self.mean.abs().clamp_min(1e-6)
        self.scale = torch.where(varies, 1 / deviation.clamp_min(TINY * TINY), torch.zeros_like(deviation))

    def pieces(self) -> list[Tensor]:
        """The index of the samples of this process, in chunks."""
        return pieces_of(self.own, self.table.columns[0])

    def __getitem__(self, index: Tensor) -> Tensor:
        return self.standardised(self.table[index])

    def standardised(self, rows: Tensor) -> Tensor:
        """(n, 1 + features) in double precision, the first column all ones."""
        rows = (rows.double() - self.mean) * self.scale
        return torch.cat([torch.ones_like(rows[:, :1]), rows], 1)

    def delete(self) -> None:
        """Remove the table's file, if there is one."""
        if (file := self.table.file) is not None:
            file.delete()


class LabelPurifier:
    """Both corrections of a table of labels, each step one pass over the training set.

    Attributes:
        weight: (1 + features, classes) of the auxiliary classifier.
        moment: (1 + features, classes) XᵀY of the present labels.
    """

    def __init__(
        self,
        features: FrozenFeatures,
        labels: SampleTable,
        clean: Tensor,
        clean_label: Tensor,
        *,
        ridge: float,
        label_rate: float,
        auxiliary_rate: float,
        confidence_weight: float,
    ) -> None:
        self.features, self.labels = features, labels
        self.clean, self.target = clean, torch.eye(labels.columns[0], dtype=clean.dtype, device=clean.device)
        self.target = self.target[clean_label]
        self.label_rate, self.confidence_weight = label_rate, confidence_weight
        width, classes = clean.shape[1], labels.columns[0]
        self.moment, self.direction, self.weight = (clean.new_zeros(width, classes) for _ in range(3))
        self.auxiliary = torch.optim.Adam([self.weight], auxiliary_rate, betas=BETAS)
        self.squares = SampleTable(labels.samples, classes, device=clean.device)  # Adam's second moment of the labels
        self.steps = 0
        gram = clean.new_zeros(width, width)
        for index in features.pieces():
            rows = features[index]
            gram += rows.T @ rows
            self.moment += rows.T @ labels[index].double()
        gram, self.moment = summed([gram, self.moment])
        self.factor = torch.linalg.cholesky(gram + ridge * features.samples * torch.eye(width).to(gram))

    def step(self) -> None:
        """Move all labels against the gradient of the clean loss (Adam), and the auxiliary classifier towards them."""
        self.steps += 1
        # Times the number of samples, so that the gradient of a label does not shrink with the size of the data.
        fresh = self.features.samples * label_gradient_factor(self.factor, self.moment, self.clean, self.target)
        # The gradient is linear in the features, and so is its running mean: Adam's first moment needs no table.
        self.direction = BETAS[0] * self.direction + (1 - BETAS[0]) * fresh
        mean_scale, square_scale = (1 - beta**self.steps for beta in BETAS)
        moment, gradient = torch.zeros_like(self.moment), torch.zeros_like(self.weight)
        for index in self.features.pieces():
            rows = self.features[index]
            squares = BETAS[1] * self.squares[index].double() + (1 - BETAS[1]) * (rows @ fresh) ** 2
            self.squares[index] = squares
            move = (rows @ self.direction / mean_scale) / ((squares / square_scale).sqrt() + TINY)
            self.labels[index] = self.labels[index].double() - self.label_rate * move
            label = self.labels[index].double()
            moment += rows.T @ label
            target = _identity(label)[label.argmax(1)]
            gradient += rows.T @ auxiliary_gradient(rows @ self.weight, target, self.confidence_weight)
        self.moment, gradient = summed([moment, gradient])
        self.weight.grad = gradient / self.features.samples
        self.auxiliary.step()

    def exchange(self) -> None:
        """Replace all labels by the predictions of the auxiliary classifier."""
        moment = torch.zeros_like(self.moment)
        for index in self.features.pieces():
            rows = self.features[index]
            self.labels[index] = (rows @ self.weight).softmax(1)
            moment += rows.T @ self.labels[index].double()
        (self.moment,) = summed([moment])


def label_gradient_factor(factor: Tensor, moment: Tensor, clean: Tensor, target: Tensor) -> Tensor:
    """(features, classes) D with dL/dY = X·D, for the clean loss L of the head that `moment` = XᵀY makes.

    Args:
        factor: Cholesky factor of XᵀX + ridge.
        moment: XᵀY.
        clean: (n, features) of the clean samples.
        target: (n, classes) their labels, one-hot.
    """
    logits = clean @ torch.cholesky_solve(moment, factor)
    return torch.cholesky_solve(clean.T @ clean_loss_gradient(logits, target), factor)


def clean_loss_gradient(logits: Tensor, target: Tensor) -> Tensor:
    """The gradient, by the logits, of mean cross entropy plus the sum of squared errors, as in the original."""
    return (logits.softmax(1) - target) / len(logits) + 2 * (logits - target)


def auxiliary_gradient(logits: Tensor, target: Tensor, confidence_weight: float) -> Tensor:
    """The gradient, by the logits, of the sum of cross entropy − confidence_weight · entropy of the prediction."""
    log_probs = logits.log_softmax(1)
    probs = log_probs.exp()
    spread = log_probs - (probs * log_probs).sum(1, keepdim=True)
    return probs - target + confidence_weight * probs * spread


def pooled(features: Tensor) -> Tensor:
    """(batch, features): of a head that is called on every position of a sequence, the mean over positions."""
    return features if features.dim() == 2 else features.flatten(1, -2).mean(1)


def summed(tensors: list[Tensor]) -> list[Tensor]:
    """The sum over the processes of each of these tensors."""
    return [tensor * ranks() for tensor in averaged(tensors)]


def _identity(like: Tensor) -> Tensor:
    """(classes, classes) rows are one-hot labels: a look-up does not wait for the device, as one_hot does."""
    return torch.eye(like.shape[1], dtype=like.dtype, device=like.device)
