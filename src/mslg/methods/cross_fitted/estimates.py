"""What the clean samples and the predictions out of fold say about the noise: transition matrix, class shares, and how
much each prediction counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...data.sample_table import SampleTable, pieces_of
from ...data.samples import Samples
from ...data.splits import Splits, is_in
from ...noise.transition_matrix import count, pool, smooth, smoothed_by_best_prior
from ...runtime.distributed import averaged, gathered, ranks
from ...training.losses import cross_entropy
from ...training.stacking import fit_weights, floored

EM_STEPS, EM_CHANGE = 30, 1e-4  # at most; of any entry of the matrix, where it ends
HELD = 2**24  # predictions kept in double precision while a matrix is fitted to them; more are read again each time
COUNTS = 4.0  # noisy samples that a clean one counts as much as
RIDGE = 3.0  # of the weights: with less, those of 100 clean samples follow chance
FIXED = 1e5  # the same, where weights are not to be fitted


class CleanPredictions(NamedTuple):
    """Predictions of clean samples by networks, or regressions, that have not seen them."""

    log_probs: Tensor = torch.empty(0)  # (n, classes) all sources together
    classes: Tensor = torch.empty(3, 0, dtype=torch.int64)  # (controls, n) predicted by a source trained as each
    sample: Tensor = torch.empty(0, dtype=torch.int64)  # (n,) the index of these

    def of(self, clean: Samples) -> Tensor | None:
        """(n, classes) the predictions of these samples; None if any is missing."""
        place = self.place(clean)
        return None if place is None else self.log_probs[place]

    def of_controls(self, clean: Samples, names: Sequence[str]) -> dict[str, Tensor]:
        """(n,) the classes predicted as each of these controls would."""
        place = self.place(clean)
        return {} if place is None else {name: row[place] for name, row in zip(names, self.classes, strict=True)}

    def place(self, clean: Samples) -> Tensor | None:
        """Where the predictions of these samples are; None if any is missing, as after a change of the set."""
        if not len(self.sample):
            return None
        place = torch.full((int(max(self.sample.max(), clean.index.max())) + 1,), -1)
        place[self.sample] = torch.arange(len(self.sample))
        found = place[clean.index]
        return None if bool((found < 0).any()) else found


def check_clean_set(data: Splits, *, auto: bool) -> None:
    """Raise unless there is a clean set, or none where samples are to be chosen instead."""
    if data.clean is None and not auto:
        raise ValueError(
            "cross-fitted needs clean samples and there are none; pass clean= (--clean): a set of verified samples, a "
            'number of verified samples to take out of the data, or "auto"'
        )
    if data.clean is not None and auto:
        raise ValueError("auto_clean is for runs without a clean set, and there is one; leave one of the two out")


def counted(data: Splits) -> float:
    """The weight of the clean samples' mean loss beside that of the noisy ones, from 0 to 1: a clean sample counts as
    much as COUNTS noisy ones. With more, a network that sees few of them again and again learns them by heart."""
    return 1.0 if data.clean is None else min(1.0, COUNTS * len(data.clean) / len(data.train))


def class_shares(label: Tensor, classes: int) -> Tensor:
    """(classes,) shares of labels, one more of each: none is impossible."""
    return (torch.bincount(label, minlength=classes).double() + 1) / (len(label) + classes)


def evidence_of_shift(clean: Tensor, noisy: Tensor) -> float:
    """How much of the difference between the class shares of clean and noisy samples chance does not explain, from 0 to
    1: the estimate of James and Stein. Predictions by networks that have seen neither have the same mean on both,
    however wrong they are, unless the shares differ; given labels have not, where noise prefers some classes.

    Args:
        clean: (n, classes) predicted probabilities of the clean samples.
        noisy: (classes,) the mean of those of the noisy ones.
    """
    variance = noisy * (1 - noisy) / len(clean)  # at most: of predictions that are certain
    distance = float(((clean.mean(0) - noisy) ** 2 / variance.clamp_min(1e-12)).sum())
    return max(0.0, 1 - (len(noisy) - 1) / max(distance, 1e-12))


def expectation_maximisation(
    pieces: Callable[[], Iterable[tuple[Tensor, Tensor]]],
    transition: Tensor,
    clean_shares: Tensor,
    shifted: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The transition matrix under which the given labels are most likely, and the class shares under which the
    predictions are: shares fitted to the given labels too would follow noise that depends on the inputs.

    Args:
        pieces: the given labels of this rank's samples and their predicted probabilities, piece by piece; it is quick
            where those of a label come one after the other.
        transition: (classes, classes) to start from.
        clean_shares: (classes,) under which the predictions were made.
        shifted: how much of another share is believed, from 0 to 1.
    """
    classes = len(clean_shares)
    shares = from_inputs = clean_shares
    for _ in range(EM_STEPS):
        joint, counts = (torch.zeros(*shape, dtype=torch.float64) for shape in ((classes, classes), (classes,)))
        prior, from_prior = (shares / clean_shares) ** shifted, from_inputs / clean_shares  # over those predicted under
        for given, probs in pieces():
            # By matrix products over samples of one given label, without the posterior of each: a third of the time.
            labels, sizes = given.unique_consecutive(return_counts=True)
            for label, part in zip(labels.tolist(), probs.split(sizes.tolist()), strict=True):
                joint[:, label] += (1 / (part @ (prior * transition[:, label]))) @ part
            counts += (1 / (probs @ from_prior)) @ probs
        joint, counts = joint * prior[:, None] * transition, counts * from_prior  # (true, given)
        joint, counts = (total * ranks() for total in averaged([joint, counts]))
        shares, from_inputs = ((each + 1) / (each.sum() + classes) for each in (joint.sum(1), counts))
        before, transition = transition, (joint + pool(joint)) / (joint.sum(1, keepdim=True) + 1)
        if float((transition - before).abs().max()) < EM_CHANGE:
            break
    return transition, from_inputs


