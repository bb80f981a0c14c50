"""The comparison of a run with its controls: which apply, what they cost, and the result."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.optim import Optimizer

from ...data.samples import Samples
from ...data.splits import Splits
from ...methods import METHODS
from ...runtime.distributed import broadcast_object
from ...runtime.durations import in_words, range_in_words
from ...training.cost import duration_range, work_of
from ...training.evaluation import predictions
from ...training.method import Method, Task
from ...training.progress import Progress
from ..folder import Run, earlier_run
from ..results import write_summary
from .catalog import CONTROLS, TRIALS, Control, Trial
from .trial import HoldoutPredictions, honest_accuracy, right, train_trial
from .verdict import Answers, judge, not_compared, paired_interval

log = logging.getLogger("mslg")

LONG = 120  # seconds; the cost of longer controls is logged as a warning
# All controls together are to take no longer than the run. If they would, each is first trained for fewer epochs, at
# least so many, with the whole schedule, and one of them then for as long as the run: the strongest of those that are
# not clearly worse than the best, since few epochs and few samples tell little. None is left out: who is beaten only
# because of that would make a false "it helped" (benchmarks/comparison_cost.py).
LEAST_EPOCHS = 3
FEW_EPOCHS = 5  # of a run whose controls are all trained for as long
LEAST_DECAY = 1e-4  # base of the stronger weight decay if the run has none


class Attempt(NamedTuple):
    """A trial of so many epochs."""

    trial: str
    epochs: int


class ControlResult(NamedTuple):
    """What a control's best attempt has come to."""

    name: str
    attempt: Attempt
    predicted: Tensor  # (judged samples,) class
    select: float  # accuracy on the select part
    epoch: int  # of the predictions


