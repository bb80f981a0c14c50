"""Networks trained without a fold: each predicts the samples that it has not seen."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...data.batch import Batch, call, concat_inputs, map_inputs
from ...data.sample_table import SampleTable
from ...data.samples import Samples
from ...data.splits import Splits
from ...networks.evaluating import evaluating
from ...runtime.distributed import broadcast_object
from ...runtime.seeds import generator
from ...training.losses import cross_entropy
from ...training.method import SingleNetwork, Task
from ...training.schedules import cosine
from ...training.stacking import floored
from ..mslg.contest import calibrated_loss
from .outside_folds import OutsideFolds
from .ridge import Ridge, RidgeSamples

FINE_TUNE_RATE = 0.1  # of the learning rate
SAMPLES = 4000  # whose labels may have been memorised that are looked at, to twice as many


class FoldNetworks(SingleNetwork):
    """A method with groups of networks, one network per fold, beside the deployed one. A network is trained neither on
    the noisy nor on the clean samples of its fold.

    Attributes:
        fold: (samples,) the fold of each sample of the source.
        clean_fold: the fold of each clean sample, by its index.
        predicted: by the name of a group, (samples, classes) floored log-probabilities out of fold.
    """

    cross_fits = True

    def __init__(self, task: Task, folds: int) -> None:
        super().__init__(task)
        if folds < 2:
            raise ValueError(f"folds is {folds}; a sample is predicted by networks that have not seen it: 2 or more")
        self.folds = folds
        fold = stratified_folds(task.given, folds, task.seed)
        self.fold, self._host_fold = fold.to(task.device), fold.numpy()
        self.set_clean_folds(torch.empty(0, dtype=torch.int64))
        self.predicted = nn.ModuleDict()
        self.least: dict[str, float] = {}  # loss of the clean samples, by the name of a group, at its best

    def add_group(self, name: str) -> None:
        """Make the networks of a group, their optimizers, and the table of their predictions."""
        networks = nn.ModuleList(self.task.new_network().train() for _ in range(self.folds))
        self.add_module(f"{name}_networks", networks)
        self.add_module(f"{name}_best", copy.deepcopy(networks))
        self.least[name] = math.inf
        for fold, network in enumerate(networks):
            self.add_optimizer(f"{name} {fold}", network)
        self.add_table(name)

    def add_table(self, name: str) -> None:
        """Make the table of a source's predictions."""
        self.predicted[name] = self.task.new_sample_table(name, self.task.classes, dtype=torch.float16)

    def drop_group(self, name: str) -> None:
        """Forget the networks of a group; their predictions stay."""
        if hasattr(self, f"{name}_networks"):
            delattr(self, f"{name}_networks")
            delattr(self, f"{name}_best")
            for fold in range(self.folds):
                self.drop_optimizer(f"{name} {fold}")

    def assign_clean_folds(self, data: Splits) -> None:
        """Divide each part of the clean samples into folds. Held-out samples have a fold too, so that each is predicted
        as training samples are, by one network."""
        parts = [part for part in (data.clean, data.select, data.report) if part is not None]
        if not parts:  # training samples take the place of clean ones, and keep their folds
            self.set_clean_folds(self.fold)
            return
        fold = torch.zeros(max(int(part.index.max()) for part in parts) + 1, dtype=torch.int64)
        for part in parts:
            fold[part.index] = stratified_folds(part.label, self.folds, self.task.seed + 1)
        self.set_clean_folds(fold)

    def set_clean_folds(self, fold: Tensor) -> None:
        """Set the fold of each clean sample, by its index."""
        self.clean_fold, self._host_clean_fold = fold.to(self.task.device), fold.cpu().numpy()

    def group(self, name: str) -> nn.Module:
        """The networks of a group, in the order of their folds."""
        return self.get_submodule(f"{name}_networks")

    def keep_if_best(self, name: str, data: Splits) -> None:
        """Keep the networks of a group as they are now if they predict the clean samples, out of fold, better than ever
        before: trained for longer, they may memorise wrong labels."""
        samples = data.unbiased_clean
        if samples is not None and samples.tell_of_all(self.task.classes):
            loss = broadcast_object(calibrated_loss(self.predict_clean(name, data, samples), samples.label))
            if loss >= self.least[name]:
                return
            self.least[name] = loss
        # Otherwise nothing can be said, and the last is kept.
        self.get_submodule(f"{name}_best").load_state_dict(self.group(name).state_dict())

    def go_back_to_best(self, name: str) -> None:
        """Make the networks of a group what they were at their best."""
        self.group(name).load_state_dict(self.get_submodule(f"{name}_best").state_dict())

    def fit_folds(
        self,
        name: str,
        batch: Batch,
        losses: Callable[[Tensor, Tensor], Tensor],
        *,
        beside: Batch | None = None,
        clean_weight: float = 1.0,
    ) -> tuple[Tensor, Tensor]:
        """A step of each network on the samples outside its fold, and on clean ones beside them. `losses` are those of
        log-probabilities and labels, per sample.

        Returns:
            The mean loss, and the (batch, classes) log-probabilities by the networks that learn from a sample.
        """
        noisy = OutsideFolds(batch, self._host_fold, self.folds)
        clean = None if beside is None else OutsideFolds(beside, self._host_clean_fold, self.folds)
        logits = []
        for number, network in enumerate(self.group(name).children()):
            inputs = noisy.inputs(number)
            logits.append(call(network, inputs if clean is None else concat_inputs([inputs, clean.inputs(number)])))
        parts = [each.split([len(rows), len(each) - len(rows)]) for each, rows in zip(logits, noisy.rows, strict=True)]
        every = torch.cat([part[0] for part in parts]).log_softmax(1)
        loss = noisy.mean(losses(every, noisy.label))
        if clean is not None:
            verified = torch.cat([part[1] for part in parts]).log_softmax(1)
            loss = loss + clean_weight * clean.mean(cross_entropy(verified, clean.label))
        self.descend(self._optimizers_of(name), loss)
        return loss.detach() / self.folds, noisy.together(every.detach())

    def fit_clean_folds(self, name: str, clean: Batch, optimizers: list[Optimizer] | None = None) -> Tensor:
        """A step of each network on the clean samples outside its fold. Returns the mean loss."""
        outside = OutsideFolds(clean, self._host_clean_fold, self.folds)
        networks = enumerate(self.group(name).children())
        every = torch.cat([call(network, outside.inputs(number)) for number, network in networks]).log_softmax(1)
        loss = outside.mean(cross_entropy(every, outside.label))
        self.descend(self._optimizers_of(name) if optimizers is None else optimizers, loss)
        return loss.detach() / self.folds

    def fine_tune_folds(self, name: str, batches: Iterator[Batch], steps: int) -> None:
        """Train a group on clean samples, at a fraction of the learning rate that falls to zero."""
        networks = self.group(name).children()
        optimizers = [self.task.new_optimizer(network) for network in networks]
        rates = [[float(group["lr"]) for group in optimizer.param_groups] for optimizer in optimizers]
        for number in range(steps):
            factor = FINE_TUNE_RATE * cosine(number / steps)
            for optimizer, initial in zip(optimizers, rates, strict=True):
                for group, rate in zip(optimizer.param_groups, initial, strict=True):
                    group["lr"] = rate * factor
            self.fit_clean_folds(name, next(batches), optimizers)

    def _optimizers_of(self, name: str) -> list[Optimizer]:
        return [self._optimizers[f"{name} {fold}"] for fold in range(self.folds)]

    def table_of(self, name: str) -> SampleTable:
        table = self.predicted[name]
        assert isinstance(table, SampleTable)
        return table

    def predict_training(
        self, names: Sequence[str], data: Splits, also: Callable[[Batch], None] = lambda batch: None
    ) -> None:
        """Predict every training sample by the networks of its fold, reading it once for all groups and for whatever is
        `also` done with it; clean-only networks have seen none of them, so these predict together."""
        with evaluating(nn.ModuleDict({name: self.group(name) for name in names})):
            for batch in data.in_order():
                for name in names:
                    self._predict_batch(name, batch)
                also(batch)

    def _predict_batch(self, name: str, batch: Batch) -> None:
        networks, table = self.group(name), self.table_of(name)
        if name == "clean":
            every = torch.stack([call(network, batch.inputs).log_softmax(1) for network in networks.children()])
            table[batch.index] = floored(every.logsumexp(0) - math.log(self.folds))
            return
        fold = self.fold[batch.index]
        for number, network in enumerate(networks.children()):
            own = (fold == number).nonzero().flatten()
            if len(own):
                inputs = map_inputs(lambda tensor: tensor.index_select(0, own), batch.inputs)  # noqa: B023
                table[batch.index[own]] = floored(call(network, inputs).log_softmax(1))

    def predict_clean(self, name: str, data: Splits, samples: Samples, *, out_of_fold: bool = True) -> Tensor:
        """(n, classes) log-probabilities of clean samples: by the network of their fold, or the mean of all."""
        networks = self.group(name)
        parts = []
        with evaluating(networks):
            for batch in data.in_order(samples):
                every = torch.stack([call(network, batch.inputs).log_softmax(1) for network in networks.children()])
                fold = self.clean_fold[batch.index]
                own = every[fold, torch.arange(len(fold), device=every.device)]
                parts.append((own if out_of_fold else every.logsumexp(0) - math.log(self.folds)).double().cpu())
        # With several processes, batch-norm statistics differ between them; what is estimated from these must not.
        predicted: Tensor = broadcast_object(torch.cat(parts))
        return predicted

    def memorised(self, name: str, data: Splits) -> float:
        """Of the given labels that a group does not predict out of fold, the share that its other networks predict
        because they learned from them: 0 if they have memorised none, 1 if all."""
        networks, train = list(self.group(name).children()), data.train
        some = train.at(torch.arange(0, len(train.index), max(1, len(train.index) // SAMPLES)))
        right = torch.zeros(2, dtype=torch.float64)  # of those that have not seen a label, and of those that have
        with evaluating(self.group(name)):
            for batch in data.in_order(some):
                predicted = torch.stack([call(network, batch.inputs).argmax(1) for network in networks])
                fold, place = self.fold[batch.index], torch.arange(len(batch.index), device=batch.label.device)
                for number, which in enumerate((fold, (fold + 1) % self.folds)):
                    right[number] += (predicted[which, place] == batch.label).sum().cpu()
        unseen, seen = (right / len(some.index)).tolist()
        return float(broadcast_object((seen - unseen) / max(1 - unseen, 1 / len(some.index))))

    def predict_drawn(self, name: str, data: Splits) -> Tensor:
        """(n, classes) log-probabilities out of fold of the clean samples to estimate on, then of those held out."""
        return torch.cat([self.predict_clean(name, data, part) for part in data.drawn_parts])

    def predict_by(self, name: str, ridge: Ridge, rows: RidgeSamples, data: Splits) -> Tensor:
        """Predict training samples by a regression; they are not read again if all were fitted. Returns what
        `predict_drawn` does, by the regression."""
        read = ((batch.index, ridge.predict(batch.inputs, self.fold[batch.index])) for batch in data.in_order())
        for index, log_probs in rows.predicted() or read:
            self.table_of(name)[index] = floored(log_probs)
        batches = (batch for part in data.drawn_parts for batch in data.in_order(part))
        return ridge.predict_all(batches, self.clean_fold)


def stratified_folds(label: Tensor, folds: int, seed: int) -> Tensor:
    """(samples,) a fold for each sample, every class spread evenly over them."""
    fold = torch.zeros(len(label), dtype=torch.int64)
    start = 0
    label = label.cpu()
    for number in label.unique().tolist():
        members = (label == number).nonzero().flatten()
        members = members[torch.randperm(len(members), generator=generator(seed, "folds", number))]
        fold[members] = (torch.arange(len(members)) + start) % folds
        start += len(members)
    return fold