def estimated_noise(
    pieces: Callable[[], Iterable[tuple[Tensor, Tensor]]], start: Tensor, samples: Samples, clean: Tensor
) -> tuple[Tensor, Tensor]:
    """The transition matrix, and (classes,) the logarithm of the noisy samples' class shares over the clean ones'.

    Args:
        pieces: as above.
        start: (classes, classes) where expectation maximisation starts.
        samples: the clean samples.
        clean: (n, classes) predicted probabilities of these.
    """
    shares = class_shares(samples.label, len(start))
    total = sum((probs.sum(0) for _, probs in pieces()), torch.zeros(len(start), dtype=torch.float64))
    total = averaged([total])[0]
    shifted = evidence_of_shift(clean, total / total.sum())
    matrix, found = expectation_maximisation(pieces, start, shares, shifted)
    if (pairs := samples.pairs()) is not None and samples.tell_of_all(len(start)):
        matrix = smoothed_by_best_prior(*pairs, len(start), matrix)[0]
    return matrix, shifted * (found / shares).log()


def noise_from_tables(
    tables: Sequence[SampleTable],
    clean: Tensor,
    samples: Samples,
    given: Tensor,
    own: Tensor,
    start: Tensor,
) -> tuple[Tensor, Tensor]:
    """The transition matrix and class shares, as above, from several predictions weighed by clean samples.

    Args:
        tables: log-probabilities of training samples, one table per kind of prediction.
        clean: (tables, n, classes) those of the clean samples.
        samples: the clean samples.
        given: labels of all samples of the source.
        own: the index of the training samples of this process.
        start: (classes, classes) where expectation maximisation starts.
    """
    weights, clean = torch.ones(1, dtype=torch.float64), floored(clean)
    if len(tables) > 1:
        weights = fit_weights(clean, samples.label, centre=(1 / len(tables),) * len(tables))

    def combined(logs: Tensor) -> Tensor:
        return (weights[:, None, None] * logs).sum(0).softmax(1)

    def pieces() -> Iterable[tuple[Tensor, Tensor]]:
        for index in pieces_of(own, len(start)):
            index = index[given[index].cpu().argsort(stable=True)]
            yield given[index].cpu(), combined(torch.stack([table[index].cpu().double() for table in tables]))

    small = len(given) * len(start) <= HELD
    held = list(pieces()) if small else []
    return estimated_noise((lambda: held) if small else pieces, start, samples, combined(clean))


