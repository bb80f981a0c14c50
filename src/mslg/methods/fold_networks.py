"""Networks trained without a fold: each predicts the samples that it has not seen."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..data.batch import Batch, call, concat_inputs
from ..data.sample_table import SampleTable
from ..data.samples import Samples
from ..data.splits import Splits
from ..networks.evaluating import evaluating
from ..runtime.seeds import generator
from ..training.losses import cross_entropy
from ..training.method import SingleNetwork, Task


class FoldNetworks(SingleNetwork):
    """A method with groups of networks, one network per fold, beside the deployed one. A network is trained neither on
    the noisy nor on the clean samples of its fold.

    Attributes:
        fold: (samples,) the fold of each sample of the source.
        clean_fold: the fold of each clean sample, by its index.
        predicted: by the name of a group, (samples, classes) log-probabilities out of fold.
    """

    def __init__(self, task: Task, folds: int) -> None:
        super().__init__(task)
        if folds < 2:
            raise ValueError(f"folds is {folds}; a sample is predicted by networks that have not seen it: 2 or more")
        self.folds = folds
        self.fold = stratified_folds(task.given, folds, task.seed).to(task.device)
        self.clean_fold = torch.empty(0, dtype=torch.int64)
        self.predicted = nn.ModuleDict()

    def add_group(self, name: str) -> None:
        """Make the networks of a group, their optimizers, and the table of their predictions."""
        networks = nn.ModuleList(self.task.new_network().train() for _ in range(self.folds))
        self.add_module(f"{name}_networks", networks)
        for fold, network in enumerate(networks):
            self.add_optimizer(f"{name} {fold}", network)
        self.predicted[name] = self.task.new_sample_table(name, self.task.classes, dtype=torch.float16)

    def drop_group(self, name: str) -> None:
        """Forget the networks of a group; their predictions stay."""
        if hasattr(self, f"{name}_networks"):
            delattr(self, f"{name}_networks")
            for fold in range(self.folds):
                self.drop_optimizer(f"{name} {fold}")

    def assign_clean_folds(self, clean: Samples) -> None:
        """Divide the clean samples into folds."""
        fold = torch.zeros(int(clean.index.max()) + 1, dtype=torch.int64)
        fold[clean.index] = stratified_folds(clean.label, self.folds, self.task.seed + 1)
        self.clean_fold = fold.to(self.task.device)

    def group(self, name: str) -> nn.Module:
        """The networks of a group, in the order of their folds."""
        return self.get_submodule(f"{name}_networks")

    def fit_folds(
        self,
        name: str,
        batch: Batch,
        losses: Callable[[Tensor], Tensor],
        *,
        beside: Batch | None = None,
        clean_weight: float = 1.0,
    ) -> tuple[Tensor, Tensor]:
        """A step of each network on the samples outside its fold, and on clean ones beside them. Every network sees the
        inputs of the whole batch, whose size then never depends on where the folds fall.

        Returns:
            The mean loss, and the (batch, classes) log-probabilities out of fold.
        """
        fold, size = self.fold[batch.index], len(batch.index)
        inputs = batch.inputs if beside is None else concat_inputs([batch.inputs, beside.inputs])
        every, total = [], torch.zeros((), device=fold.device)
        for number, network in enumerate(self.group(name).children()):
            log_probs = call(network, inputs).log_softmax(1)
            # Over a fixed number: the mean over ranks is then that of one process, however folds fall on them.
            loss = (losses(log_probs[:size]) * (fold != number)).sum() / (size * (1 - 1 / self.folds))
            if beside is not None:
                loss = loss + clean_weight * self._clean_loss(log_probs[size:], beside, number)
            self.descend(self._optimizers[f"{name} {number}"], loss)
            every.append(log_probs[:size].detach())
            total = total + loss.detach() / self.folds
        return total, torch.stack(every)[fold, torch.arange(size, device=fold.device)]

    def fit_clean_folds(self, name: str, clean: Batch, optimizers: list[Optimizer] | None = None) -> Tensor:
        """A step of each network on the clean samples outside its fold. Returns the mean loss."""
        losses = []
        for number, network in enumerate(self.group(name).children()):
            losses.append(self._clean_loss(call(network, clean.inputs).log_softmax(1), clean, number))
            optimizer = self._optimizers[f"{name} {number}"] if optimizers is None else optimizers[number]
            self.descend(optimizer, losses[-1])
        return torch.stack(losses).detach().mean()

    def _clean_loss(self, log_probs: Tensor, clean: Batch, fold: int) -> Tensor:
        """Mean cross entropy of the clean samples outside a fold, over a fixed number as above."""
        outside = self.clean_fold[clean.index] != fold
        return (cross_entropy(log_probs, clean.label) * outside).sum() / (len(clean.index) * (1 - 1 / self.folds))

    def table_of(self, name: str) -> SampleTable:
        table = self.predicted[name]
        assert isinstance(table, SampleTable)
        return table

    def predict_training(self, name: str, data: Splits) -> None:
        """Predict every training sample by the network of its fold; clean-only networks have seen none of them, so
        these predict together."""
        networks = self.group(name)
        with evaluating(networks):
            for batch in data.in_order():
                every = torch.stack([call(network, batch.inputs).log_softmax(1) for network in networks.children()])
                if name == "clean":
                    log_probs = every.logsumexp(0) - math.log(self.folds)
                else:
                    fold = self.fold[batch.index]
                    log_probs = every[fold, torch.arange(len(fold), device=every.device)]
                self.table_of(name)[batch.index] = log_probs

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
        return torch.cat(parts)


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
