"""The comparison of a run with its controls: which apply, what they cost, and the result."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn
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
from .verdict import Answers, judge, not_compared

log = logging.getLogger("mslg")

LONG = 120  # seconds; the cost of longer controls is logged as a warning
# All controls together are to take no longer than the run: if need be, each is trained for fewer epochs, with the whole
# schedule, down to a fraction of the run's. Trained for longer, they would rather memorise wrong labels.
SHORTEST, FEWEST_EPOCHS = 1 / 4, 5
LEAST_DECAY = 1e-4  # base of the stronger weight decay if the run has none


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
    epochs: int = field(default=0, init=False)  # of each control

    def __post_init__(self) -> None:
        self.method = str(self.resolved["method"]["name"])

    def announce(self, *, budget: float | None = None) -> None:
        """Select the controls that apply, and log what they will cost."""
        try:
            _refuse_without_report(self.data)
            _refuse_trained(self.learner.task)
            self.epochs = _epochs(self.resolved["train"], self.folder)
        except (ValueError, OSError) as error:
            self.why_not = str(error)
            return
        whole = self.epochs
        self._select()
        own = work_of(self.learner, self.data, self.learner.task.epochs) * whole / self.learner.task.epochs
        needed = sum(self.work.values())
        if needed > own:
            self.epochs = min(whole, max(FEWEST_EPOCHS, round(whole * max(own / needed, SHORTEST))))
            self._select()
        self.work = {trial: work for trial, work in self.work.items() if not self._finished(trial)}
        if not self.work:
            return
        self.seconds, most = duration_range(self.learner, self.data, sum(self.work.values()))
        log.log(
            logging.WARNING if self.seconds > LONG else logging.INFO,
            "plan: then train %d controls to compare with, %s%s; skip them with --no-compare (compare=False)",
            len(self.work),
            range_in_words(self.seconds, most),
            "" if budget is None else ", if the time budget allows",
        )

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
        looks: dict[str, HoldoutPredictions] = {}
        for name in dict.fromkeys(trial for control in self.controls.values() for trial in control.trials):
            found = train_trial(
                partial(self._build, TRIALS[name]),
                self.data,
                self._run(name),
                test=self.test,
                display=display(name),
                checkpoint_seconds=checkpoint_seconds,
            )
            if found is not None:
                looks[name] = found
        return self._judged(looks)

    def _out_of_fold(self) -> dict[str, Any] | None:
        """Where no clean samples are held out: the method's own networks that have not seen a clean sample, together
        and each kind alone; None if it has none."""
        clean = self.data.unbiased_clean
        if self.data.report is not None or clean is None or (own := self.learner.unseen_clean(clean)) is None:
            return None
        answers = []
        for name, predicted in self.learner.unseen_controls(clean).items():
            answered = right(predicted, clean)
            use = _use(TRIALS[name], self._config(TRIALS[name]), self.epochs - 1, self.epochs)
            answers.append(Answers(name, CONTROLS[name].words, answered, float(answered.double().mean()), use))
        return {**judge(self.method, right(own.argmax(1), clean), answers, select=0), "left_out": []}

    def _judged(self, looks: Mapping[str, HoldoutPredictions]) -> dict[str, Any]:
        select, report = self.data.select, self.data.report
        assert select is not None
        assert report is not None
        judged = report if self.test is None else self.test
        answers = []
        for name, control in self.controls.items():
            trials = {trial: looks[trial] for trial in control.trials if trial in looks}
            if not trials:
                self.left_out[name] = "its training diverged"
                continue
            trial = max(trials, key=lambda trial: max(int(epoch.sum()) for epoch in trials[trial].select))
            look = trials[trial]
            if control.chosen:
                predicted, accuracy, epoch = look.best, honest_accuracy(list(trials.values())), look.best_epoch()
            else:
                predicted, accuracy, epoch = look.last, float(look.select[-1].double().mean()), len(look.select) - 1
            use = _use(TRIALS[trial], self._config(TRIALS[trial]), epoch, int(self.resolved["train"]["epochs"]))
            answers.append(Answers(name, control.words, right(predicted, judged), accuracy, use))
        self.learner.eval()
        own = right(predictions(self.learner, self.data, judged).argmax(1), judged)
        left_out = [{"name": name, "words": CONTROLS[name].words, "why": why} for name, why in self.left_out.items()]
        samples = "held-out clean samples" if self.test is None else "test samples"
        found = judge(self.method, own, answers, select=len(select), samples=samples)
        return {**found, "on_test": self.test is not None, "left_out": left_out}

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
            learner = self._build(TRIALS[trial])
            self.work[trial] = work_of(learner, self.data, learner.task.epochs)
        self.controls[name] = control

    def _build(self, trial: Trial) -> Method:
        task = self.learner.task.again()
        task.epochs = self.epochs
        if trial.weight_decay != 1:
            task.optimizer = _decayed(task, trial.weight_decay)
        made: Any = type(self.learner) if trial.method is None else METHODS.load(trial.method)
        shared = {
            key: value for key, value in self.settings.items() if trial.method is None and key not in trial.without
        }
        method: Method = made(task, **{**shared, **trial.settings})
        return method

    def _config(self, trial: Trial) -> dict[str, Any]:
        """The settings of a trial, in the form of a run's config."""
        method = self.resolved["method"] if trial.method is None else {"name": trial.method}
        kept = {key: value for key, value in method.items() if key not in trial.without}
        train = {key: value for key, value in self.resolved["train"].items() if not key.startswith("from_run")}
        decay = _stronger(train["weight_decay"], trial.weight_decay)
        length = {"epochs": self.epochs, "epochs_asked": self.epochs}
        return {
            **self.resolved,
            "method": {**kept, **trial.settings},
            "train": {**train, **length, "weight_decay": decay},
        }

    def _path(self, trial: str) -> Path | None:
        return None if self.folder is None else self.folder / "controls" / trial

    def _finished(self, trial: str) -> bool:
        path = self._path(trial)
        return path is not None and bool(broadcast_object(Run(path).finished))

    def _run(self, trial: str) -> Run | None:
        if (path := self._path(trial)) is None:
            return None
        there = broadcast_object((path / "config.toml").exists())
        return Run.open(path) if there else Run.create(path, self._config(TRIALS[trial]))


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