def first_matrix(samples: Samples, predicted: Tensor, classes: int) -> Tensor:
    """Where expectation maximisation starts: counted on samples with both labels; without enough of them, the mean
    prediction, by networks of given labels, for the clean samples of each class."""
    pairs = samples.pairs()
    if pairs is not None and samples.tell_of_all(classes):
        return smooth(count(*pairs, classes), None)
    expected = torch.zeros(classes, classes, dtype=torch.float64)
    return smooth(expected.index_add_(0, samples.label, predicted.double()), 0.0)


def stacked(
    logs: Tensor, samples: Samples, fold: Tensor, transition: Tensor, there: Sequence[bool] = (True,) * 4
) -> tuple[Tensor, Tensor, float]:
    """How much each prediction and the given label count, fitted on clean samples.

    Args:
        logs: (4, n, classes) logarithms of predictions of clean samples, the first `len(samples)` of which are fitted:
            by networks of given labels, of clean samples, of both through the transition matrix, and by regression.
        samples: these.
        fold: the fold of each of them.
        transition: (classes, classes).
        there: which of the four there are.

    Returns:
        (5,) weights, the last of the given label; (n, classes) combined log-probabilities, in which no clean sample
        that was fitted is weighed by its own label: the weights are those without its fold; and how many more of the
        samples with both labels have a right soft label than a right given one, as a fraction of these.
    """
    every = samples.has_every_class(len(transition))
    pull = RIDGE if every else FIXED  # samples that lack a class know nothing of what is predicted for it
    used = torch.tensor([every, every, True, True]).logical_and(torch.tensor(there)).float()
    logs = logs * used[:, None, None]
    centre = [*(used / used.sum()).tolist(), 1.0]  # before any evidence; one that is not used has no weight
    features = logs[:, : len(samples)]
    if (pairs := samples.pairs()) is not None:
        assert samples.given is not None
        columns = torch.zeros(1, *features.shape[1:], dtype=torch.float64)
        columns[0, samples.given >= 0] = smoothed_by_best_prior(*pairs, len(transition), transition)[1].log()
        features = torch.cat([features, columns])
    centre = centre[: len(features)]
    weights = torch.ones(5, dtype=torch.float64)
    weights[: len(features)] = fit_weights(features, samples.label, centre=centre, ridge=pull)
    combined, gain = (weights[:4, None, None] * logs).sum(0), 0.0
    for number in fold.unique().tolist():
        here, others = fold == number, fold != number
        own = fit_weights(features[:, others], samples.label[others], centre=centre, ridge=pull)
        combined[: len(samples)][here] = (own[:4, None, None] * features[:4, here]).sum(0)
    if samples.given is not None and pairs is not None:
        soft = (combined[: len(samples)] + weights[4] * columns[0]).argmax(1)[samples.given >= 0]
        gain = float(((soft == pairs[1]).double() - (pairs[0] == pairs[1]).double()).mean())
    return weights, combined.log_softmax(1), gain


def transition_rows(counts: Tensor) -> Tensor:
    """A transition matrix; the row of a class without samples is that of the identity."""
    total = counts.sum(1, keepdim=True)
    return torch.where(total > 0, counts / total.clamp_min(1e-12), torch.eye(len(counts), dtype=counts.dtype))


def chosen_as_clean(own: Tensor, given: Tensor, log_probs: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Without clean samples: this share of each class, those with the lowest losses out of fold, and what
    is predicted for them as the transition matrix. Takes the samples of this process, their given labels, and their
    (n, classes) log-probabilities."""
    classes = log_probs.shape[1]
    index, label, loss = (gathered(each) for each in (own, given, cross_entropy(log_probs, given)))
    chosen = lowest_losses(index, label, loss, share=share, classes=classes).cpu()
    here = is_in(own, chosen)
    expected = torch.zeros(classes, classes, dtype=torch.float64)
    expected.index_add_(0, given[here], log_probs[here].double().exp())
    return chosen, transition_rows(averaged([expected])[0])


def lowest_losses(index: Tensor, label: Tensor, loss: Tensor, *, share: float, classes: int) -> Tensor:
    """The index of the samples of each class with the lowest losses: this share of all, as many of every class."""
    number = max(1, round(share * len(index) / classes))
    members = [(label == each).nonzero().flatten() for each in range(classes)]
    return index[torch.cat([each[loss[each].argsort()[:number]] for each in members])].sort().values
