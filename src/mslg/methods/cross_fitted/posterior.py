"""What predicts every sample out of fold, how much the clean samples say each prediction counts, and the posterior of
the true labels that follows from them, the transition matrix and the given labels."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from operator import itemgetter

import torch
from torch import Tensor

from ...data.batch import Batch, map_inputs
from ...data.samples import Samples
from ...data.splits import Splits
from ...runtime.distributed import broadcast_object
from ...training.method import Task
from ...training.stacking import floored
from .estimates import CleanPredictions, chosen_as_clean, first_matrix, noise_from_tables, stacked
from .fold_networks import FoldNetworks
from .ridge import MANY_CLASSES, Ridge, RidgeSamples, are_vectors
from .ridge_problem import LEAST_ROUNDS

log = logging.getLogger("mslg")

LEAST = 1e-6  # an entry of a transition matrix that was never counted is unlikely, not impossible
SOURCES = ("noisy", "clean", "corrected", "ridge")
# The controls that are trained as the first three sources are; of regressions, as the first, second and fourth.
CONTROLS = ("noisy-then-clean", "clean-only", "gold-correction")
REGRESSED = ("cross-entropy", "clean-only", "gold-correction")
WEIGHTS = "weights: noisy labels %.2f, clean samples %.2f, forward correction %.2f, ridge %.2f; given label %.2f"


class FoldPosterior(FoldNetworks):
    """Fold networks, and the posterior by their predictions.

    Attributes:
        weights: (5,) of the sources and of the logarithm of the transition matrix, in the posterior.
        transition: (classes, classes).
        offset: (classes,) logarithm of the noisy samples' class shares over the clean ones'.
        chosen: samples used as a clean set, where there is none.
        verified: what is predicted for clean samples, once the weights are known.
    """

    def __init__(self, task: Task, folds: int) -> None:
        super().__init__(task, folds)
        self.given = task.given.to(task.device)
        self.chosen = torch.empty(0, dtype=torch.int64)
        self.register_buffer("weights", torch.zeros(5, dtype=torch.float64, device=task.device))
        self.register_buffer("transition", torch.eye(task.classes, dtype=torch.float64, device=task.device))
        self.register_buffer("offset", torch.zeros(task.classes, dtype=torch.float64, device=task.device))
        self.regressed = False  # whether regressions alone take the place of networks
        self.leverage = 0.0  # mean of that of given labels, if so
        self.gain = 0.0  # of clean samples: by how much more of their soft labels are right than of their given ones
        self.clean_predictions: dict[str, Tensor] = {}  # by source, until the weights are known
        self.verified = CleanPredictions()

    weights: Tensor
    transition: Tensor
    offset: Tensor

    # Stage 1

    def estimate_by_networks(self, epoch: int, data: Splits, *, fine_tuning: int, share: float) -> None:
        """After stage 1: fine-tune for this many steps on clean samples, predict everything out of fold, and estimate
        the transition matrix. Without clean samples, this share of the training samples takes their place."""
        rows = self._samples_to_fit()
        if (samples := data.unbiased_clean) is None:
            self.predict_training(["noisy"], data, also=rows.add)
            self._choose_clean(data, share)
            self._fit_ridge(rows, data)
            return
        self.go_back_to_best("noisy")
        predicted = self.predict_clean("noisy", data, samples, out_of_fold=False).exp()
        start = first_matrix(samples, predicted, self.task.classes)
        if samples.has_every_class(self.task.classes):
            self.fine_tune_folds("noisy", data.clean_batches(epoch), fine_tuning)
            self.keep_if_best("noisy", data)  # a few clean samples may make it forget more than they teach
            self.go_back_to_best("noisy")
        names = ("noisy", "clean")
        self.clean_predictions = {name: self.predict_drawn(name, data) for name in names}
        self.predict_training(names, data, also=rows.add)
        self._estimate_noise(data, samples, start)
        self._fit_ridge(rows, data, start)

    def estimate_by_regression(self, data: Splits, *, share: float) -> bool:
        """All of this, and the weights, by ridge regressions alone: of given labels, of clean samples, and corrected
        through the transition matrix. False, and nothing is done, where inputs are not vectors."""
        rows, samples = self._samples_to_fit(), data.unbiased_clean
        if not self.regresses(data):
            return False
        for batch in data.in_order():
            rows.add(batch)
        unit = torch.eye(self.task.classes).to(self.transition)
        noisy = rows.fit(unit, rounds=LEAST_ROUNDS)
        clean = Ridge() if samples is None or not noisy else self._regression_of_clean(data, unit, noisy)
        if not noisy or (samples is not None and not clean):
            return False
        self.regressed, self.leverage = True, broadcast_object(rows.mean_leverage())
        self.clean_predictions = {"noisy": self.predict_by("noisy", noisy, rows, data)}
        if samples is None:
            self._choose_clean(data, share)
            self._fit_ridge(rows, data)
        else:
            self.clean_predictions["clean"] = self._predict_by_clean(clean, rows, data)
            each = torch.cat([noisy.predict_together(batch.inputs).cpu() for batch in data.in_order(samples)])
            start = first_matrix(samples, each.exp(), self.task.classes)
            self._estimate_noise(data, samples, start)
            self._fit_ridge(rows, data, start)
        self.fit_weights(data)
        return True

    def regresses(self, data: Splits) -> bool:
        """Whether regressions alone are possible, as far as the first samples show."""
        first = data.train.at(torch.arange(min(2, len(data.train.index))))
        vectors = are_vectors(next(data.in_order(first)).inputs)
        return bool(broadcast_object(vectors and self.task.classes < MANY_CLASSES))

    def _predict_by_clean(self, clean: Ridge, rows: RidgeSamples, data: Splits) -> Tensor:
        """Predict training samples, none of which this regression has seen, and clean ones out of fold."""
        read = ((batch.index, clean.predict_together(batch.inputs)) for batch in data.in_order())
        for index, log_probs in rows.predicted_together(clean) or read:
            self.table_of("clean")[index] = floored(log_probs)
        return clean.predict_all((b for part in data.drawn_parts for b in data.in_order(part)), self.clean_fold)

    def _samples_to_fit(self) -> RidgeSamples:
        return RidgeSamples(self.given, self.fold, len(self.task.given))

    def _regression_of_clean(self, data: Splits, unit: Tensor, like: Ridge) -> Ridge:
        assert data.clean is not None
        if len(self.clean_fold[data.clean.index].unique()) < self.folds:
            return Ridge()
        label = torch.zeros(len(self.clean_fold), dtype=torch.int64)
        label[data.clean.index] = data.clean.label
        rows = RidgeSamples(label.to(self.task.device), self.clean_fold, len(data.clean), like)
        for batch in data.in_order(data.clean):
            own = (batch.index % data.ranks == data.rank).nonzero().flatten()
            inputs = map_inputs(itemgetter(own), batch.inputs)
            rows.add(Batch(batch.index[own], inputs, batch.label[own]))
        return rows.fit(unit, rounds=LEAST_ROUNDS)

    def _fit_ridge(self, rows: RidgeSamples, data: Splits, start: Tensor | None = None) -> None:
        """Fit the regression that corrects labels through the transition matrix, and estimate this once more."""
        if not (ridge := rows.fit(self.transition)):
            return
        self.clean_predictions["ridge"] = self.predict_by("ridge", ridge, rows, data)
        if start is not None and data.unbiased_clean is not None:
            shares = self.offset.clone()  # what regression says about them follows the given labels
            self._estimate_noise(data, data.unbiased_clean, start)
            self.offset.copy_(shares)

    def _estimate_noise(self, data: Splits, samples: Samples, start: Tensor) -> None:
        """Estimate the transition matrix and the class shares from the predictions that there are."""
        every = samples.has_every_class(self.task.classes)
        used = [name for name in self.clean_predictions if name != "clean" or every]
        clean = torch.stack([self.clean_predictions[name][: len(samples)] for name in used])
        tables, given = [self.table_of(name) for name in used], self.task.given
        matrix, offset = noise_from_tables(tables, clean, samples, given, data.own(), start)
        self.transition.copy_(matrix)
        self.offset.copy_(offset)

    def _choose_clean(self, data: Splits, share: float) -> None:
        """Without clean samples: take those with the lowest losses out of fold, and what is predicted for them as the
        transition matrix."""
        own = data.own()
        log_probs = self.table_of("noisy")[own].cpu().float()
        self.chosen, matrix = chosen_as_clean(own, self.task.given[own], log_probs, share)
        self.transition.copy_(matrix)

    # After stage 2

    def finish_networks(self, data: Splits) -> None:
        """After stage 2: predict by its networks, and fit the weights."""
        self.go_back_to_best("corrected")
        self.predict_training(["corrected"], data)
        if data.unbiased_clean is not None:
            self.clean_predictions["corrected"] = self.predict_drawn("corrected", data)
        self.fit_weights(data)

    def fit_weights(self, data: Splits) -> None:
        """Fit the weights of the posterior on the clean samples."""
        if (samples := data.unbiased_clean) is None:
            corrected, ridge = float(not self.regressed), float("ridge" in self.clean_predictions)
            self.weights[2:] = torch.tensor([corrected, ridge, corrected + ridge]) / (corrected + ridge)
            return
        there = [name in self.clean_predictions for name in SOURCES]
        even = torch.zeros_like(self.clean_predictions["noisy"])
        logs = torch.stack([floored(self.clean_predictions.get(name, even)) for name in SOURCES])
        fold, transition = self.clean_fold[samples.index].cpu(), self.transition.cpu()
        weights, combined, self.gain = stacked(logs, samples, fold, transition, there)
        self.weights.copy_(weights)
        index = torch.cat([part.index for part in data.drawn_parts])
        as_controls = logs[[0, 1, 3]] if self.regressed else logs[:3]
        self.verified = CleanPredictions(combined.float(), as_controls.argmax(2), index)
        self.clean_predictions = {}
        log.info(WEIGHTS, *weights.tolist())

    # The posterior

    def log_posterior(self, index: Tensor) -> Tensor:
        """(n, classes) log q up to a constant, as the clean samples weigh its parts."""
        columns = self.weights[4] * self.transition.clamp_min(LEAST).log().T + self.offset
        return columns.float()[self.given[index]] + self.weighed(index)

    def weighed(self, index: Tensor) -> Tensor:
        """(n, classes) the weighed logarithms of the predictions that have not seen the given labels."""
        logs = torch.stack([self.table_of(name)[index].float() for name in SOURCES])
        return (self.weights[:4, None, None].float() * logs).sum(0)

    def unseen_clean(self, clean: Samples) -> Tensor | None:
        return self.verified.of(clean)

    def unseen_controls(self, clean: Samples) -> Mapping[str, Tensor]:
        return self.verified.of_controls(clean, REGRESSED if self.regressed else CONTROLS)
