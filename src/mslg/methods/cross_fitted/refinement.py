"""Late in stage 3 the soft labels follow the deployed network: it has learned from all labels together, and mixup keeps
it from memorising any of them, so the running mean of its predictions corrects more labels. A network that learns from
its own predictions becomes ever more, or ever less, certain; the posterior, which clean samples have calibrated, says
how certain the labels may be on average. There is haste where the posterior doubts many labels: then own predictions
count earlier, and may be more certain."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from ...data.batch import Batch, call
from ...data.sample_table import pieces_of
from ...networks.evaluating import evaluating
from ...runtime.distributed import averaged
from ...training.losses import entropy
from ...training.method import Task

START, FULL = (0.2, 0.05), (0.6, 0.25)  # parts of stage 3 from which own predictions count, and fully; in haste
SHARPER = 0.3  # in haste, the fraction of the labels' entropy that goes: own predictions are right more often than they
DOUBT = (0.02, 0.1)  # mean doubt of the posterior from which on there is haste, and as much as there can be
# How often the network agrees with the labels, over what they expect of their own most probable class: where own
# predictions begin to count, and where they do fully. A CNN on pixels has 0.5 to 0.84 in 20 epochs and predicts worse
# than its labels are (test accuracy 46.7 % with its predictions, 49.0 % without); on features it soon has 0.9.
AGREEMENT = (0.85, 0.92)
STEPS = 300  # of stage 3, from which on there may be: a network of few steps knows little
KEPT = 0.7  # of the running mean of predictions, per epoch
MANY = 0.2  # fraction of wrong labels from which on own predictions count fully: where fewer are, there is less to gain
SAMPLES = 5000  # that the exponent is fitted on, about
EXPONENTS = torch.logspace(-2, 3, 41, base=2.0, dtype=torch.float64)  # 1/4 to 8
LEAST = 1e-8


class OwnPredictions(nn.Module):
    """The running mean of the deployed network's predictions of each sample, and the labels that follow from it.

    most   their weight from FULL on, where at least MANY of the labels are wrong
    """

    def __init__(self, task: Task, most: float) -> None:
        super().__init__()
        self.most, self.samples, self.classes = most, len(task.given), task.classes
        self.table = task.new_sample_table("own", task.classes, dtype=torch.float16)
        # Of this epoch: their weight, and the exponent that restores the labels' confidence.
        self.register_buffer("now", torch.tensor([0.0, 1.0], device=task.device))

    now: Tensor

    def ask(self, network: nn.Module, batch: Batch, shift: Tensor) -> None:
        """Add what the network predicts for a batch now, its logits shifted, to the running mean."""
        with evaluating(network):
            self.remember(batch.index, (call(network, batch.inputs).float() + shift).softmax(1))

    def remember(self, index: Tensor, probs: Tensor) -> None:
        """Add predictions to the running mean."""
        before = self.table[index].float()
        first = before.sum(1, keepdim=True) == 0
        self.table[index] = torch.where(first, probs, KEPT * before + (1 - KEPT) * probs).half()

    def begin_epoch(
        self, part: float, steps: int, own: Tensor, given: Tensor, soft_labels: Callable[[Tensor], Tensor]
    ) -> None:
        """How much predictions count in the epoch that begins at this part of stage 3, and with which exponent.

        Args:
            part: of stage 3, from 0 to 1.
            steps: of stage 3.
            own: the samples of this process.
            given: labels of all samples.
            soft_labels: those of some samples, before they are refined.
        """
        if weight_at(part, self.most, 1.0) == 0:
            return
        # By their index, so that several processes choose the samples that one process would.
        chosen = own[own % max(1, self.samples // SAMPLES) == 0]
        pieces = [(soft_labels(index), index) for index in pieces_of(chosen, self.classes)]
        doubt, wrong = doubted((soft, given[index]) for soft, index in pieces)
        haste = haste_of(doubt, steps)
        learned = ramp(agreement((soft, self.table[index]) for soft, index in pieces), AGREEMENT)
        weight = weight_at(part, self.most, haste) * needed(wrong) * learned
        exponent = 1.0
        if weight > 0:
            kept = 1 - SHARPER * haste * weight
            exponent = matching_exponent(((soft, self.table[index]) for soft, index in pieces), weight, kept)
        self.now.copy_(torch.tensor([weight, exponent]))

    def refined(self, index: Tensor, soft: Tensor) -> Tensor:
        """(n, classes) the labels to train on instead of these soft ones."""
        return refined(soft, self.table[index].float(), *self.now)


def haste_of(doubt: float, steps: int) -> float:
    """From 0 to 1: how early own predictions count, where the soft labels doubt themselves this much on average."""
    return ramp(doubt, DOUBT) * min(1.0, steps / STEPS)


def ramp(value: float, ends: tuple[float, float]) -> float:
    """From 0 at the first end to 1 at the second."""
    return min(1.0, max(0.0, (value - ends[0]) / (ends[1] - ends[0])))


def weight_at(part: float, most: float, haste: float) -> float:
    """The weight of own predictions at this part of stage 3."""
    start, full = (slow + haste * (early - slow) for slow, early in (START, FULL))
    return most * ramp(part, (start, full))


def needed(share: float) -> float:
    """How much of their weight own predictions have where this share of the given labels is wrong."""
    return min(1.0, share / MANY)


def doubted(pieces: Iterable[tuple[Tensor, Tensor]]) -> tuple[float, float]:
    """The mean probability that soft labels leave to classes other than their most probable one, and to classes other
    than the given one: the fraction of given labels that are wrong. `pieces` are (n, classes) soft labels and (n,)
    given ones of this process."""
    total = torch.zeros(3, dtype=torch.float64)
    for soft, given in pieces:
        of_given = soft.gather(1, given[:, None])
        total += torch.tensor([float((1 - each.double()).sum()) for each in (soft.amax(1), of_given)] + [len(given)])
    doubt, wrong, count = averaged([total])[0].tolist()
    return float(doubt / max(count, 1e-12)), float(wrong / max(count, 1e-12))


def agreement(pieces: Iterable[tuple[Tensor, Tensor]]) -> float:
    """The mean probability that soft labels give to the class predicted, over that of their own most probable class:
    low while a network has not learned its labels. `pieces` are soft labels and own predictions, of this process."""
    total = torch.zeros(2, dtype=torch.float64)
    for soft, own in pieces:
        predicted = own.sum(1) > 0  # samples that are not trained on are not
        soft, own = soft[predicted].double(), own[predicted]
        total += torch.stack([soft.gather(1, own.argmax(1, keepdim=True)).sum(), soft.amax(1).sum()]).cpu()
    of_predicted, most = averaged([total])[0].tolist()
    return float(of_predicted / max(most, 1e-12))


def refined(soft: Tensor, own: Tensor, weight: Tensor | float, exponent: Tensor | float) -> Tensor:
    """(n, classes) the weighted mean of soft labels and own predictions to the power of `exponent`, normalised; soft
    labels where nothing has been predicted yet."""
    mean = (1 - weight) * soft + weight * own
    return torch.where(own.sum(1, keepdim=True) > 0, (exponent * mean.clamp_min(LEAST).log()).softmax(1), soft)


def matching_exponent(pieces: Iterable[tuple[Tensor, Tensor]], weight: float, kept: float = 1.0) -> float:
    """The exponent at which labels refined with this weight have this fraction of the mean entropy of the soft labels.
    `pieces` are soft labels and own predictions, (n, classes) each, of this process."""
    held = [(soft.double().cpu(), own.double().cpu()) for soft, own in pieces]

    def mean_entropy(labels: Iterable[Tensor]) -> float:
        parts = [entropy(each.clamp_min(LEAST).log()).sum() for each in labels]
        return float(averaged([torch.stack(parts).sum() if parts else torch.zeros((), dtype=torch.float64)])[0])

    goal = kept * mean_entropy(soft for soft, _ in held)

    def low_enough(number: int) -> bool:
        return mean_entropy(refined(*each, weight, float(EXPONENTS[number])) for each in held) <= goal

    # The entropy falls as the exponent grows: the first that is low enough.
    first = bisect_left(range(len(EXPONENTS)), True, key=low_enough)
    return float(EXPONENTS[min(first, len(EXPONENTS) - 1)])
