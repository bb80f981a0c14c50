"""From noisy data, clean data and a network to a trained model and corrected labels, in one call."""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

from .checkpoint import write_atomically
from .collapse import CollapseWatch
from .estimate import in_words, seconds_per_plain_step, work_of
from .exam import Exam
from .issues import label_frame, write_labels
from .method import Factory, Method, Task
from .methods import METHODS
from .names import unknown
from .progress import Closing, Progress, Silent, for_terminal
from .run import Run
from .schedule import schedule as schedule_named
from .source import Source, make_source
from .splits import Samples, Splits, split
from .trace import Trace
from .train import EpochRecord, NonFiniteLoss, Position, train

log = logging.getLogger("mslg")

LONG = 120  # seconds: a run longer than this announces its cost before it starts
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": lambda parameters, lr, weight_decay: torch.optim.SGD(
        parameters, lr=lr, momentum=0.9, weight_decay=weight_decay
    ),
    "adam": lambda parameters, lr, weight_decay: torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay),
    "adamw": lambda parameters, lr, weight_decay: torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay),
}


@dataclass
class Result:
    """What came out of a run."""

    model: nn.Module
    soft_labels: np.ndarray[Any, Any]  # (training samples, classes), rows in the order of `labels`
    labels: pd.DataFrame  # one row a training sample: given, predicted and suggested label, quality, rank
    history: pd.DataFrame  # one row an epoch
    summary: dict[str, Any]
    classes: tuple[str, ...]
    method: Method = field(repr=False)
    run: Run | None = None


