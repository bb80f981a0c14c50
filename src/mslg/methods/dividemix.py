"""DivideMix (Li et al., 2020): samples with small losses are labelled, the others unlabelled; then semi-supervised.

Before each epoch, a mixture of two Gaussians is fitted to each network's losses; w_i is the probability that sample i
belongs to the component with the smaller mean. The w of one network divides the data for the other:

    labelled, w ≥ threshold:   q = sharpen(w·given + (1 − w)·p)            label co-refinement
    unlabelled:                q = sharpen((p + p_other) / 2)              label co-guessing
    loss = CE(labelled mixtures) + λ·squared error(unlabelled mixtures) + KL(uniform ‖ mean prediction)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Dirichlet

from ..data.batch import Batch, Inputs, call
from ..data.splits import Splits
from ..networks.ensemble import Ensemble, mean_log_probs
from ..networks.evaluating import evaluating
from ..runtime.distributed import averaged, gathered, mean, ranks
from ..training.losses import batch_prior_loss, cross_entropy, entropy, log_mean_prediction, soft_cross_entropy
from ..training.method import Method, StepResult, Task

EM_STEPS, EM_TOLERANCE = 10, 1e-2  # of the mixture, as the authors' code sets them
LEAST_VARIANCE = 5e-4  # added to the variances of the mixture, of losses between 0 and 1


class DivideMix(Method):
    """Two networks, which divide the data for each other.

    warm_up            fraction of the run, or epochs if ≥ 1, of plain cross entropy before the first division
    threshold          least probability of being clean for a sample to count as labelled (the paper's τ)
    temperature        of the sharpening of labels (T): below 1 makes them more decided
    mixup_alpha        of the Beta distribution of the mixtures (α); 0 = mix nothing
    unlabelled_weight  of the loss of the unlabelled samples (λ_u)
    ramp               fraction of the run, or epochs if ≥ 1, over which this weight rises from 0 after the warm-up
    balance_weight     of the pull of the mean prediction towards equal class shares (λ_r)
    confidence_weight  of the reward for undecided predictions in the warm-up; 1 for asymmetric noise
    """

    presets: ClassVar = {
        "cifar10-symmetric": lambda task: {"unlabelled_weight": 25.0},
        "cifar10-asymmetric": lambda task: {"unlabelled_weight": 0.0, "confidence_weight": 1.0},
        "cifar100": lambda task: {"unlabelled_weight": 150.0, "warm_up": 30 / 300},
        "clothing1m": lambda task: {"unlabelled_weight": 0.0, "mixup_alpha": 0.5, "warm_up": 1 / 80},
    }
    advice = "a smaller unlabelled_weight"

    given: Tensor
    prior: Tensor

    def __init__(
        self,
        task: Task,
        *,
        warm_up: float = 10 / 300,
        threshold: float = 0.5,
        temperature: float = 0.5,
        mixup_alpha: float = 4.0,
        unlabelled_weight: float = 25.0,
        ramp: float = 16 / 300,
        balance_weight: float = 1.0,
        confidence_weight: float = 0.0,
    ) -> None:
        super().__init__(task)
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold is {threshold}; it is a probability, between 0 and 1")
        if temperature <= 0:
            raise ValueError(f"temperature is {temperature}; it must be above 0; 1 leaves labels as they are")
        weights = {
            "mixup_alpha": mixup_alpha,
            "unlabelled_weight": unlabelled_weight,
            "balance_weight": balance_weight,
            "confidence_weight": confidence_weight,
        }
        for name, value in weights.items():
            if value < 0:
                raise ValueError(f"{name} is {value}; it must be 0 or more")
        self.threshold, self.temperature, self.mixup_alpha = threshold, temperature, mixup_alpha
        self.unlabelled_weight, self.balance_weight = unlabelled_weight, balance_weight
        self.confidence_weight = confidence_weight
        self.first_divided_epoch = task.warm_up_epochs(warm_up, before="the first division of DivideMix")
        self.ramp_epochs = task.warm_up_epochs(ramp, before="DivideMix's full weight of unlabelled samples")
        self.networks = Ensemble([task.new_network(), task.new_network()])
        self.optimizers = [self.add_optimizer(name, network) for name, network in self.networks.named_children()]
        self.clean_probability = task.new_sample_table("clean_probability", 2)  # by the losses of each network
        self.refined = task.new_sample_table("refined_labels", task.classes)  # zeros: still the given label
        self.register_buffer("given", task.given.to(task.device), persistent=False)
        self.register_buffer("prior", torch.full((task.classes,), 1 / task.classes).to(task.device), persistent=False)

    # Once per epoch: which labels are clean

    def begin_epoch(self, epoch: int, data: Splits) -> None:
        if epoch >= self.first_divided_epoch:
            self.divide(data)

    def divide(self, data: Splits) -> None:
        """Fit a mixture to each network's losses. The labels refined by its probabilities are kept as soft labels."""
        index, losses = [], []
        with evaluating(self.networks):
            for batch in data.in_order():
                both = [call(network, batch.inputs).log_softmax(1) for network in self.networks]
                self.refined[batch.index] = mean_log_probs(both).exp()
                losses.append(torch.stack([cross_entropy(each, batch.label).double() for each in both], 1))
                index.append(batch.index)
        own = torch.cat(index)
        columns = [clean_probabilities(column) for column in torch.cat(losses).unbind(1)]
        self.clean_probability[own] = torch.stack(columns, 1)
        for piece in own.split(2**14):
            clean = self.clean_probability[piece].mean(1, keepdim=True)
            self.refined[piece] = clean * self._one_hot(self.given[piece]) + (1 - clean) * self.refined[piece]

    # Steps

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        return self._warm_up_step(batch) if self.epoch < self.first_divided_epoch else self._semi_supervised_step(batch)

    def _warm_up_step(self, batch: Batch) -> StepResult:
        losses, both = [], []
        for network, optimizer in zip(self.networks, self.optimizers, strict=True):
            log_probs = call(network, batch.inputs).log_softmax(1)
            loss = cross_entropy(log_probs, batch.label).mean()
            if self.confidence_weight:
                loss = loss - self.confidence_weight * entropy(log_probs).mean()
            self.descend(optimizer, loss)
            losses.append(loss)
            both.append(log_probs.detach())
        return StepResult({"loss": losses[0], "second/loss": losses[1]}, mean_log_probs(both))

    def _semi_supervised_step(self, batch: Batch) -> StepResult:
        with evaluating(self.networks):
            both = [call(network, batch.inputs).log_softmax(1) for network in self.networks]
        probability = self.clean_probability[batch.index].to(both[0].dtype)
        given = self._one_hot(batch.label).to(both[0].dtype)
        guess = mean_log_probs(both).exp()
        scalars: dict[str, Tensor] = {}
        for number, (network, optimizer) in enumerate(zip(self.networks, self.optimizers, strict=True)):
            clean = probability[:, 1 - number]  # the other network divides the data for this one
            labelled = (clean >= self.threshold).to(given.dtype)
            target = self.targets(given, both[number].exp(), guess, clean, labelled)
            inputs, target = mixed(batch.inputs, target, self.mixup_alpha)
            log_probs = call(network, inputs).log_softmax(1)
            losses = self.losses(log_probs, target, labelled)
            loss = losses["labelled"] + self._unlabelled_weight() * losses["unlabelled"]
            loss = loss + self.balance_weight * losses["balance"]
            self.descend(optimizer, loss)
            if number == 0:
                scalars |= {"loss": loss, **{f"loss/{name}": value for name, value in losses.items()}}
                scalars["labels/clean"] = labelled.mean()
            else:
                scalars["second/loss"] = loss
        scalars["disagree"] = (both[0].argmax(1) != both[1].argmax(1)).float().mean()
        return StepResult(scalars, mean_log_probs(both))

    def targets(self, given: Tensor, probs: Tensor, guess: Tensor, clean: Tensor, labelled: Tensor) -> Tensor:
        """(batch, classes) sharpened labels: refined ones where a sample counts as labelled, guessed ones elsewhere."""
        refined = clean.unsqueeze(1) * given + (1 - clean.unsqueeze(1)) * probs
        return sharpened(torch.where(labelled.unsqueeze(1) > 0, refined, guess), self.temperature)

    def losses(self, log_probs: Tensor, target: Tensor, labelled: Tensor) -> dict[str, Tensor]:
        """The three losses: each of the first two is the mean over its part of the whole batch, over all ranks."""
        squared = (log_probs.exp() - target).pow(2).mean(1)
        own = log_mean_prediction(log_probs)
        log_mean = own if ranks() == 1 else mean(own.exp()).log()
        return {
            "labelled": mean_over(soft_cross_entropy(log_probs, target), labelled),
            "unlabelled": mean_over(squared, 1 - labelled),
            "balance": batch_prior_loss(log_mean, self.prior) - math.log(self.task.classes),
        }

    def _unlabelled_weight(self) -> float:
        """λ: rises linearly after the warm-up."""
        if not self.ramp_epochs:
            return self.unlabelled_weight
        passed = self.progress * self.task.epochs - self.first_divided_epoch
        return self.unlabelled_weight * min(1.0, max(0.0, passed / self.ramp_epochs))

    def _one_hot(self, label: Tensor) -> Tensor:
        return torch.eye(self.task.classes, device=label.device)[label]

    # Results

    def deployed(self) -> nn.Module:
        return self.networks

    def soft_labels(self, index: Tensor) -> Tensor:
        rows = self.refined[index]
        return torch.where(rows.sum(1, keepdim=True) > 0, rows, self._one_hot(self.given[index]).to(rows))

    def relative_cost(self, epoch: int) -> float:
        return 2.0 if epoch < self.first_divided_epoch else 3.4  # two more forward passes per step, and one per epoch


def clean_probabilities(losses: Tensor) -> Tensor:
    """(n,) P(component with the smaller mean | loss) of a mixture of two Gaussians, fitted by expectation maximisation.

    Args:
        losses: (n,) in double precision, those of this process; the mixture is that of all processes.
    """
    least, most = (gathered(bound.reshape(1)) for bound in losses.aminmax())
    losses = (losses - least.min()) / (most.max() - least.min()).clamp_min(torch.finfo(losses.dtype).tiny)
    # Two means by Lloyd's algorithm from the extremes: no random start, so the same on every process.
    means = torch.tensor([0.0, 1.0], dtype=losses.dtype, device=losses.device)
    for _ in range(EM_STEPS):
        nearest = (losses.unsqueeze(1) - means).abs().argmin(1, keepdim=True)
        shares = torch.zeros(len(losses), 2, dtype=losses.dtype, device=losses.device).scatter_(1, nearest, 1.0)
        weights, means, variances = _components(losses, shares, means)
    before = -math.inf
    for _ in range(EM_STEPS):
        joint = weights.log() - 0.5 * (losses.unsqueeze(1) - means) ** 2 / variances - 0.5 * variances.log()
        shares = joint.softmax(1)
        likelihood = float(averaged([joint.logsumexp(1).sum()])[0] / averaged([_count(losses)])[0])
        weights, means, variances = _components(losses, shares, means)
        if abs(likelihood - before) < EM_TOLERANCE:
            break
        before = likelihood
    joint = weights.log() - 0.5 * (losses.unsqueeze(1) - means) ** 2 / variances - 0.5 * variances.log()
    return joint.softmax(1)[:, int(means.argmin())]


def _components(losses: Tensor, shares: Tensor, means: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, means and variances of the components, from each sample's (n, 2) share in them, over all ranks. A
    component without samples keeps its mean."""
    columns = losses.unsqueeze(1)
    counts, total, squares, size = averaged(
        [shares.sum(0), (shares * columns).sum(0), (shares * columns**2).sum(0), _count(losses)]
    )
    least = 10 * torch.finfo(losses.dtype).eps
    found = torch.where(counts > least, total / counts.clamp_min(least), means)
    variances = (squares / counts.clamp_min(least) - found**2).clamp_min(0) + LEAST_VARIANCE
    return (counts / size).clamp_min(least), found, variances


def _count(losses: Tensor) -> Tensor:
    return torch.tensor(float(len(losses)), dtype=losses.dtype, device=losses.device)


def sharpened(probs: Tensor, temperature: float) -> Tensor:
    """p^(1/T), normalised."""
    powers = probs.clamp_min(torch.finfo(probs.dtype).tiny).log() / temperature
    return powers.softmax(1)


def mixed(inputs: Inputs, target: Tensor, alpha: float) -> tuple[Inputs, Tensor]:
    """Mixup of a batch with itself in another order; the first of two mixed samples has at least half of the mixture.
    Only floating-point tensors are mixed: the mean of two token ids is no token id."""
    if alpha == 0 or not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        return inputs, target
    device = inputs.device
    share = Dirichlet(torch.full((2,), alpha, device=device), validate_args=False).sample().amax()
    order = torch.randperm(len(inputs), device=device)
    weight = share.to(inputs.dtype)
    return weight * inputs + (1 - weight) * inputs[order], share * target + (1 - share) * target[order]


def mean_over(losses: Tensor, counted: Tensor) -> Tensor:
    """Mean of the losses where `counted` is 1, over the whole batch, as this rank's share of it: ranks are averaged."""
    count = averaged([counted.sum()])[0]
    return (losses * counted).sum() / count.clamp_min(1 / ranks())
