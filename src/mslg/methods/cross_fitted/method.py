"""Cross-fitted labels: every soft label comes from predictions that have not seen the given label it replaces.

    1. N_k, A_k   networks trained without fold k of the noisy and of the clean samples: on given labels, then
                  fine-tuned on clean samples (N); on clean samples alone (A)
       T, π       transition matrix and class shares of the noisy set: by EM from their predictions, T smoothed by the
                  counts of samples with given and verified labels
       R_k        ridge regression without fold k, in closed form, of labels corrected through T (see ridge.py)
    2. B_k        networks trained without fold k by the forward loss through T, and by cross entropy on clean samples
       q_j        softmax(w_N log p_N + w_A log p_A + w_B log p_B + w_R log p_R + a log T[·, given_j] + log π/π_clean),
                  the weights fitted on the clean samples, out of fold
    3. the deployed network, trained on softmax(log q_j + δ_j) and on the clean samples; with the preset "meta" the
       displacement δ is learned by the meta-gradient:  δ_j ← δ_j − label_rate · d_j / scale,  d_j = centred D_g log p_j
       later on softmax(log q_j + δ_j) mixed with the mean of its own predictions (see refinement.py)
       where networks do not memorise, mostly on the given labels (see given_labels.py)

so that a label's logits move by at most `label_rate` nats per epoch on average, however flat the softmax is. Each stage
has the whole of the learning-rate schedule; the first two end with the networks of their best epoch on clean samples.

Without clean samples (`auto_clean`), those that N_k fit best take their place after stage 1, and q_j is the posterior
of p_B, p_R and T alone: nothing could be fitted on samples that were chosen by a prediction.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...bilevel import Bilevel, Mode
from ...bilevel.label_table import LabelTable
from ...data.batch import Batch, call, concat_inputs
from ...data.sample_table import file_if_large
from ...data.splits import Splits
from ...runtime.distributed import averaged, ranks
from ...training.losses import cross_entropy, forward_cross_entropy, log_softmax, soft_cross_entropy, total_variation
from ...training.method import StepResult, Task
from ...training.mixup import mixed
from .class_shares import ClassShares, noisy_shift
from .estimates import CleanPredictions, check_clean_set, counted
from .given_labels import GivenLabels
from .label_direction import label_direction
from .mixing import MANY, kind_of_inputs, memorises
from .posterior import FoldPosterior
from .refinement import OwnPredictions, doubted
from .stages import check_settings, raise_weight_decay, repeats, schedule_by_stage, some, stage_starts
from .step_parts import StepParts

log = logging.getLogger("mslg")

CLEAN_STEPS = 150  # of each clean-only network, and of fine-tuning: more only memorise the few clean samples
LEAST_RATIO = 1 / 16  # clean samples in a step, per noisy one, at least
FINE_TUNE = 0.9  # steps on clean samples that follow those on given labels, as a fraction of these, for all folds
KEPT = 2**24  # soft labels that are kept
LOOKED_AT = 5000  # samples, about, whose labels tell how many are right
NETWORKS = {0: ("noisy", "clean"), 1: ("corrected",)}  # the groups that each stage trains
FAST = {
    "folds": 2,
    "regression": True,
    "noisy_stage": 1 / 15,
    "forward_stage": 1 / 15,
    "clean_ratio": 0.25,
    "own_weight": 0.0,
}


class CrossFitted(FoldPosterior):
    """The whole method.

    folds          number of folds; a network that predicts a fold has seen neither its noisy nor its clean samples
    regression     where inputs are vectors, ridge regressions alone replace stages 1 and 2, whose epochs are idle
    noisy_stage    fraction of the run, or epochs if ≥ 1, of stage 1
    forward_stage  the same of stage 2; the rest of the run trains the deployed network
    clean_weight   of the clean samples' loss in stages 2 and 3, where they are many; less where they are few
    clean_ratio    clean samples in a step of these, per noisy one of a batch, at most: fewer where they count less
    label_rate     how far label logits move in an epoch of stage 3, in nats, at most; 0 = no label learning
    label_every    steps between two moves of labels; each is as many times longer
    mode           how the tangent is computed (see `mslg.bilevel.Bilevel`)
    decay          factor on the weight decay of the deployed network, where that is small
    mixup          mix the inputs and labels of a batch in stage 3, where that helps (see mixing.py)
    own_weight     weight of the deployed network's own mean predictions in the labels of the end of stage 3, where
                   inputs are mixed
    given_weight   weight of given labels beside soft ones in stage 3, at most, where inputs are vectors and networks do
                   not memorise them
    class_shares   which shares of the classes the deployed network expects: those of the training data, of the clean
                   samples, or their geometric mean
    auto_clean     without a clean set, use the samples of each class that stage 1 fits best instead, and do not train
                   on their given labels
    auto_share     their fraction of the training set
    """

    needs = frozenset({"clean set"})
    advice = "a smaller learning rate, or more clean samples"
    presets: ClassVar = {"meta": lambda task: {"label_rate": 0.3}, "fast": lambda task: FAST}

    def __init__(
        self,
        task: Task,
        *,
        folds: int = 4,
        regression: bool = False,
        noisy_stage: float = 1 / 6,
        forward_stage: float = 1 / 6,
        clean_weight: float = 1.0,
        clean_ratio: float = 0.5,
        label_rate: float = 0.0,
        label_every: int = 2,
        mode: Mode = "exact",
        decay: float = 10.0,
        mixup: bool = True,
        own_weight: float = 0.9,
        given_weight: float = 0.8,
        class_shares: ClassShares = "between",
        auto_clean: bool = False,
        auto_share: float = 0.3,
    ) -> None:
        super().__init__(task, folds)
        check_settings(
            label_every,
            fractions={"clean_ratio": clean_ratio, "own_weight": own_weight, "given_weight": given_weight},
            amounts={"clean_weight": clean_weight, "label_rate": label_rate, "decay": decay, "auto_share": auto_share},
        )
        self.clean_weight, self.clean_ratio, self.label_every = clean_weight, clean_ratio, label_every
        self.label_rate = 0.0 if auto_clean else label_rate  # samples chosen by a prediction teach no other one
        if self.label_rate > 0:
            self.advice = "a smaller label_rate or learning rate, or more clean samples"
        self.mode, self.decay, self.mixup, self.class_shares = mode, decay, mixup, class_shares
        self.auto_clean, self.auto_share = auto_clean, auto_share
        self.own_weight, self.given_weight = own_weight, given_weight
        self.regression, self._will_regress = regression, False
        self.starts = stage_starts(task, noisy_stage, forward_stage)
        self.schedule = schedule_by_stage(task, self.starts)
        raise_weight_decay(self.optimizer, decay)
        self.by_heart = 1.0  # the share of the labels that cannot be predicted which networks memorise
        self.mixes, self.given_labels = False, GivenLabels()  # whether inputs are mixed; both in stage 3
        self.steps, self.clean_steps, self.counts = 0, CLEAN_STEPS, 1.0  # per epoch; in stage 1; see `counted`
        in_file = file_if_large(task.tables, "labels", len(task.given), task.classes, torch.float32)
        self.table = LabelTable(self.given, task.classes, start=0.0, path=in_file)
        self._unit = torch.eye(task.classes, device=task.device)
        self.register_buffer("scale", torch.zeros((), device=task.device))  # of label steps: the largest mean so far
        self.engine = Bilevel(self.network, mode=mode, head=task.head(self.network))
        self.stage = -1
        self._enter(2 if task.warm else 0)

    scale: Tensor

    # Stages

    def _enter(self, stage: int) -> None:
        """Make the networks and tables of this stage, and of those passed over, and drop what is no longer needed."""
        for number in range(self.stage + 1, stage + 1):
            for name in NETWORKS.get(number, ()):
                self.add_group(name)
            for name in NETWORKS.get(number - 1, ()):
                self.drop_group(name)
            if number == 0:
                self.add_table("ridge")
        if stage == 2 and self.own_weight > 0 and not hasattr(self, "own"):
            self.own = OwnPredictions(self.task, self.own_weight)
        self.stage = stage

    def begin_epoch(self, epoch: int, data: Splits) -> None:
        check_clean_set(data, auto=self.auto_clean)
        self.steps, self.counts = data.steps(self.excluded()), counted(data)
        self._parts = None
        if not len(self.clean_fold):
            self.assign_clean_folds(data)
        regresses = self.regression and epoch == self.stage == 0
        if regresses and self.estimate_by_regression(data, share=self.auto_share):
            self.by_heart = self.leverage * (self.task.epochs - self.starts[2])
            self._begin_deployed(data)
        elif self.stage == 0 and epoch == self.starts[1]:
            self.by_heart = self.memorised("noisy", data) if kind_of_inputs(data) == "vector" else 1.0
            steps = round(FINE_TUNE * self.starts[1] * self.steps / self.folds)
            self.estimate_by_networks(epoch, data, fine_tuning=min(CLEAN_STEPS, max(10, steps)), share=self.auto_share)
            self._enter(1)
        if self.stage == 1 and epoch == self.starts[2]:
            self.finish_networks(data)
            self._begin_deployed(data)
        if self.stage == 2 and self._refines and not self.idle():
            done, length = epoch - self.starts[2], self.task.epochs - self.starts[2]
            self.own.begin_epoch(done / length, length * self.steps, data.own(), self.table.given, self._displaced)
        self._shifts = bool(self.offset.any())

    def _begin_deployed(self, data: Splits) -> None:
        """Enter stage 3, and decide what its network learns from."""
        self._enter(2)
        kind, samples = kind_of_inputs(data), len(self.task.given)
        memorised = kind != "vector" or memorises(self.by_heart, samples=samples, gain=self.gain)
        self.mixes = self.mixup and memorised and kind != "other"
        if memorised or samples < MANY or self.given_weight == 0:
            return
        own = data.own()
        some = own[own % max(1, samples // LOOKED_AT) == 0]  # by their index: the same for all processes
        _, wrong = doubted([(self._displaced(some), self.given[some])])
        self.given_labels = GivenLabels.of(self.given_weight, self.weights, right=1 - wrong)
        log.info("networks do not memorise: given labels, weights %.2f as they are, %.2f corrected", *self.given_labels)

    def end_epoch(self, epoch: int, data: Splits) -> None:
        if self.stage < 2:
            self.keep_if_best(NETWORKS[self.stage][0], data)

    def idle(self) -> bool:
        return self.regressed and self.epoch < self.starts[2]

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        if self.stage == 0:
            return self._noisy_step(batch, None if self.auto_clean else next(clean))
        if self.stage == 1:
            return self._forward_step(batch, next(clean))
        verified = next(clean)
        moves = self._learns_labels(self.epoch) and self._number() % self.label_every == 0
        moved = {"clean/loss": self.move_labels(batch, verified)} if moves else {}
        for _ in range(repeats(self.task, self.starts[2], self.steps)):
            result = self._final_step(batch, verified)
        return StepResult(result.scalars | moved, result.log_probs)

    @property
    def _ratio(self) -> float:
        """Clean samples in a step, per noisy one: as many as they count, so that each is seen about as often."""
        return min(self.clean_ratio, max(self.counts, LEAST_RATIO))

    def _number(self) -> int:  # of the present step
        return round(self.progress * self.task.epochs * self.steps)

    def excluded(self) -> Tensor | None:
        return self.chosen if len(self.chosen) else None

    def before_estimate(self, data: Splits) -> None:
        self.counts, self._will_regress = counted(data), self.regression and not self.task.warm and self.regresses(data)

    def relative_cost(self, epoch: int) -> float:
        if self._will_regress and epoch < self.starts[2]:
            return 0.0
        if epoch < self.starts[1]:
            steps = self.starts[1] * -(-len(self.task.given) // self.task.batch_size)
            clean = 0.0 if self.auto_clean else min(1.0, self.clean_steps / steps) + FINE_TUNE / self.folds
            return (self.folds - 1) * (1 + clean)  # each network learns from what is outside its fold
        if epoch < self.starts[2]:
            return (1 + self._ratio) * (self.folds - 1)
        step = 1 + self._ratio + (1 / 3 if self.own_weight > 0 else 0.0)
        again = repeats(self.task, self.starts[2], -(-len(self.task.given) // self.task.batch_size))
        return again * step + (2.0 / self.label_every if self._learns_labels(epoch) else 0.0)

    # Stage 1: networks of the given labels, and of the clean samples alone

    def _noisy_step(self, batch: Batch, clean: Batch | None) -> StepResult:
        loss, log_probs = self.fit_folds("noisy", batch, cross_entropy)
        scalars = {"loss": loss}
        every = max(1, -(-self.steps * self.starts[1] // self.clean_steps))
        if clean is not None and self._number() % every == 0:
            scalars["clean/loss"] = self.fit_clean_folds("clean", clean)
        return StepResult(scalars, log_probs)

    # Stage 2: networks that know the transition matrix

    def _forward_step(self, batch: Batch, clean: Batch) -> StepResult:
        transition, offset = self.transition.float(), self.offset.float()

        def losses(log_probs: Tensor, label: Tensor) -> Tensor:
            return forward_cross_entropy((log_probs + offset).log_softmax(1), label, transition)

        weight, beside = self.clean_weight * self.counts, some(clean, self._ratio)
        loss, log_probs = self.fit_folds("corrected", batch, losses, beside=beside, clean_weight=weight)
        return StepResult({"loss": loss}, log_probs)

    # Stage 3: the deployed network

    def _final_step(self, batch: Batch, clean: Batch) -> StepResult:
        if self._refines:
            self.own.ask(self.network, batch, noisy_shift(self.offset, self.class_shares))
        soft, clean = self.soft_labels(batch.index), some(clean, self._ratio)
        target = torch.cat([soft, self._unit[clean.label]])
        inputs = concat_inputs([batch.inputs, clean.inputs])
        sizes = (size := len(batch.index), len(clean.index))
        if self._parts is None or self._parts.sizes != sizes:
            self._parts = StepParts.of(
                sizes, self.offset, self.class_shares, self.clean_weight * self.counts, self._shifts
            )
        if self.mixes:
            assert isinstance(inputs, Tensor)
            inputs, target = mixed(inputs, target, self._parts.other)
        logits = call(self.network, inputs)
        shifted = logits + self._parts.shift.to(logits.dtype) if self._parts.shifts else logits
        log_probs = log_softmax(shifted)
        losses = soft_cross_entropy(log_probs, target)
        if self.given_labels:
            noisy = self.given_labels.losses(
                losses[:size], log_probs[:size], batch.label, self.transition.to(log_probs.dtype)
            )
            losses = torch.cat([noisy, losses[size:]])
        self.descend(self.optimizer, losses @ self._parts.weight.to(losses.dtype))
        scalars = {"loss": losses[:size].detach().mean(), "labels/changed": self._changed(batch, soft)}
        if self.label_rate > 0:
            start = self.log_posterior(batch.index).softmax(1)
            scalars["labels/moved"] = total_variation(self._displaced(batch.index), start).mean()
        return StepResult(scalars, log_softmax(logits[:size].detach()) if self._parts.shifts else log_probs[:size])

    def _changed(self, batch: Batch, soft: Tensor) -> Tensor:
        """The fraction of a batch's soft labels whose most probable class is not the given one."""
        if self._kept is None or self._refines:
            return (soft.argmax(1) != batch.label).float().mean()
        return self._kept_changed.index_select(0, batch.index).mean()

    @property
    def _refines(self) -> bool:
        """Whether labels follow the deployed network: without mixup, it predicts the labels that it was trained on."""
        return self.own_weight > 0 and self.mixes

    def _learns_labels(self, epoch: int) -> bool:
        """Whether labels move in this epoch: not in the first third of stage 3, where the network knows little."""
        start = 0 if self.task.warm else self.starts[2] + (self.task.epochs - self.starts[2]) // 3
        return self.label_rate > 0 and epoch >= start

    def move_labels(self, batch: Batch, clean: Batch) -> Tensor:
        """Move the label logits of a batch against the derivative of its predictions along the clean gradient."""
        shift, weight = noisy_shift(self.offset, self.class_shares), self.offset.float().exp()[clean.label]
        direction, clean_loss = label_direction(self.engine, self.network, batch, clean, shift, weight)
        # The largest so far: once the network fits the clean samples, what is left of their gradient is no evidence,
        # and steps that are always of one length would follow it all the same.
        self.scale.copy_(torch.maximum(self.scale, averaged([direction.abs().amax(1).mean()])[0]))
        self.table.add(batch.index, -self.label_rate * self.label_every * direction / self.scale.clamp_min(1e-12))
        return clean_loss

    def soft_labels(self, index: Tensor) -> Tensor:
        if self.stage < 2:
            return self._unit[self.table.given[index]]
        soft = self._displaced(index)
        return self.own.refined(index, soft) if self._refines else soft

    def _displaced(self, index: Tensor) -> Tensor:
        """(n, classes) the posterior as label learning has moved it; if nothing moves it any more, it is kept."""
        if self.label_rate > 0 or ranks() > 1 or len(self.task.given) * self.task.classes > KEPT:
            return (self.log_posterior(index) + self.table.displaced(index)).softmax(1)
        if self._kept is None:
            every = torch.arange(len(self.task.given), device=self.task.device)
            self._kept = (self.log_posterior(every) + self.table.displaced(every)).softmax(1)
            self._kept_changed = (self._kept.argmax(1) != self.table.given).float()
        return self._kept.index_select(0, index.to(self.task.device))

    def labels_fixed(self, epochs: int) -> str | None:
        return "the run ended before stage 3" if self.stage < 2 else None

    def unseen(self, index: Tensor) -> Tensor | None:
        if self.stage < 2:
            return None
        return (self.weighed(index) + self.offset.float()).log_softmax(1)

    def class_shift(self) -> Tensor | None:
        return None if self.stage < 2 or self.auto_clean else self.offset

    # State

    _kept: Tensor | None = None  # soft labels of all samples in stage 3
    _kept_changed: Tensor  # whether each of them is of another class than the given one
    _parts: StepParts | None = None  # of its last step
    _shifts = False  # whether class shares of noisy and clean samples differ

    def extra(self) -> dict[str, Any]:
        return {
            "stage": self.stage,
            "regressed": self.regressed,
            "steps": self.steps,
            "counts": self.counts,
            "mixes": self.mixes,
            "by_heart": self.by_heart,
            "given_labels": list(self.given_labels),
            "chosen": self.chosen,
            "clean_fold": self.clean_fold,
            "clean_predictions": dict(self.clean_predictions),
            "least": dict(self.least),
            "verified": self.verified._asdict(),
        }

    def restore_extra(self, extra: dict[str, Any]) -> None:
        self.steps, self.mixes, self.chosen = int(extra["steps"]), bool(extra["mixes"]), extra["chosen"].cpu()
        self.counts = float(extra.get("counts", 1.0))  # older checkpoints have none
        self.by_heart = float(extra.get("by_heart", self.mixes))  # older checkpoints have what followed from it
        self.given_labels = GivenLabels(*extra.get("given_labels", ()))
        self.regressed = bool(extra.get("regressed", False))
        self.set_clean_folds(extra["clean_fold"])
        self.clean_predictions = {name: value.cpu() for name, value in extra["clean_predictions"].items()}
        self.least = {name: float(loss) for name, loss in extra["least"].items()}
        self.verified = CleanPredictions(**{name: value.cpu() for name, value in extra["verified"].items()})

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        self._enter(int(state_dict["_extra_state"]["extra"]["stage"]))
        self._kept = self._parts = None
        loaded = super().load_state_dict(state_dict, strict, assign)
        self._shifts = bool(self.offset.any())
        return loaded

    def continue_from(self, state: Mapping[str, Any]) -> None:
        if int(state["_extra_state"]["extra"]["stage"]) < 2:
            raise ValueError("the earlier run ended before it had any labels, so it cannot be used as a warm start")
        super().continue_from(state)
        if not self.auto_clean:
            self.chosen = torch.empty(0, dtype=torch.int64)  # there is a clean set now