@dataclass
class Comparison:
    """The controls of one run, each trained on the same samples, network, schedule and seed as the method."""

    learner: Method
    settings: Mapping[str, Any]  # the learner's constructor arguments
    data: Splits
    resolved: Mapping[str, Any]  # the run's settings
    folder: Path | None  # of the run
    test: Samples | None = None  # the test set, on which controls that have to be trained are compared
    method: str = field(init=False)  # its name
    work: dict[str, float] = field(
        default_factory=dict, init=False
    )  # cost of each trial still to be run, in plain steps
    seconds: float = field(default=0.0, init=False)  # the same as time
    controls: dict[str, Control] = field(default_factory=dict, init=False)
    left_out: dict[str, str] = field(default_factory=dict, init=False)  # why a control is left out
    why_not: str | None = field(default=None, init=False)  # why no control can be trained
    epochs: int = field(default=0, init=False)  # of each control at first
    whole: int = field(default=0, init=False)  # of the run, and so of the best control in the end
    final: float = field(default=0.0, init=False)  # cost of that in plain steps; 0 if all are trained for as long

    def __post_init__(self) -> None:
        self.method = str(self.resolved["method"]["name"])

    def announce(self, *, budget: float | None = None) -> None:
        """Select the controls that apply, and log what they will cost."""
        try:
            _refuse_without_report(self.data)
            _refuse_trained(self.learner.task)
            self.epochs = self.whole = _epochs(self.resolved["train"], self.folder)
        except (ValueError, OSError) as error:
            self.why_not = str(error)
            return
        self._select()
        own = work_of(self.learner, self.data, self.learner.task.epochs) * self.whole / self.learner.task.epochs
        if self.whole > FEW_EPOCHS and sum(self.work.values()) > own:
            self._race(own)
        self.work = {
            trial: work for trial, work in self.work.items() if not self._finished(Attempt(trial, self.epochs))
        }
        if self.final and any(self._finished(Attempt(trial, self.whole)) for trial in TRIALS):
            self.final = 0.0
        if not (self.work or self.final):
            return
        self.seconds, most = duration_range(self.learner, self.data, sum(self.work.values()) + self.final)
        log.log(
            logging.WARNING if self.seconds > LONG else logging.INFO,
            "plan: then train %d controls to compare with, %s%s; skip them with --no-compare (compare=False)",
            len(self.work) or 1,
            range_in_words(self.seconds, most),
            "" if budget is None else ", if the time budget allows",
        )

    def _race(self, own: float) -> None:
        """Fewer epochs for all controls, such that one of them can then be trained for as long as the run."""
        self.final = max(self.work.values())
        epochs = int(self.whole * (own - self.final) / sum(self.work.values()))
        self.epochs = max(LEAST_EPOCHS, epochs)
        self._select()

    def _select(self) -> None:
        """The controls that apply, and the cost of their trials."""
        self.controls, self.left_out, self.work = {}, {}, {}
        for name, control in CONTROLS.items():
            if not self._says_something(control):
                continue
            try:
                self._add(name, control)
            except ValueError as error:  # such as a run that is too short for its stages
                self.left_out[name] = str(error)

    def complete(
        self,
        summary: dict[str, Any],
        run: Run | None,
        *,
        display: Callable[[str], Progress],
        checkpoint_seconds: float,
        time_left: float | None = None,
    ) -> None:
        """Compare, and add the comparison to the summary, which already has the run's own results."""
        found = self.compared(display=display, checkpoint_seconds=checkpoint_seconds, time_left=time_left)
        if found["helped"] is False:
            log.warning(found["verdict"])
        summary["comparison"] = found
        if run is not None:
            write_summary(run, summary)

    def compared(
        self, *, display: Callable[[str], Progress], checkpoint_seconds: float, time_left: float | None = None
    ) -> dict[str, Any]:
        """Train the controls that are missing, and return the `comparison` of a summary."""
        if self.why_not is not None:
            return self._out_of_fold() or not_compared(self.why_not)
        if time_left is not None and broadcast_object(self.seconds > time_left):
            return not_compared(
                f"the controls take about {in_words(self.seconds)}, which exceeds the time budget; resume the run "
                "without a budget to train them"
            )
        looks: dict[Attempt, HoldoutPredictions] = {}

        def attempt(trial: str, epochs: int) -> None:
            found = train_trial(
                partial(self._build, TRIALS[trial], epochs),
                self.data,
                self._run(Attempt(trial, epochs)),
                test=self.test,
                display=display(trial),
                checkpoint_seconds=checkpoint_seconds,
            )
            if found is not None:
                looks[Attempt(trial, epochs)] = found

        for trial in dict.fromkeys(trial for control in self.controls.values() for trial in control.trials):
            attempt(trial, self.epochs)
        if self.whole > self.epochs and (results := self._results(looks)):
            attempt(broadcast_object(self._finalist(results, looks)), self.whole)
        return self._judged(looks)

    def _finalist(self, results: list[ControlResult], looks: Mapping[Attempt, HoldoutPredictions]) -> str:
        """The trial to be trained for as long as the run."""
        best = max(results, key=lambda each: each.select)

        def answers(result: ControlResult) -> Tensor:
            return looks[result.attempt].select[min(result.epoch, self.epochs - 1)]

        as_good = [each for each in results if paired_interval(answers(best), answers(each))[0] <= 0]
        return as_good[-1].attempt.trial  # they are in the order of their strength

    def _out_of_fold(self) -> dict[str, Any] | None:
        """Where no clean samples are held out: the method's own networks that have not seen a clean sample, together
        and each kind alone; None if it has none."""
        clean = self.data.unbiased_clean
        if self.data.report is not None or clean is None or (own := self.learner.unseen_clean(clean)) is None:
            return None
        answers = []
        for name, predicted in self.learner.unseen_controls(clean).items():
            answered = right(predicted, clean)
            use = _use(TRIALS[name], self._config(TRIALS[name], self.epochs), self.epochs - 1, self.epochs)
            answers.append(Answers(name, CONTROLS[name].words, answered, float(answered.double().mean()), use))
        return {**judge(self.method, right(own.argmax(1), clean), answers, select=0), "left_out": []}

    def _results(self, looks: Mapping[Attempt, HoldoutPredictions]) -> list[ControlResult]:
        """Of each control the best attempt, as far as the select part shows."""
        found = []
        for name, control in self.controls.items():
            own = {attempt: look for attempt, look in looks.items() if attempt.trial in control.trials}
            if not own:
                continue
            if control.chosen:
                attempt = max(own, key=lambda each: max(int(epoch.sum()) for epoch in own[each].select))
                accuracy, epoch = honest_accuracy(list(own.values())), own[attempt].best_epoch()
                found.append(ControlResult(name, attempt, own[attempt].best, accuracy, epoch))
            else:
                attempt = max(own, key=lambda each: (int(own[each].select[-1].sum()), each.epochs))
                accuracy = float(own[attempt].select[-1].double().mean())
                found.append(ControlResult(name, attempt, own[attempt].last, accuracy, attempt.epochs - 1))
        return found

    def _judged(self, looks: Mapping[Attempt, HoldoutPredictions]) -> dict[str, Any]:
        select, report = self.data.select, self.data.report
        assert select is not None
        assert report is not None
        judged = report if self.test is None else self.test
        answers = []
        for name, attempt, predicted, accuracy, epoch in (results := self._results(looks)):
            trial = TRIALS[attempt.trial]
            use = _use(trial, self._config(trial, attempt.epochs), epoch, int(self.resolved["train"]["epochs"]))
            answers.append(Answers(name, CONTROLS[name].words, right(predicted, judged), accuracy, use))
        found = {each.name for each in results}
        self.left_out |= {name: "its training diverged" for name in self.controls if name not in found}
        self.learner.eval()
        own = right(predictions(self.learner, self.data, judged).argmax(1), judged)
        left_out = [{"name": name, "words": CONTROLS[name].words, "why": why} for name, why in self.left_out.items()]
        samples = "held-out clean samples" if self.test is None else "test samples"
        comparison = judge(self.method, own, answers, select=len(select), samples=samples)
        return {**comparison, "on_test": self.test is not None, "left_out": left_out}

    def _says_something(self, control: Control) -> bool:
        """Whether the control differs from the method itself, and the method has the settings that it changes."""
        for trial in (TRIALS[name] for name in control.trials):
            if trial.method is None:
                settings = inspect.signature(type(self.learner)).parameters
                return all(
                    key in settings and getattr(self.learner, key) != trial.settings[key] for key in trial.settings
                )
            if trial.method == self.method and not control.chosen:
                return False
        return True

    def _add(self, name: str, control: Control) -> None:
        if "pairs" in control.needs and self.data.pairs is None:
            raise ValueError("it needs clean samples with given and verified labels")
        for trial in control.trials:
            learner = self._build(TRIALS[trial], self.epochs)
            self.work[trial] = work_of(learner, self.data, learner.task.epochs)
        self.controls[name] = control

    def _build(self, trial: Trial, epochs: int) -> Method:
        task = self.learner.task.again()
        task.epochs = epochs
        if trial.weight_decay != 1:
            task.optimizer = _decayed(task, trial.weight_decay)
        made: Any = type(self.learner) if trial.method is None else METHODS.load(trial.method)
        shared = {
            key: value for key, value in self.settings.items() if trial.method is None and key not in trial.without
        }
        method: Method = made(task, **{**shared, **trial.settings})
        return method

    def _config(self, trial: Trial, epochs: int) -> dict[str, Any]:
        """The settings of a trial, in the form of a run's config."""
        method = self.resolved["method"] if trial.method is None else {"name": trial.method}
        kept = {key: value for key, value in method.items() if key not in trial.without}
        train = {key: value for key, value in self.resolved["train"].items() if not key.startswith("from_run")}
        decay = _stronger(train["weight_decay"], trial.weight_decay)
        length = {"epochs": epochs, "epochs_asked": epochs}
        return {
            **self.resolved,
            "method": {**kept, **trial.settings},
            "train": {**train, **length, "weight_decay": decay},
        }

    def _path(self, attempt: Attempt) -> Path | None:
        name = attempt.trial if attempt.epochs == self.epochs else f"{attempt.trial}-all-epochs"
        return None if self.folder is None else self.folder / "controls" / name

    def _finished(self, attempt: Attempt) -> bool:
        path = self._path(attempt)
        return path is not None and bool(broadcast_object(Run(path).finished))

    def _run(self, attempt: Attempt) -> Run | None:
        if (path := self._path(attempt)) is None:
            return None
        there = broadcast_object((path / "config.toml").exists())
        return Run.open(path) if there else Run.create(path, self._config(TRIALS[attempt.trial], attempt.epochs))


