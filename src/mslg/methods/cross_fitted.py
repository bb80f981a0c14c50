"""Cross-fitted labels: every soft label comes from predictions that have not seen the given label it replaces.

    1. N_k, A_k   networks trained without fold k of the noisy and of the clean samples: on given labels, then
                  fine-tuned on clean samples (N); on clean samples alone (A)
       T, π       transition matrix and class shares of the noisy set: by EM from their predictions, T smoothed by the
                  counts of samples with given and verified labels
    2. B_k        networks trained without fold k by the forward loss through T, and by cross entropy on clean samples
       q_j        softmax(w_N log p_N + w_A log p_A + w_B log p_B + a log T[·, given_j] + log π/π_clean), the weights
                  fitted on the clean samples, out of fold
    3. the deployed network, trained on softmax(log q_j + δ_j) and on the clean samples; the displacement δ is learned
       by the meta-gradient:  δ_j ← δ_j − label_rate · d_j / mean_i max|d_i|,   d_j = centred D_g log p_j

so that a label's logits move by `label_rate` nats per epoch on average, however flat the softmax is. Each stage has the
whole of the learning-rate schedule.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ..bilevel import Bilevel, Mode
from ..bilevel.label_table import LabelTable
from ..data.batch import Batch, Inputs, call, concat_inputs, map_inputs
from ..data.sample_table import pieces_of
from ..data.splits import Splits
from ..noise.transition_matrix import count, pool, smooth, smoothed_by_best_prior
from ..runtime.distributed import averaged, broadcast_object, ranks
from ..training.losses import cross_entropy, forward_cross_entropy, log_probability_tangent, soft_cross_entropy
from ..training.method import StepResult, Task
from ..training.schedules import cosine
from ..training.stacking import fit_weights, floored
from .fold_networks import FoldNetworks

log = logging.getLogger("mslg")

CLEAN_STEPS = 150  # of each clean-only network, and of fine-tuning: more only memorise the few clean samples
FINE_TUNE_RATE = 0.1  # of the learning rate
EM_STEPS = 30
DENSE = 0.1  # least fraction of inputs that are not zero for mixup: means of sparse texts are no texts
LEAST = 1e-6  # an entry of a transition matrix that was never counted is unlikely, not impossible

ClassShares = Literal["between", "training", "clean"]


class CrossFitted(FoldNetworks):
    """The whole method.

    folds          number of folds; a network that predicts a fold has seen neither its noisy nor its clean samples
    noisy_stage    fraction of the run, or epochs if ≥ 1, of stage 1
    forward_stage  the same of stage 2; the rest of the run trains the deployed network
    clean_weight   of the clean samples' loss in stages 2 and 3
    label_rate     how far label logits move in an epoch of stage 3, in nats; 0 = no label learning: a control
    label_every    steps between two moves of labels; each is as many times longer
    mode           how the tangent is computed (see `mslg.bilevel.Bilevel`)
    decay          factor on the weight decay of the deployed network
    mixup          mix the inputs and labels of a batch in stage 3, where inputs are dense floating-point tensors
    class_shares   which shares of the classes the deployed network expects: those of the training data, of the clean
                   samples, or their geometric mean
    """

    needs = frozenset({"clean set"})
    advice = "a smaller label_rate or learning rate, or more clean samples"
    label_advice = "a larger label_rate"
    presets: ClassVar = {
        "fast": lambda task: {"folds": 2, "noisy_stage": 1 / 8, "forward_stage": 1 / 8, "label_rate": 0.0}
    }

    def __init__(
        self,
        task: Task,
        *,
        folds: int = 4,
        noisy_stage: float = 1 / 6,
        forward_stage: float = 1 / 6,
        clean_weight: float = 1.0,
        label_rate: float = 0.3,
        label_every: int = 2,
        mode: Mode = "exact",
        decay: float = 10.0,
        mixup: bool = True,
        class_shares: ClassShares = "between",
    ) -> None:
        super().__init__(task, folds)
        if label_every < 1:
            raise ValueError(f"label_every is {label_every}; it must be 1 step or more")
        for name, value in {"clean_weight": clean_weight, "label_rate": label_rate, "decay": decay}.items():
            if value < 0:
                raise ValueError(f"{name} is {value}; it must be 0 or more")
        self.clean_weight, self.label_rate, self.label_every = clean_weight, label_rate, label_every
        self.mode, self.decay, self.mixup, self.class_shares = mode, decay, mixup, class_shares
        forward = task.warm_up_epochs(noisy_stage, before="the forward stage of cross-fitting")
        length = 0 if task.warm else max(1, round(forward_stage * task.epochs if forward_stage < 1 else forward_stage))
        self.starts = (0, forward, forward + length)  # the first epoch of each stage
        if self.starts[2] >= task.epochs:
            raise ValueError(
                f"a run of {task.epochs} epochs has none left for the deployed network after {self.starts[2]} of "
                f"cross-fitting; train for at least {self.starts[2] + 1} epochs or shorten noisy_stage and "
                "forward_stage"
            )
        self.schedule = self._schedule
        for group in self.optimizer.param_groups:
            if "weight_decay" in group:
                group["weight_decay"] *= decay
        self.mixes = False  # whether the inputs can be mixed
        self.steps = 0  # per epoch
        self.clean_steps = CLEAN_STEPS
        self.table = LabelTable(task.given.to(task.device), task.classes, start=0.0)
        self.register_buffer("weights", torch.zeros(4, dtype=torch.float64, device=task.device))  # of N, A, B, log T
        self.register_buffer("transition", torch.eye(task.classes, dtype=torch.float64, device=task.device))
        self.register_buffer("offset", torch.zeros(task.classes, dtype=torch.float64, device=task.device))
        self.engine = Bilevel(self.network, mode=mode, head=task.head(self.network))
        self.stage = -1
        self._enter(2 if task.warm else 0)

    weights: Tensor
    transition: Tensor
    offset: Tensor

    # Stages

    def _schedule(self, progress: float) -> float:
        """Every stage has the whole of the task's schedule."""
        bounds = [start / self.task.epochs for start in self.starts] + [1.0]
        stage = max(number for number in range(3) if progress >= bounds[number] - 1e-9)
        return self.task.schedule((progress - bounds[stage]) / (bounds[stage + 1] - bounds[stage]))

    def _enter(self, stage: int) -> None:
        """Make the networks and tables of this stage, and of those passed over, and drop what is no longer needed."""
        for number in range(self.stage + 1, stage + 1):
            for name in {0: ("noisy", "clean"), 1: ("corrected",)}.get(number, ()):
                self.add_group(name)
            for name in {1: ("noisy", "clean"), 2: ("corrected",)}.get(number, ()):
                self.drop_group(name)
        self.stage = stage

    def begin_epoch(self, epoch: int, data: Splits) -> None:
        if data.clean is None:
            raise ValueError(
                "cross-fitted needs clean samples and there are none; pass clean= (--clean): a set of verified "
                "samples, or a number of verified samples to take out of the data"
            )
        self.steps = data.steps(self.excluded())
        if not len(self.clean_fold):
            self.assign_clean_folds(data.clean)
            self.mixes = self.mixup and bool(broadcast_object(_is_dense(next(data.in_order()).inputs)))
        if self.task.warm:
            return
        if epoch == self.starts[1]:
            self._finish_first_stage(epoch, data)
            self._enter(1)
        if epoch == self.starts[2]:
            self._finish_second_stage(data)
            self._enter(2)

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        return (self._noisy_step, self._forward_step, self._final_step)[self.stage](batch, next(clean))

    def relative_cost(self, epoch: int) -> float:
        if epoch < self.starts[1]:
            return self.folds + 0.2
        if epoch < self.starts[2]:
            return 1.5 * self.folds
        return 1.5 + (2.0 / self.label_every if self._learns_labels(epoch) else 0.0)

    # Stage 1: networks of the given labels, and of the clean samples alone

    def _noisy_step(self, batch: Batch, clean: Batch) -> StepResult:
        loss, log_probs = self.fit_folds("noisy", batch, lambda log_probs: cross_entropy(log_probs, batch.label))
        scalars = {"loss": loss}
        every = max(1, -(-self.steps * self.starts[1] // self.clean_steps))
        if round(self.progress * self.task.epochs * self.steps) % every == 0:
            scalars["clean/loss"] = self.fit_clean_folds("clean", clean)
        return StepResult(scalars, log_probs)

    def _finish_first_stage(self, epoch: int, data: Splits) -> None:
        """Fine-tune on clean samples, predict everything out of fold, and estimate the transition matrix."""
        samples = data.unbiased_clean
        assert samples is not None
        given_by_noisy = self.predict_clean("noisy", data, samples, out_of_fold=False).exp()
        expected = torch.zeros(self.task.classes, self.task.classes, dtype=torch.float64)
        expected.index_add_(0, samples.label, given_by_noisy)
        self._fine_tune(epoch, data)
        clean = {name: self.predict_clean(name, data, samples) for name in ("noisy", "clean")}
        for name in clean:
            self.predict_training(name, data)
        weights = fit_weights(torch.stack([floored(each) for each in clean.values()]), samples.label, centre=(0.5, 0.5))
        shares = (torch.bincount(samples.label, minlength=self.task.classes).double() + 1) / (
            len(samples) + self.task.classes
        )
        pairs = samples.pairs()
        start = smooth(expected, 0.0) if pairs is None else smooth(count(*pairs, self.task.classes), None)
        estimate, found = self.expectation_maximisation(data, weights, start, shares)
        matrix = estimate if pairs is None else smoothed_by_best_prior(*pairs, self.task.classes, estimate)[0]
        self.transition.copy_(matrix)
        self.offset.copy_((found / shares).log())
        self.clean_predictions = clean

    def _fine_tune(self, epoch: int, data: Splits) -> None:
        """The networks of the given labels, on clean samples, at a fraction of the learning rate."""
        networks = list(self.group("noisy").children())
        optimizers = [self.task.new_optimizer([p for p in net.parameters() if p.requires_grad]) for net in networks]
        rates = [[float(group["lr"]) for group in optimizer.param_groups] for optimizer in optimizers]
        passes = 0.15 * self.task.epochs * self.steps / self.folds
        steps = min(CLEAN_STEPS, max(10, round(passes)))
        batches = data.clean_batches(epoch)
        for number in range(steps):
            factor = FINE_TUNE_RATE * cosine(number / steps)
            for optimizer, initial in zip(optimizers, rates, strict=True):
                for group, rate in zip(optimizer.param_groups, initial, strict=True):
                    group["lr"] = rate * factor
            self.fit_clean_folds("noisy", next(batches), optimizers)

    def expectation_maximisation(
        self, data: Splits, weights: Tensor, transition: Tensor, clean_shares: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The transition matrix under which the given labels are most likely, and the class shares under which the
        predictions are: shares fitted to the given labels too would follow noise that depends on the inputs."""
        classes = self.task.classes
        shares = from_inputs = clean_shares
        for _ in range(EM_STEPS):
            joint, counts = (torch.zeros(*shape, dtype=torch.float64) for shape in ((classes, classes), (classes,)))
            for index in pieces_of(data.own(), classes):
                given = self.task.given[index]
                tables = [floored(self.table_of(name)[index].cpu()) for name in ("noisy", "clean")]
                like = (weights[0] * tables[0] + weights[1] * tables[1]).softmax(1) / clean_shares
                joint.index_add_(0, given, _normalised(like * shares * transition.T[given]))
                counts += _normalised(like * from_inputs).sum(0)
            joint, counts = (total * ranks() for total in averaged([joint.T.contiguous(), counts]))  # (true, given)
            shares, from_inputs = ((each + 1) / (each.sum() + classes) for each in (joint.sum(1), counts))
            transition = (joint + pool(joint)) / (joint.sum(1, keepdim=True) + 1)
        return transition, from_inputs

    # Stage 2: networks that know the transition matrix

    def _forward_step(self, batch: Batch, clean: Batch) -> StepResult:
        transition, offset = self.transition.float(), self.offset.float()

        def losses(log_probs: Tensor) -> Tensor:
            return forward_cross_entropy((log_probs + offset).log_softmax(1), batch.label, transition)

        loss, log_probs = self.fit_folds(
            "corrected", batch, losses, beside=_half(clean), clean_weight=self.clean_weight
        )
        return StepResult({"loss": loss}, log_probs)

    def _finish_second_stage(self, data: Splits) -> None:
        """Fit the weights of the posterior on the clean samples."""
        samples = data.unbiased_clean
        assert samples is not None
        self.predict_training("corrected", data)
        sources = [*self.clean_predictions.values(), self.predict_clean("corrected", data, samples)]
        columns = torch.zeros(len(samples), self.task.classes, dtype=torch.float64)
        if (pairs := samples.pairs()) is not None:
            assert samples.given is not None
            columns[samples.given >= 0] = smoothed_by_best_prior(*pairs, self.task.classes, self.transition.cpu())[
                1
            ].log()
        features = torch.stack([*(floored(each) for each in sources), columns])
        centre = (1 / 3, 1 / 3, 1 / 3, 1.0)
        known = 4 if pairs is not None else 3
        self.weights[:known] = fit_weights(features[:known], samples.label, centre=centre[:known])
        if pairs is None:
            self.weights[3] = 1.0
        self.clean_predictions = {}
        log.info(
            "cross-fitted: weights of the networks of noisy labels %.2f, of clean samples %.2f, of forward correction "
            "%.2f; of the given label %.2f",
            *self.weights.tolist(),
        )

    # Stage 3: the deployed network

    def _final_step(self, batch: Batch, clean: Batch) -> StepResult:
        scalars: dict[str, Tensor] = {}
        number = round(self.progress * self.task.epochs * self.steps)
        if self._learns_labels(self.epoch) and number % self.label_every == 0:
            scalars["clean/loss"] = self.move_labels(batch, clean)
        soft = self.soft_labels(batch.index)
        clean = _half(clean)
        target = torch.cat([soft, self._one_hot(clean.label)])
        inputs = concat_inputs([batch.inputs, clean.inputs])
        if self.mixes:
            inputs, target = _mixed(inputs, target, len(batch.index))
        logits = call(self.network, inputs)
        share = {"between": 0.5, "training": 0.0, "clean": 1.0}[self.class_shares]
        noisy = (logits[: len(batch.index)] + share * self.offset.to(logits.dtype)).log_softmax(1)
        loss = soft_cross_entropy(noisy, target[: len(batch.index)]).mean()
        verified = soft_cross_entropy(logits[len(batch.index) :].log_softmax(1), target[len(batch.index) :]).mean()
        self.descend(self.optimizer, loss + self.clean_weight * verified)
        given = batch.label
        scalars |= {
            "loss": loss,
            "labels/changed": (soft.argmax(1) != given).float().mean(),
            "labels/moved": (soft - self.log_posterior(batch.index).softmax(1)).abs().sum(1).mean() / 2,
        }
        return StepResult(scalars, logits[: len(batch.index)].log_softmax(1))

    def _learns_labels(self, epoch: int) -> bool:
        """Whether labels move in this epoch: not in the first third of stage 3, where the network knows little."""
        start = 0 if self.task.warm else self.starts[2] + (self.task.epochs - self.starts[2]) // 3
        return self.label_rate > 0 and epoch >= start

    def move_labels(self, batch: Batch, clean: Batch) -> Tensor:
        """Move the label logits of a batch against the derivative of its predictions along the clean gradient."""
        self.network.eval()  # predictions as they are deployed: without dropout, with the statistics of all batches
        moved = self.engine(
            batch.inputs,
            lambda logits: logits.sum(),
            clean.inputs,
            lambda logits: cross_entropy(logits.log_softmax(1), clean.label).mean(),
            look_ahead=0.0,
        )
        self.network.train()
        direction = log_probability_tangent(moved.logits.detach().log_softmax(1), moved.tangent)
        direction = direction - direction.mean(1, keepdim=True)
        scale = averaged([direction.abs().amax(1).mean()])[0].clamp_min(1e-12)
        self.table.add(batch.index, -self.label_rate * self.label_every * direction / scale)
        return moved.clean_loss

    def soft_labels(self, index: Tensor) -> Tensor:
        if self.stage < 2:
            return self._one_hot(self.table.given[index])
        return (self.log_posterior(index) + self.table.displaced(index)).softmax(1)

    def start_labels(self, index: Tensor) -> Tensor:
        return self.soft_labels(index) if self.stage < 2 else self.log_posterior(index).softmax(1)

    def labels_fixed(self, epochs: int) -> str | None:
        if self.label_rate == 0:
            return "label_rate is 0"
        return None if self._learns_labels(epochs - 1) else "the run ended before label learning"

    def _one_hot(self, label: Tensor) -> Tensor:
        return torch.eye(self.task.classes, device=label.device)[label]

    def log_posterior(self, index: Tensor) -> Tensor:
        """(n, classes) log q up to a constant, as the clean samples weigh its parts."""
        given = self.table.given[index]
        column = self.transition.clamp_min(LEAST).log().T[given]
        total = self.weights[3] * column + self.offset
        return (total + self.label_free(index)).float()

    def label_free(self, index: Tensor) -> Tensor:
        """(n, classes) the weighed logarithms of the predictions that have not seen the given labels."""
        parts = [
            weight * floored(self.table_of(name)[index])
            for weight, name in zip(self.weights[:3], ("noisy", "clean", "corrected"), strict=True)
        ]
        return torch.stack(parts).sum(0)

    # State

    clean_predictions: dict[str, Tensor] = {}  # noqa: RUF012 - replaced, never changed; of N and A until stage 2 ends

    def extra(self) -> dict[str, Any]:
        return {
            "stage": self.stage,
            "steps": self.steps,
            "mixes": self.mixes,
            "clean_fold": self.clean_fold,
            "clean_predictions": dict(self.clean_predictions),
        }

    def restore_extra(self, extra: dict[str, Any]) -> None:
        self.steps, self.mixes = int(extra["steps"]), bool(extra["mixes"])
        self.clean_fold = extra["clean_fold"]
        self.clean_predictions = {name: value.cpu() for name, value in extra["clean_predictions"].items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        self._enter(int(state_dict["_extra_state"]["extra"]["stage"]))
        return super().load_state_dict(state_dict, strict, assign)

    def continue_from(self, state: Mapping[str, Any]) -> None:
        if int(state["_extra_state"]["extra"]["stage"]) < 2:
            raise ValueError("the earlier run ended before it had any labels, so it cannot be used as a warm start")
        super().continue_from(state)


def _normalised(rows: Tensor) -> Tensor:
    return rows / rows.sum(1, keepdim=True)


def _half(batch: Batch) -> Batch:
    """Half of the samples: of the clean ones beside as many noisy ones, enough to learn from and cheaper."""
    return Batch(batch.index[::2], map_inputs(lambda tensor: tensor[::2], batch.inputs), batch.label[::2])


def _is_dense(inputs: Inputs) -> bool:
    """Whether a mean of two inputs is an input: floating-point tensors that are not mostly zeros."""
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        return False
    return bool((inputs != 0).float().mean() >= DENSE)


def _mixed(inputs: Tensor, target: Tensor, noisy: int) -> tuple[Tensor, Tensor]:
    """Mixup (Zhang et al. 2018) with Beta(1, 1), the noisy samples among themselves and the clean ones likewise."""
    device = inputs.device
    share = torch.rand((), device=device)
    share = torch.maximum(share, 1 - share)
    order = torch.cat(
        [torch.randperm(noisy, device=device), noisy + torch.randperm(len(inputs) - noisy, device=device)]
    )
    return share * inputs + (1 - share) * inputs[order], share * target + (1 - share) * target[order]