def fit(
    network: nn.Module | Factory,
    noisy: Any,
    clean: Any = None,
    *,
    method: str = "mslg",
    preset: str | None = None,
    test: Any = None,
    true_labels: Any = None,
    epochs: int = 30,
    batch_size: int = 64,
    clean_batch_size: int | None = None,
    optimizer: str | Callable[[Iterable[nn.Parameter]], Optimizer] = "sgd",
    learning_rate: float = 0.05,
    weight_decay: float = 1e-4,
    schedule: str = "cosine",
    noise_rate: float | None = None,
    transition: Any = None,
    head: str | None = None,
    hold_out: bool = True,
    seed: int = 0,
    device: str = "auto",
    output: Path | str | None = None,
    resume: bool = False,
    force: bool = False,
    checkpoint_minutes: float = 10.0,
    time_budget: float | None = None,
    progress: bool | Progress = True,
    tensorboard: bool = False,
    config: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Result:
    """Train a network on noisy labels and learn better ones.

    network      a module, or a function that makes one (needed by methods that start over)
    noisy        (X, y) arrays or tensors, or a map-style Dataset of (x, y)
    clean        the same with verified labels; or a number of verified samples to take out of `noisy`; or "auto";
                 200 or more are divided 60/20/20 into those that steer, select and report (unless hold_out=False)
    method       a name from `mslg list methods`; further keyword arguments go to its constructor
    output       a folder for the run: config, metrics, checkpoints, model, labels. With resume=True a run that was
                 interrupted goes on where it was, bit for bit
    time_budget  seconds: the number of epochs is reduced so that the run fits
    """
    if epochs < 1:
        raise ValueError(f"epochs is {epochs}; a run needs at least 1")
    where = _device(device)
    source = as_source(noisy, "the noisy set")
    if true_labels is not None:
        source = source.with_true_labels(true_labels)
    clean_source: Source | int | None
    if isinstance(clean, str):
        if clean != "auto":
            raise unknown("kind of clean set", clean, ["auto"])
        clean_source, settings = None, {"clean": "auto", **settings}
    else:
        clean_source = clean if clean is None or isinstance(clean, int) else as_source(clean, "the clean set", source)
    data = split(
        source,
        clean_source,
        hold_out=hold_out,
        batch_size=batch_size,
        clean_batch_size=clean_batch_size,
        seed=seed,
        device=where,
    )

    def new_optimizer(parameters: Iterable[nn.Parameter]) -> Optimizer:
        if callable(optimizer):
            return optimizer(parameters)
        if optimizer not in OPTIMIZERS:
            raise unknown("optimizer", optimizer, OPTIMIZERS)
        return OPTIMIZERS[optimizer](parameters, lr=learning_rate, weight_decay=weight_decay)

    def new_task(length: int) -> Task:
        return Task(
            given=source.label,
            classes=len(source.classes),
            network=network,
            epochs=length,
            batch_size=batch_size,
            optimizer=new_optimizer,
            schedule=schedule_named(schedule),
            noise_rate=noise_rate,
            transition=None if transition is None else torch.as_tensor(transition).to(where),
            pairs=data.pairs,
            head_name=head,
            seed=seed,
            device=where,
        )

    folder = None if output is None else Path(output)
    if resume and folder is not None and (folder / "config.toml").exists():
        epochs = int(Run.open(folder).config["train"]["epochs"])
    learner = build_method(method, new_task(epochs), data, preset, settings)
    check_outputs(learner, data)
    if time_budget is not None and not resume:
        shorter = _fitting_epochs(learner, data, epochs, time_budget)
        if shorter != epochs:
            log.warning("%d epochs fit into %s; %d were asked for", shorter, in_words(time_budget), epochs)
            epochs = shorter
            learner = build_method(method, new_task(epochs), data, preset, settings)
    resolved = {
        "data": {"samples": len(source), "fingerprint": source.fingerprint(), **(config or {}).get("data", {})},
        "network": {"class": type(learner.deployed()).__name__, **(config or {}).get("network", {})},
        "method": {"name": method, "preset": preset, **plain_settings(learner, settings)},
        "train": {
            "epochs": epochs,
            "batch_size": batch_size,
            "clean_batch_size": clean_batch_size or batch_size,
            "optimizer": optimizer if isinstance(optimizer, str) else "custom",
            "learning_rate": learning_rate,
            "weight_decay": weight_decay,
            "schedule": schedule,
            "hold_out": hold_out,
            "seed": seed,
        },
    }
    exam = Exam(data, _test_samples(test, source), source.true_label)
    display = progress if not isinstance(progress, bool) else for_terminal(method) if progress else Silent()
    return _carry_out(
        learner,
        data,
        source,
        exam,
        resolved,
        folder=folder,
        resume=resume,
        force=force,
        checkpoint_seconds=60 * checkpoint_minutes,
        time_budget=time_budget,
        display=display,
        tensorboard=tensorboard,
    )


def _carry_out(
    learner: Method,
    data: Splits,
    source: Source,
    exam: Exam,
    resolved: dict[str, Any],
    *,
    folder: Path | None,
    resume: bool,
    force: bool,
    checkpoint_seconds: float,
    time_budget: float | None,
    display: Progress,
    tensorboard: bool,
) -> Result:
    epochs = int(resolved["train"]["epochs"])
    position = Position(Trace(source.label.to(data.device), len(source.classes)))
    run, records = None, []
    if folder is not None:
        if resume and (folder / "config.toml").exists():
            run = Run.open(folder)
            _refuse_other_settings(run, resolved)
            if run.load(learner, position):
                log.info("going on from epoch %d, step %d", position.epoch + 1, position.step)
            records = [EpochRecord(int(line.pop("epoch")), line, {}) for line in run.history()]
        else:
            run = Run.create(folder, resolved, force=force)
    writer = _tensorboard(run) if tensorboard and run is not None else None
    _announce(learner, data, epochs, position)
    watch = CollapseWatch(source.label[data.train.index], len(source.classes))
    begun = saved = time.monotonic()
    stopped = False

    def after_step(position: Position) -> None:
        nonlocal saved
        display.advance(learner.relative_cost(position.epoch), position)
        if run is not None and time.monotonic() - saved >= checkpoint_seconds:
            run.save(learner, position)
            saved = time.monotonic()

    with Closing(display):
        total = work_of(learner, data, epochs)
        display.begin(epochs, total, total - work_of(learner, data, epochs, position.epoch))
        try:
            for record in train(learner, data, epochs=epochs, position=position, exam=exam, after_step=after_step):
                records.append(record)
                display.advance(learner.relative_cost(record.epoch), position)
                display.epoch(record)
                watch(record)
                if run is not None:
                    run.append(record)
                    run.save(learner, position)
                    saved = time.monotonic()
                if writer is not None:
                    for name, value in record.metrics.items():
                        writer.add_scalar(name, value, record.epoch)
                if time_budget is not None and time.monotonic() - begun > time_budget and position.epoch < epochs:
                    stopped = True
                    break
        except NonFiniteLoss as error:
            if run is not None:
                run.write_json("summary.json", {"state": "failed", "error": str(error)})
            raise
    if writer is not None:
        writer.close()
    learner.eval()
    summary = summarise(records, exam, data, state="stopped" if stopped else "done")
    if stopped:
        log.warning("stopped after epoch %d of %d: the time budget is used up; resume to go on", position.epoch, epochs)
    if run is not None:
        _write_results(run, learner, data, source, position, summary)
    frame = label_frame(source, data, learner, position.trace)
    history = pd.DataFrame([{"epoch": record.epoch, **record.metrics} for record in records])
    soft = np.stack(frame["soft_label"].to_list())
    return Result(learner.deployed(), soft, frame, history, summary, source.classes, learner, run)


def as_source(data: Any, name: str, like: Source | None = None) -> Source:
    """Arrays, tensors, a Dataset or a Source as a source, with the classes of another where there is one."""
    classes = None if like is None else like.classes
    if isinstance(data, Source):
        return data
    if isinstance(data, tuple | list) and len(data) == 2:
        return make_source(data[0], data[1], classes=classes, name=name)
    if isinstance(data, tuple | list):
        raise TypeError(f"{name} is a {type(data).__name__} of {len(data)}; give (inputs, labels) or a Dataset")
    return make_source(data, classes=classes, name=name)


def build_method(
    name: str, task: Task, data: Splits, preset: str | None = None, settings: Mapping[str, Any] | None = None
) -> Method:
    """A method by name: its constructor's defaults, then the preset, then the settings."""
    made = METHODS.load(name)
    settings = dict(settings or {})
    allowed = [key for key in inspect.signature(made).parameters if key != "task"]
    for key in settings:
        if key not in allowed:
            raise unknown(f"setting of {name}", key, allowed or ["(it has none)"])
    if preset is not None:
        if preset not in made.presets:
            raise unknown(f"preset of {name}", preset, made.presets or ["(it has none)"])
        settings = {**made.presets[preset](task), **settings}
    if "clean set" in made.needs and data.clean is None and settings.get("clean") != "auto":
        raise ValueError(
            f"{name} needs clean samples and there are none; pass clean= (--clean): a set of verified samples, a "
            'number of verified samples to take out of the data, or "auto" to use low-loss samples instead'
        )
    if "noise rate" in made.needs and task.noise_rate is None and settings.get("forget_rate") is None:
        raise ValueError(f"{name} needs the noise rate; pass noise_rate= (--noise-rate), a share between 0 and 1")
    method: Method = made(task, **settings)
    return method


def plain_settings(method: Method, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every constructor argument as resolved, for the record."""
    parameters = inspect.signature(type(method)).parameters
    found = {
        key: settings.get(key, getattr(method, key, parameter.default))
        for key, parameter in parameters.items()
        if key != "task"
    }
    return {key: value for key, value in found.items() if isinstance(value, str | bool | int | float)}


def check_outputs(method: Method, data: Splits) -> None:
    """The network must give one logit a class: found out before the first epoch, not in its middle."""
    method.eval()
    with torch.no_grad():
        shape = tuple(method.predict(next(data.in_order()).inputs).shape)
    method.train()
    if len(shape) != 2 or shape[1] != method.task.classes:
        raise ValueError(
            f"the network gives outputs of shape {shape} but the data has {method.task.classes} classes; "
            f"its last layer must have {method.task.classes} outputs"
        )


def summarise(records: list[EpochRecord], exam: Exam, data: Splits, *, state: str) -> dict[str, Any]:
    """The numbers of the last epoch, and of the epoch that was best on the select part."""
    if not records:
        return {"state": state, "epochs": 0}
    summary: dict[str, Any] = {
        "state": state,
        "epochs": len(records),
        "training_samples": len(data.train),
        "clean_samples": {
            name: 0 if part is None else len(part)
            for name, part in {"meta": data.clean, "select": data.select, "report": data.report}.items()
        },
        "last": finite(records[-1].metrics),
    }
    if data.select is not None:
        best = max(records, key=lambda record: record.metrics["select/accuracy"])
        summary["best_on_select"] = {"epoch": best.epoch, **finite(best.metrics)}
    if (per_class := exam.per_class()) is not None:
        summary["test_accuracy_per_class"] = [None if math.isnan(value) else value for value in per_class]
    return summary


def finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """JSON has no NaN."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def _write_results(
    run: Run, method: Method, data: Splits, source: Source, position: Position, summary: dict[str, Any]
) -> None:
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in _own_tensors(method.deployed())}
    write_atomically(run.path / "model.safetensors", save(weights, {"format_version": "1"}))
    run.write_json("model.json", {"network": run.config["network"], "classes": list(source.classes)})
    run.write_json("classes.json", {"classes": list(source.classes)})
    write_labels(run.path / "labels.parquet", source, data, method, position.trace)
    run.write_json("summary.json", summary)
    if summary["state"] == "done":
        run.finish()


