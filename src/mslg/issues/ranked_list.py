"""The list of label issues: every sample with its rank, label quality and suggested label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from .error_rate import ErrorRate, descending, estimate_error_rate
from .evidence import Evidence, Predictions
from .flagging import Flag
from .posterior import Posterior, fit_posterior, log_odds_wrong


@dataclass(frozen=True)
class LabelIssues:
    """What a posterior says about given labels, and how often it is right. All tensors are in the order of the data."""

    predictions: Predictions
    evidence: Evidence
    posterior: Posterior
    error_rate: ErrorRate
    log_odds: Tensor  # (samples,) of a wrong label; NaN where there is no prediction
    likeliest: Tensor  # (samples,) class; the given one where there is no prediction
    runner_up: Tensor  # (samples,) the second likeliest class
    two_likeliest: Tensor  # (samples, 2) probabilities of the two
    fdr: float | None = None
    limit: int | None = None  # how many labels are flagged, worst first; None: all with a likelier class
    kinds: Mapping[str, Any] = field(default_factory=dict)  # further columns of the table: other kinds of problem
    soft_labels: Literal["learned", "posterior"] = "learned"  # which are written

    @cached_property
    def order(self) -> Tensor:
        """(samples,) positions from the worst label to the best; those without a prediction come last."""
        return torch.argsort(-self.log_odds, stable=True).int()

    @property
    def ranked(self) -> int:
        """How many samples there are with a prediction."""
        return int((~self.log_odds.isnan()).sum())

    @cached_property
    def ranks(self) -> Tensor:
        """(samples,) rank of each label from the worst to the best, from 0."""
        ranks = torch.empty_like(self.order)
        ranks[self.order] = torch.arange(len(ranks), dtype=ranks.dtype)
        return ranks

    @cached_property
    def quality(self) -> Tensor:
        """(samples,) probability that the given label is right; NaN where there is no prediction."""
        calibration, quality = self.error_rate.calibration, torch.full_like(self.log_odds, torch.nan)
        known = ~self.log_odds.isnan()
        if bool(known.any()):
            odds = self.log_odds[known]
            wrong = None if calibration is None else calibration.probability_wrong(odds)
            quality[known] = torch.sigmoid(-odds) if wrong is None else wrong.neg_().add_(1)
        return quality

    @cached_property
    def suggested(self) -> Tensor:
        """(samples,) the class that each sample should probably have: the given one unless it is flagged, and where no
        other class is likelier."""
        return torch.where(self.flagged, self.likeliest, self.predictions.given.int())

    @cached_property
    def flagged(self) -> Tensor:
        """(samples,) whether each label is called an issue."""
        likelier = self.likeliest != self.predictions.given
        if self.limit is None:
            return likelier
        return (self.ranks < self.limit) & (likelier | (self.fdr is None))

    def soft_labels_of(self, positions: Tensor, probs: Tensor) -> Tensor:
        """(positions, classes) soft labels of samples with these predictions."""
        if self.soft_labels == "posterior":
            return self.posterior(probs, self.predictions.given[positions], dtype=torch.float32)
        learned = self.predictions.soft_labels(positions)
        return (probs if learned is None else learned).detach().float().cpu()

    def posterior_of(self, positions: Tensor) -> Tensor:
        """(positions, classes) probability of each label. That of the given one is its quality: it is calibrated, and
        the others keep their proportions."""
        given = self.predictions.given[positions].unsqueeze(1)
        probs = self.posterior(self.predictions.probs(positions), given.squeeze(1), dtype=torch.float64)
        quality = self.quality[positions].double().unsqueeze(1)
        others = probs.scatter(1, given, 0)
        return (
            (others * (1 - quality) / others.sum(1, keepdim=True).clamp_min(1e-300)).scatter(1, given, quality).float()
        )

    def error_rate_summary(self) -> dict[str, Any]:
        """How many labels are wrong, and how many of the listed ones, for summary.json."""
        order = self.order[: self.ranked]
        return self.error_rate.summary(self.log_odds[order], self.flagged[order], self.fdr)


def rank_labels(
    predictions: Predictions, evidence: Evidence, *, fdr: float | None = None, flag: Flag = "likelier"
) -> LabelIssues:
    """Fit the posterior, rank all given labels by it and estimate how many are wrong.

    Args:
        predictions: of the samples whose labels are ranked.
        evidence: what is verified.
        fdr: of the worst labels, as many as keep the expected fraction of right ones among them below it, flag those
            for which another class is likelier.
        flag: without `fdr`, which labels are flagged: those for which another class is "likelier"; the "expected"
            number of wrong ones; the number with the best "balanced" precision and recall (their harmonic mean, F1);
            or this many. What rests on an error rate falls back to "likelier" where none can be estimated.
    """
    fitted = fit_posterior(predictions, evidence)
    log_odds = torch.empty(len(predictions), dtype=torch.float64)
    likeliest, runner_up = (torch.empty(len(predictions), dtype=torch.int32) for _ in range(2))
    two_likeliest = torch.empty(len(predictions), 2)
    for piece in predictions.pieces():  # one pass: reading the probabilities may take longer than all else
        given, known = predictions.given[piece], predictions.is_known(piece)
        probs = fitted.posterior(predictions.probs(piece), given)
        right = probs.gather(1, given.unsqueeze(1)).squeeze(1)
        log_odds[piece] = torch.where(known, log_odds_wrong(right), torch.nan)
        value, first = probs.max(1)
        likeliest[piece] = torch.where(known, first, given).int()
        next_value, second = probs.scatter_(1, first.unsqueeze(1), -1).max(1)
        runner_up[piece], two_likeliest[piece] = second.int(), torch.stack([value, next_value], 1).float()
    known_odds = log_odds[~log_odds.isnan()]
    rate = estimate_error_rate(fitted, known_odds, predictions, evidence)
    limit = rate.length_for_fdr(descending(known_odds), fdr) if fdr is not None else _limit(flag, rate, known_odds)
    two = likeliest, runner_up, two_likeliest
    return LabelIssues(predictions, evidence, fitted.posterior, rate, log_odds, *two, fdr, limit)


def _limit(flag: Flag, rate: ErrorRate, log_odds: Tensor) -> int | None:
    if isinstance(flag, int):
        return max(0, min(flag, len(log_odds)))
    if flag == "likelier" or rate.calibration is None or not len(log_odds):
        return None
    if flag == "expected":
        return round(rate.calibration.wrong_share(len(log_odds)).estimate * len(log_odds))
    return rate.calibration.length_for_f1(descending(log_odds))