def _refuse_without_report(data: Splits) -> None:
    if data.clean is None:
        raise ValueError("there are no clean samples to compare on; pass some with clean= (--clean)")
    if data.report is None:
        held = "none of the {} clean samples is held out: they are too few, or hold_out is off"
        raise ValueError(held.format(len(data.clean)))


def _refuse_trained(task: Task) -> None:
    if task.warm and isinstance(task.network, nn.Module):
        raise ValueError(
            "the run is warm-started and the network was passed as an instance, which the earlier run may have "
            "trained, so controls cannot start from scratch; pass a function that makes the network"
        )


def _epochs(train: Mapping[str, Any], folder: Path | None) -> int:
    """Epochs of the run in this folder, including those of the runs that it was warm-started from."""
    own = int(train["epochs"])
    if train.get("from_run") is None:
        return own
    earlier = earlier_run(Path(train["from_run"]), of=folder)
    return own + _epochs(earlier.config["train"], earlier.path)


def _decayed(task: Task, factor: float) -> Callable[[Iterable[nn.Parameter]], Optimizer]:
    """The task's optimizer with a stronger weight decay, if it has one."""
    plain = task.optimizer

    def new_optimizer(parameters: Iterable[nn.Parameter]) -> Optimizer:
        optimizer = plain(parameters)
        for group in optimizer.param_groups:
            if "weight_decay" in group:
                group["weight_decay"] = _stronger(group["weight_decay"], factor)
        return optimizer

    return new_optimizer


def _stronger(decay: float, factor: float) -> float:
    return decay if factor == 1 else factor * (decay or LEAST_DECAY)


def _use(trial: Trial, config: Mapping[str, Any], epoch: int, asked: int) -> str:
    """The options of `mslg fit` that reproduce this control."""
    words = [] if trial.method is None else [f"--method {trial.method}"]
    words += [f"--set {key}={value:g}" for key, value in trial.settings.items()]
    if trial.weight_decay != 1:
        words.append(f"--set weight_decay={config['train']['weight_decay']:g}")
    epochs = config["train"]["epochs"]
    if epochs != asked:
        words.append(f"--epochs {epochs}")
    if epoch + 1 < epochs:
        words.append(f"(best after {epoch + 1} of {epochs} epochs)")
    return " ".join(words)