def _own_tensors(network: nn.Module) -> list[tuple[str, Tensor]]:
    return [(name, value) for name, value in network.state_dict().items() if isinstance(value, Tensor)]


def _test_samples(test: Any, source: Source) -> Samples | None:
    if test is None:
        return None
    found = as_source(test, "the test set", source)
    return Samples(found.store, torch.arange(len(found)), found.label)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def _announce(method: Method, data: Splits, epochs: int, position: Position) -> None:
    estimate = seconds_per_plain_step(method, data) * work_of(method, data, epochs, position.epoch)
    level = logging.WARNING if estimate > LONG else logging.INFO
    log.log(level, "about %s of training ahead (%d epochs)", in_words(estimate), epochs - position.epoch)


def _fitting_epochs(method: Method, data: Splits, epochs: int, budget: float) -> int:
    per_epoch = seconds_per_plain_step(method, data) * work_of(method, data, epochs) / epochs
    fitting = min(epochs, int(budget / per_epoch))
    if fitting < 2 <= epochs:
        raise ValueError(
            f"a time budget of {in_words(budget)} is too short: one epoch takes about {in_words(per_epoch)} and at "
            "least 2 are needed; allow more time, use fewer samples, or mode='head'"
        )
    return fitting


def _refuse_other_settings(run: Run, resolved: Mapping[str, Any]) -> None:
    before = run.config
    for table in ("data", "method", "train"):
        for key, value in resolved[table].items():
            old = before.get(table, {}).get(key)
            if value is not None and old != value:
                raise ValueError(
                    f"{run.path} was started with {table}.{key} = {old!r}, now it is {value!r}; resume with the same "
                    "data and settings, or start a new run in another folder"
                )


def _tensorboard(run: Run) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("TensorBoard is not installed; install it with: pip install 'mslg[tensorboard]'") from error
    return SummaryWriter(str(run.path / "tensorboard"))
