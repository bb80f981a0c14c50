"""Meta Soft Label Generation (Algan and Ulusoy): learn a soft label for every training sample by a meta-gradient.

Warm-up, then for each batch: look ahead along the gradient of the classification loss, take the clean gradient g there,
move the label logits against D_g of the predictions, and train on the improved labels:

    δ_j ← δ_j − label_rate · D_g p_j,        g = ∇(clean loss) at θ − look_ahead · ∇(mean classification loss)

    soft label of j  =  softmax(K·onehot(given_j) + δ_j)                 prior "given": as published
                     =  softmax(log T[·, given_j] + log p_j + δ_j)       prior "matrix"

With the published loss the label step is, up to a factor, the exact gradient of the clean loss. The matrix
T[i, j] = P(given j | true i) is counted on the clean samples. Which of the two priors suits the noise is not known
in advance, so by default the warm-up trains one network with each, and the clean samples decide. The paper's α is
both the look-ahead and a factor of the label step; here they are two arguments that depend neither on the batch size
nor on the number of classes. `from_paper` translates.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from ...bilevel import Bilevel, Mode
from ...bilevel.label_table import LabelTable
from ...data.batch import Batch, call
from ...data.sample_table import file_if_large
from ...data.splits import Splits
from ...networks.evaluating import evaluating
from ...noise.transition_matrix import count, expected_counts, smooth
from ...registry import expect_name
from ...runtime.distributed import broadcast_object, gathered
from ...training.losses import cross_entropy, entropy, forward_kl
from ...training.method import SingleNetwork, StepResult, Task
from .contest import calibrated_loss, entropy_weight_from_error, fine_tune, outputs
from .paper import paper_settings, published, released
from .step import (
    LOSSES,
    Loss,
    check_log_offset,
    classification_loss,
    log_posterior,
    log_soft_labels,
    mean_move,
    mslg_step,
    shared_clean_gradient,
)

log = logging.getLogger("mslg")

Prior = Literal["choose", "given", "matrix"]
LEAST = 1e-6  # smallest transition probability: a matrix estimated from few samples has zeros
STARTS = {"given": "given labels", "matrix": "posterior of the transition matrix"}


class MSLG(SingleNetwork):
    """The whole method.

    Args:
        task: what is known about the problem.
        warm_up: fraction of the run, or epochs if ≥ 1, before label learning. It trains by cross entropy on the given
            labels, and with the prior "choose" also a second network on the posterior of the matrix.
        look_ahead: length of the gradient step from θ to θ̂ (the paper's α); 0 = none.
        label_rate: step of the label logits along D_g p (the paper's αβ/N); 0 = no label learning: a control.
        prior: where labels start: "given", "matrix", or "choose": that of the warm-up network that fits the clean
            samples better.
        start: K: with the prior "given", label logits start at K·onehot(given).
        loss: with the prior "given": "reverse-kl" = L_c,2, KL(p‖ŷ), or "forward-kl" = L_c,1, KL(ŷ‖p).
        entropy_weight: γ of the entropy loss; at 1 the reverse-KL training loss is exactly −Σ p log ŷ. By default 0
            with the prior "given"; with "matrix" the higher, the smaller the error on clean samples (see
            `entropy_weight_from_error`).
        loss_scale: factor on the training loss (1/classes reproduces the authors' code).
        log_offset: with prior "given" and loss "reverse-kl": log(ŷ + log_offset) replaces log ŷ (1e-10 in the authors'
            code).
        finish: after the last epoch, fine-tune on clean batches at a fraction of the learning rate, for this fraction
            of the run's steps at a time, as long as the loss of the clean samples held out for selection falls;
            0 = none.
        mode: how the tangent is computed (see `mslg.bilevel.Bilevel`).
        recompute: less memory for one more forward pass (see `mslg.bilevel.Bilevel`).
        clean_every: number of steps that share a clean gradient. At high label rates, labels then overshoot.
        auto_clean: without a clean set, use the lowest-loss samples of each class after the warm-up instead, and do
            not train on them; the prior is then "given".
        auto_share: their fraction of the training set.
        table_file: keep the label table in this memory-mapped file instead of in memory.
        table_dtype: "float32" or "float16".
    """

    needs = frozenset({"clean set"})
    advice = "a smaller label_rate or look_ahead, a longer warm_up, or more clean samples"
    label_advice = 'a larger label_rate; with the prior "given" also loss="reverse-kl", as published'
    presets: ClassVar = {
        "published": published,
        "released": released,
        "fast": lambda task: {"mode": "head", "clean_every": 2},
    }

    log_columns: Tensor

    def __init__(
        self,
        task: Task,
        *,
        warm_up: float = 1 / 3,
        look_ahead: float = 0.002,
        label_rate: float = 0.2,
        prior: Prior = "choose",
        start: float = 10.0,
        loss: Loss = "forward-kl",
        entropy_weight: float | None = None,
        loss_scale: float = 1.0,
        log_offset: float = 0.0,
        finish: float = 0.1,
        mode: Mode = "exact",
        recompute: bool = False,
        clean_every: int = 1,
        auto_clean: bool = False,
        auto_share: float = 0.02,
        table_file: Path | str | None = None,
        table_dtype: Literal["float32", "float16"] = "float32",
    ) -> None:
        super().__init__(task)
        expect_name("prior", prior, get_args(Prior))
        expect_name("loss", loss, LOSSES)
        expect_name("table_dtype", table_dtype, ("float32", "float16"))
        if not isinstance(entropy_weight, int | float | None):
            raise ValueError(f"entropy_weight is '{entropy_weight}'; it must be a number, or left out")
        amounts = {"look_ahead": look_ahead, "label_rate": label_rate, "start": start, "finish": finish}
        for name, value in {**amounts, "entropy_weight": entropy_weight or 0.0}.items():
            if value < 0:
                raise ValueError(f"{name} is {value}; it must be 0 or more")
        if auto_clean and warm_up == 0:
            raise ValueError(
                "auto_clean needs a warm_up above 0: the losses of an untrained network say nothing about labels"
            )
        if auto_clean and prior == "matrix":
            raise ValueError('auto_clean has no clean samples to count a matrix on; leave prior out, or use "given"')
        if prior == "matrix" and warm_up == 0 and task.pairs is None:
            raise ValueError('prior="matrix" needs a warm_up above 0, or clean samples with given and verified labels')
        self.prior: Prior = "given" if auto_clean else prior
        check_log_offset(log_offset, loss, given=self.prior == "given")
        self.first_label_epoch = task.warm_up_epochs(warm_up, before="MSLG's label learning")
        self.look_ahead, self.label_rate, self.entropy_weight = look_ahead, label_rate, entropy_weight
        if label_rate == 0:
            self.advice = "a smaller learning rate"
        self.loss, self.loss_scale, self.mode, self.recompute = loss, loss_scale, mode, recompute
        self.saves_memory = recompute
        self.log_offset, self.clean_every = log_offset, clean_every
        self.finish = finish
        self.auto_clean, self.auto_share = auto_clean, auto_share
        self.table = LabelTable(
            task.given.to(task.device),
            task.classes,
            start=start,
            dtype=getattr(torch, table_dtype),
            path=self._table_file(table_file, getattr(torch, table_dtype)),
        )
        self.chosen = torch.empty(0, dtype=torch.int64)  # samples used as a clean set
        self.rival: nn.Module | None = None  # the network that tries the prior "matrix" in the warm-up
        if self.prior != "given":
            self.register_buffer("log_columns", torch.zeros(task.classes, task.classes, device=task.device))
            if task.pairs is not None:
                self._set_matrix(smooth(count(*task.pairs, task.classes), None))
        if self.prior == "choose":
            self.rival = copy.deepcopy(self.network)
            self.rival_optimizer = self.add_optimizer("rival", self.rival)
        self.settled: Prior = self.prior  # "choose" until the clean samples have decided
        if self.prior == "matrix":
            self._remember_predictions()
        self.entropy_used = entropy_weight or 0.0
        self._make_engine()

    @classmethod
    def from_paper(
        cls,
        task: Task,
        alpha: float = 0.5,
        beta: float = 4000,
        *,
        reduction: Literal["batch", "element"] = "batch",
        **others: Any,
    ) -> MSLG:
        """Published MSLG with the paper's two rates; `reduction="element"` reads them as the authors' code does."""
        scaled = paper_settings(alpha, beta, batch_size=task.batch_size, classes=task.classes, reduction=reduction)
        return cls(task, **{**published(task), **scaled, **others})

    def begin_epoch(self, epoch: int, data: Splits) -> None:
        if self.auto_clean and data.clean is not None:
            raise ValueError("auto_clean is for runs without a clean set, and there is one; leave one of the two out")
        if self.task.warm:
            return  # the earlier run has chosen and estimated everything
        if self.auto_clean and epoch == self.first_label_epoch:
            self.chosen = self._lowest_losses(data)
        if self.settled == "given":
            return
        if data.clean is None:
            raise ValueError(
                f'MSLG with the prior "{self.prior}" needs clean samples and there are none; pass clean= (--clean), or '
                '"auto" to use low-loss samples instead'
            )
        if self.task.pairs is None and epoch == self.first_matrix_epoch:
            self._estimate_matrix(data)
        if epoch != self.first_label_epoch:
            return
        if self.settled == "choose":
            self._settle(self._better(data))
            log.info("MSLG: the labels start from the %s", STARTS[self.settled])
        if self.settled == "matrix" and self.entropy_weight is None:
            self.entropy_used = entropy_weight_from_error(*outputs(self.network, data, data.unbiased_clean))

    def end_epoch(self, epoch: int, data: Splits) -> None:
        if epoch + 1 == self.task.epochs and self.finish > 0 and data.clean is not None and data.select is not None:
            steps = round(self.finish * self.task.epochs * data.steps(self.excluded()))
            fine_tune(self.network, self.task, data, data.select, steps=steps, descend=self.descend)

    @property
    def first_matrix_epoch(self) -> int:
        """The first epoch with a matrix. Without samples with given and verified labels, a network estimates it."""
        return 0 if self.task.pairs is not None else max(1, self.first_label_epoch // 2)

    def excluded(self) -> Tensor | None:
        return self.chosen if len(self.chosen) else None

    def relative_cost(self, epoch: int) -> float:
        if epoch >= self.first_label_epoch:
            fine_tuning = self.finish * self.task.epochs if epoch + 1 == self.task.epochs else 0.0
            return fine_tuning + (self.engine.relative_cost(self.look_ahead) if self.label_rate > 0 else 1.0)
        return 2.0 if self.prior == "choose" and epoch >= self.first_matrix_epoch else 1.0

    def extra(self) -> dict[str, Any]:
        # Decided once or in an earlier step, so part of the state.
        once = {"chosen": self.chosen, "settled": self.settled, "entropy_used": self.entropy_used}
        return {**once, "kept": self.engine.kept}

    def restore_extra(self, extra: dict[str, Any]) -> None:
        self.chosen, self.entropy_used = extra["chosen"], float(extra["entropy_used"])
        self.engine.kept = None
        if (kept := extra.get("kept")) is not None:
            self.engine.keep(*kept)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        settled = state_dict["_extra_state"]["extra"]["settled"]
        if settled != self.settled:
            if self.settled != "choose":
                raise ValueError(
                    f'this MSLG has settled on the prior "{self.settled}", the state to load is of "{settled}"; '
                    "build a new one to load it into"
                )
            self._settle(settled)  # the checkpoint has only the winner's weights
        return super().load_state_dict(state_dict, strict, assign)

    def continue_from(self, state: Mapping[str, Any]) -> None:
        if self.table.displacement.path is not None or "table.displacement.rows" not in state:
            raise ValueError(
                "a label table in a file cannot be used as a warm start; use memory in both runs (no table_file), or "
                "start from scratch with the decisions alone"
            )
        if state["_extra_state"]["extra"]["settled"] == "choose":
            raise ValueError(
                "the earlier run of MSLG ended in its warm-up and cannot be used as a warm start; start from scratch"
            )
        super().continue_from(state)
        self.engine.kept = None  # the clean set may have changed
        if self.entropy_weight is not None:  # it may have changed since the earlier run; a computed one is kept
            self.entropy_used = self.entropy_weight
        if not self.auto_clean:
            self.chosen = torch.empty(0, dtype=torch.int64)  # there is a clean set now

    def soft_labels(self, index: Tensor) -> Tensor:
        if self.settled != "matrix":
            return self.table.soft(index)
        given = self.table.given[index]
        return log_posterior(self.recent[index].float(), given, self.log_columns, self.table.displaced(index)).exp()

    def start_labels(self, index: Tensor) -> Tensor:
        if self.settled != "matrix":
            return self.table.start_soft(index)
        recent = self.recent[index].float()
        return log_posterior(recent, self.table.given[index], self.log_columns, torch.zeros_like(recent)).exp()

    def labels_fixed(self, epochs: int) -> str | None:
        if self.label_rate == 0:
            return "label_rate is 0"
        return None if epochs > self.first_label_epoch else "the run ended before label learning"

    def before_microbatches(self, microbatches: list[Batch], clean: Iterator[Batch]) -> None:
        learning = self.epoch >= self.first_label_epoch and self.label_rate > 0
        if learning and (self.engine.kept is None or self.engine.kept.steps < len(microbatches)):
            shared_clean_gradient(
                self.engine,
                self.table,
                microbatches,
                next(clean),
                log_columns=self._columns(),
                look_ahead=self.look_ahead,
                loss=self.loss,
                log_offset=self.log_offset,
            )

    def step(self, batch: Batch, clean: Iterator[Batch]) -> StepResult:
        if self.epoch < self.first_label_epoch:
            result = self._warm_up(batch)
        elif self.label_rate == 0:
            result = self._train(batch)
        else:
            result = self._learn(batch, next(clean) if self.engine.kept is None else None)
        if self.settled == "matrix":
            self.recent[batch.index] = result.log_probs
        if self.settled != "choose":  # log what the clean samples have decided
            decided = {"prior/matrix": float(self.settled == "matrix"), "entropy/weight": self.entropy_used}
            result.scalars.update({name: result.log_probs.new_full((), value) for name, value in decided.items()})
        return result

    def _warm_up(self, batch: Batch) -> StepResult:
        knows_matrix = self.settled != "given" and self.epoch >= self.first_matrix_epoch
        if self.rival is not None and knows_matrix:
            log_probs = call(self.rival, batch.inputs).log_softmax(1)
            log_soft = log_soft_labels(self.table, batch, self.log_columns, log_probs)
            self.descend(self.rival_optimizer, forward_kl(log_probs, log_soft).mean())
        return self._train(batch) if self.settled == "matrix" and knows_matrix else self.cross_entropy_step(batch)

    def _train(self, batch: Batch) -> StepResult:
        """A step without label learning."""
        log_probs = self.log_probs(batch.inputs)
        columns = self._columns()
        classification = classification_loss(self.loss if columns is None else "forward-kl", self.log_offset)
        log_soft = log_soft_labels(self.table, batch, columns, log_probs)
        loss = classification(log_probs, log_soft).mean() + self.entropy_used * entropy(log_probs).mean()
        self.descend(self.optimizer, self.loss_scale * loss)
        changed = (log_soft.argmax(1) != batch.label).float().mean()
        moved = mean_move(self.table, batch, columns, log_probs, log_soft)
        labels = {"labels/step": torch.zeros_like(changed), "labels/moved": moved, "labels/changed": changed}
        return StepResult({"loss": loss, **labels}, log_probs)

    def _columns(self) -> Tensor | None:
        return None if self.settled == "given" else self.log_columns

    def _learn(self, batch: Batch, clean: Batch | None) -> StepResult:
        return mslg_step(
            self.engine,
            self.table,
            self.optimizer,
            batch,
            clean,
            log_columns=self._columns(),
            look_ahead=self.look_ahead,
            label_rate=self.label_rate,
            loss=self.loss,
            entropy_weight=self.entropy_used,
            loss_scale=self.loss_scale,
            log_offset=self.log_offset,
            descend=self.descend,
        )

    def _table_file(self, path: Path | str | None, dtype: torch.dtype) -> Path | None:
        samples, classes = len(self.task.given), self.task.classes
        return file_if_large(self.task.tables, "labels", samples, classes, dtype) if path is None else Path(path)

    def _make_engine(self) -> None:
        head = self.task.head(self.network)
        self.engine = Bilevel(
            self.network, mode=self.mode, recompute=self.recompute, clean_every=self.clean_every, head=head
        )

    def _set_matrix(self, transition: Tensor) -> None:
        self.log_columns.copy_(transition.clamp_min(LEAST).log().t())

    def _estimate_matrix(self, data: Splits) -> None:
        """From the given labels that the network, trained on given labels so far, predicts for the clean samples. The
        rival starts from the network's present state."""
        with evaluating(self.network):
            expected = expected_counts(self.log_probs, data, self.task.classes)
            self._set_matrix(smooth(expected, 0.0))
        if self.rival is not None:
            self.rival.load_state_dict(self.network.state_dict())
            self.rival_optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))

    def _better(self, data: Splits) -> Prior:
        """The prior whose network fits the clean samples better. Neither has been trained on them."""
        assert self.rival is not None
        if self.first_label_epoch <= self.first_matrix_epoch:
            return "given"  # the rival was never trained
        contenders: dict[Prior, nn.Module] = {"given": self.network, "matrix": self.rival}
        losses = {
            prior: calibrated_loss(*outputs(network, data, data.unbiased_clean))
            for prior, network in contenders.items()
        }
        chosen: Prior = broadcast_object(min(losses, key=lambda prior: losses[prior]))
        return chosen

    def _settle(self, prior: Prior) -> None:
        """End the contest: keep the winner, drop the other network."""
        self.settled = prior
        if prior == "matrix":
            assert self.rival is not None
            self.network, self.optimizer = self.rival, self.rival_optimizer
            self.drop_optimizer("network", replaced_by="rival")
            self._remember_predictions()
        else:
            self.drop_optimizer("rival")
            del self.log_columns
        self.rival = None
        del self.rival_optimizer
        self._make_engine()

    def _remember_predictions(self) -> None:
        self.recent = self.task.new_sample_table("recent_predictions", self.task.classes, dtype=torch.float16)

    def _lowest_losses(self, data: Splits) -> Tensor:
        """Indices of the samples of each given class with the lowest losses after the warm-up."""
        with evaluating(self.network):
            rows = [(b.index, b.label, cross_entropy(self.log_probs(b.inputs), b.label)) for b in data.in_order()]
        index, label, loss = (gathered(torch.cat(columns)) for columns in zip(*rows, strict=True))
        share = max(1, round(self.auto_share * len(index) / self.task.classes))
        easiest = [(label == c).nonzero().flatten() for c in range(self.task.classes)]
        return index[torch.cat([members[loss[members].argsort()[:share]] for members in easiest])].sort().values.cpu()
