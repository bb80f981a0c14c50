"""What label issues are found from, as arrays: given labels, predicted probabilities and verified labels. They may come
from a method trained here (`from_training`) or from any other model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..data.sample_table import pieces_of
from ..noise.transition_matrix import count
from ..runtime.seeds import generator

FOLDS = 5


@dataclass(frozen=True)
class Predictions:
    """The given labels of some samples and what a model predicts for them.

    The functions take positions (a tensor) and return what belongs to these samples: the probabilities of all of them
    may be larger than memory.
    """

    given: Tensor  # (samples,) class numbers
    classes: Sequence[str]
    probs: Callable[[Tensor], Tensor]  # (positions, classes)
    ids: Callable[[Tensor], list[str]]
    paths: Callable[[Tensor], list[str]] | None = None  # where the samples are files
    soft_labels: Callable[[Tensor], Tensor | None] = lambda positions: None  # learned ones; None: the probabilities
    known: Tensor | None = None  # (samples,) bool: whether there is a prediction; None: there always is
    predicted_in_training: Tensor | None = None  # (samples,) class predicted at the last visit, before its step
    include_given: bool = False  # whether the given labels are part of what the probabilities were computed from

    def __len__(self) -> int:
        return len(self.given)

    def pieces(self) -> list[Tensor]:
        """All positions, as many at a time as fit into memory."""
        return pieces_of(torch.arange(len(self)), len(self.classes))

    def is_known(self, positions: Tensor) -> Tensor:
        """(positions,) whether there is a prediction."""
        return torch.ones(len(positions), dtype=torch.bool) if self.known is None else self.known[positions]

    def given_and_predicted(self, *, final: bool = False) -> tuple[Tensor, Tensor]:
        """Given and predicted class of every sample with a prediction. Predictions made during training are preferred,
        unless the final ones are asked for: the finished network has memorised some of the given labels."""
        known = torch.ones(len(self), dtype=torch.bool) if self.known is None else self.known
        before = self.predicted_in_training
        if before is None or final:
            before = torch.cat([self.probs(piece).argmax(1) for piece in self.pieces()])
        return self.given[known], before[known].long()

    def joint_counts(self) -> Tensor:
        """(classes, classes) how often a class is predicted (row) for a sample given another (column)."""
        return count(*self.given_and_predicted(), len(self.classes))

    def all_joint_counts(self) -> Tensor:
        """(1 or 2, classes, classes) the same by all kinds of predictions there are."""
        kinds = (True,) if self.predicted_in_training is None else (False, True)
        return torch.stack([count(*self.given_and_predicted(final=final), len(self.classes)) for final in kinds])


class VerifiedSamples(NamedTuple):
    """Clean samples with predictions from a model that was not trained on them."""

    probs: Tensor  # (samples, classes)
    given: Tensor  # −1 where unknown
    verified: Tensor
    sample: Tensor  # which clean sample this is: with injected noise, each occurs several times
    columns: Tensor | None = None  # (samples, classes) log T[·, given], where T was counted on other samples than each

    def at(self, chosen: Tensor) -> VerifiedSamples:
        return VerifiedSamples(*(None if part is None else part[chosen] for part in self))  # type: ignore[arg-type]

    def with_given(self) -> VerifiedSamples:
        """Those whose given label is known, each a sample of its own."""
        found = self.at(self.given >= 0)
        return found._replace(sample=torch.arange(len(found.given)))

    def folds(self) -> Tensor:
        """(samples,) the fold of each; all copies of a sample are in the same one."""
        order = torch.randperm(int(self.sample.max()) + 1, generator=generator(0, "folds"))
        return order[self.sample] % FOLDS


@dataclass(frozen=True)
class Evidence:
    """What is verified.

    `pairs` are (given, verified) labels of random samples; the transition matrix is counted on them. `held_out` are
    other samples, to which the posterior's weights are fitted and on which its worth is measured. With `cross_fitted`
    there are no others: the matrix is counted on the held-out samples too, for each of them on the other folds.
    `in_sample` take their place for the weights where nothing is held out; nothing can be measured on those.
    """

    held_out: VerifiedSamples | None = None
    pairs: tuple[Tensor, Tensor] | None = None
    in_sample: VerifiedSamples | None = None
    cross_fitted: bool = False
    class_shift: Tensor | None = None  # (classes,) log of class shares, training samples over clean ones, if known
    by_folds: bool = False  # clean samples are predicted by networks of folds alone, the list by the finished one too
    reviewed: int = 0  # samples that a review has taken out of those predicted
    reviewed_wrong: int = 0  # how many of these had a wrong label
    seed: int = 0

    @property
    def has_pairs(self) -> bool:
        """Whether there are clean samples with given and verified labels to count a transition matrix on."""
        own = self.cross_fitted and self.held_out is not None and bool((self.held_out.given >= 0).any())
        return own or self.pairs is not None
