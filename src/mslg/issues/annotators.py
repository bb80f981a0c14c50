"""Several annotators: the matrix of each, and the label they give together with a model.

    P(true class k of sample i)  ∝  p_i[k]^a · exp(b_k) · Π T_j[k, vote of j]      over the annotators j who voted on i

T_j[k, l] = P(annotator j says l | true k). This is Dawid and Skene's model (1979) with three additions: the class of a
sample is not drawn from the same shares for all, but from a model's prediction p for it, whose weight a is estimated
too; verified samples have their class; and each matrix is pulled towards the annotator's accuracy and the mistakes of
all annotators together, as few votes say little about each cell. By expectation maximisation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.votes import Votes
from ..runtime.seeds import generator
from .evidence import FOLDS

LEAST = 1e-6
# Not tuned; benchmarks/annotators.py measures what they give (docs/results/any-model.md).
STRENGTH = 4.0  # votes of each true class that the prior of an annotator's matrix counts for
POOLED_STRENGTH = 10.0  # likewise of the matrix of all together
MODEL_RIDGE = 10.0  # pulls the weight of the model's prediction to 1
STEPS, HELD_OUT_STEPS, TOLERANCE = 200, 5, 1e-4
MOST_CELLS = 2**27  # of all matrices
ASKED = 1_000  # samples of which it is worked out whom to ask


class State(NamedTuple):
    """The parameters."""

    log_votes: Tensor  # (annotators, classes, classes): [j, l] holds log T_j[·, l]
    weight: float  # of the model's logarithm
    bias: Tensor  # (classes,)


@dataclass(frozen=True)
class Annotators:
    """What is known about the annotators."""

    votes: Votes
    matrices: Tensor  # (annotators, classes, classes): T[j, k, l] = P(j says l | true k)
    right: Tensor  # (annotators,) expected share of right votes
    model_weight: float

    @property
    def names(self) -> tuple[str, ...]:
        return self.votes.names

    def count(self) -> Tensor:
        """(annotators,) how many votes each has given."""
        return torch.bincount(self.votes.annotator, minlength=len(self.names))

    def mistakes(self, number: int, classes: tuple[str, ...], most: int = 3) -> list[dict[str, Any]]:
        """The largest entries off the diagonal of an annotator's matrix."""
        matrix = self.matrices[number].clone().fill_diagonal_(0)
        best = matrix.flatten().topk(min(most, matrix.numel() - len(matrix)))
        return [
            {"true": classes[cell // len(classes)], "given": classes[cell % len(classes)], "share": share}
            for cell, share in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def summary(self, classes: tuple[str, ...]) -> list[dict[str, Any]]:
        """Every annotator, the worst first, for summary.json."""
        counts = self.count().tolist()
        return [
            {
                "name": self.names[number],
                "votes": counts[number],
                "right": float(self.right[number]),
                "mistakes": self.mistakes(number, classes),
            }
            for number in self.right.argsort().tolist()
        ]

    def whom_to_ask(self, posterior: Tensor, positions: Tensor, most: int = 3) -> pd.DataFrame:
        """For the samples at these positions with this posterior the annotators whose vote would say most about the
        class, by the mutual information of vote and class in nats: columns position, annotator, gain; best first."""
        entropy = -(self.matrices * self.matrices.clamp_min(LEAST).log()).sum(2)  # (annotators, classes)
        said = torch.einsum("ik,jkl->ijl", posterior, self.matrices)
        gain = -(said * said.clamp_min(LEAST).log()).sum(2) - posterior @ entropy.t()
        row = torch.full((self.votes.samples,), -1)
        row[positions] = torch.arange(len(positions))
        asked = row[self.votes.sample] >= 0
        gain[row[self.votes.sample[asked]], self.votes.annotator[asked]] = -torch.inf  # have said it already
        best = gain.topk(min(most, gain.shape[1]), dim=1)
        names = np.array(self.names, dtype=object)
        table = pd.DataFrame(
            {
                "position": positions.repeat_interleave(best.values.shape[1]).numpy(),
                "annotator": names[best.indices.flatten().numpy()],
                "gain": best.values.flatten().numpy(),
            }
        )
        found: pd.DataFrame = table[np.isfinite(table["gain"])].sort_values("gain", ascending=False, ignore_index=True)
        return found


class Consensus(NamedTuple):
    """What the annotators and the model say together."""

    probs: Tensor  # (samples, classes)
    held_out: Tensor  # (verified samples, classes) likewise, where its verified label was not used
    annotators: Annotators


def find_consensus(votes: Votes, probs: Tensor, verified: Tensor) -> Consensus:
    """Estimate the annotators' matrices and the label of each sample.

    Args:
        votes: of the annotators.
        probs: (samples, classes) of a model; all the same where there is none.
        verified: (samples,) verified labels, −1 where unknown.
    """
    cells = len(votes.names) * votes.classes**2
    if cells > MOST_CELLS:
        raise ValueError(
            f"{len(votes.names)} annotators and {votes.classes} classes make matrices of {cells:,} cells; at most "
            f"{MOST_CELLS:,} are supported: leave out annotators with few votes, or merge rare classes"
        )
    log_model = probs.double().clamp_min(LEAST).log()
    counted = torch.zeros_like(log_model)
    counted.index_put_((votes.sample, votes.label), torch.ones(len(votes.label), dtype=torch.float64), accumulate=True)
    start = _known((counted + probs) / (votes.per_sample().unsqueeze(1) + 1), verified)
    state = _maximised(votes, log_model, start, State(torch.empty(0), 1.0, torch.zeros(votes.classes).double()))
    found, state = _expectation_maximisation(votes, log_model, verified, state, STEPS)
    place = (verified >= 0).nonzero().flatten()
    held_out = torch.empty(len(place), votes.classes, dtype=torch.float64)
    fold = torch.randperm(len(place), generator=generator(0, "folds")) % FOLDS
    for number in fold.unique().tolist():
        others = verified.clone()
        others[place[fold == number]] = -1
        without, _ = _expectation_maximisation(votes, log_model, others, state, HELD_OUT_STEPS)
        held_out[fold == number] = without[place[fold == number]]
    of_vote = found[votes.sample, votes.label]
    count = torch.bincount(votes.annotator, minlength=len(votes.names)).clamp_min(1)
    right = torch.bincount(votes.annotator, of_vote, minlength=len(votes.names)) / count
    about = Annotators(votes, state.log_votes.exp().transpose(1, 2), right, state.weight)
    return Consensus(found.float(), held_out.float(), about)


def _expectation_maximisation(
    votes: Votes, log_model: Tensor, verified: Tensor, state: State, steps: int
) -> tuple[Tensor, State]:
    found = _expected(votes, log_model, verified, state)
    for _ in range(steps):
        state = _maximised(votes, log_model, found, state)
        before, found = found, _expected(votes, log_model, verified, state)
        if float((found - before).abs().max()) < TOLERANCE:
            break
    return found, state


def _expected(votes: Votes, log_model: Tensor, verified: Tensor, state: State) -> Tensor:
    """(samples, classes) the probability of each class."""
    logits = state.weight * log_model + state.bias
    logits.index_add_(0, votes.sample, state.log_votes[votes.annotator, votes.label])
    return _known(logits.softmax(1), verified)


def _known(found: Tensor, verified: Tensor) -> Tensor:
    known = verified >= 0
    found[known] = F.one_hot(verified[known], found.shape[1]).to(found.dtype)
    return found


def _maximised(votes: Votes, log_model: Tensor, found: Tensor, state: State) -> State:
    """The parameters at which these probabilities are likeliest."""
    classes, number = votes.classes, len(votes.names)
    counts = torch.zeros(number * classes, classes, dtype=torch.float64)
    counts.index_add_(0, votes.annotator * classes + votes.label, found[votes.sample])
    matrices = _smoothed(counts.view(number, classes, classes).transpose(1, 2))
    prior = (state.weight * log_model + state.bias).softmax(1)
    # One step of Newton's method for the model's weight, one of iterative scaling for the classes.
    mean = (prior * log_model).sum(1)
    slope = float((found * log_model).sum() - mean.sum()) - MODEL_RIDGE * (state.weight - 1)
    curve = float((prior * log_model**2).sum() - (mean**2).sum()) + MODEL_RIDGE
    weight = min(max(state.weight + slope / curve, 0.05), 5.0)
    prior = (weight * log_model + state.bias).softmax(1)
    bias = state.bias + ((found.sum(0) + 1) / (prior.sum(0) + 1)).log()
    return State(matrices.clamp_min(LEAST).log().transpose(1, 2).contiguous(), weight, bias - bias.mean())


def _smoothed(counts: Tensor) -> Tensor:
    """(annotators, classes, classes) matrices from counts [j, true, said]."""
    classes = counts.shape[1]
    right = counts.diagonal(dim1=1, dim2=2).sum(1)
    all_right = (float(right.sum()) + 1) / (float(counts.sum()) + 2)
    accuracy = (right + STRENGTH * all_right) / (counts.sum((1, 2)) + STRENGTH)
    together = counts.sum(0)
    even = torch.full((classes, classes), 1 / max(1, classes - 1), dtype=torch.float64).fill_diagonal_(0)
    wrong = together.clone().fill_diagonal_(0)
    among_wrong = (wrong + POOLED_STRENGTH * even) / (wrong.sum(1, keepdim=True) + POOLED_STRENGTH)
    eye = torch.eye(classes, dtype=torch.float64)
    prior = accuracy[:, None, None] * eye + (1 - accuracy)[:, None, None] * among_wrong
    return (counts + STRENGTH * prior) / (counts.sum(2, keepdim=True) + STRENGTH)
