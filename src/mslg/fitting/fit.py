"""From noisy data, clean data and a network to a trained model and corrected labels, in one call."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..data.augmentation import Augment
from ..data.make_splits import make_splits
from ..data.source import Source, make_source
from ..data.splits import Samples, Splits
from ..issues.error_rate import check_fdr
from ..methods import METHODS
from ..registry import unknown
from ..review.next_round import Round
from ..runs.controls import Comparison
from ..runs.execute import Result as Result
from ..runs.execute import execute
from ..runs.folder import Run
from ..runtime.distributed import broadcast_object, is_main_process, local_device, ranks, together
from ..runtime.precision import Precision, check_precision
from ..training.cost import in_words, seconds_per_plain_step, work_of
from ..training.evaluation import Evaluation
from ..training.loggers import Logger
from ..training.method import Factory, Method, Task
from ..training.progress import Progress, Silent, for_terminal
from ..training.schedules import schedule as schedule_named

log = logging.getLogger("mslg")

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": lambda parameters, lr, weight_decay: torch.optim.SGD(
        parameters, lr=lr, momentum=0.9, weight_decay=weight_decay
    ),
    "adam": lambda parameters, lr, weight_decay: torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay),
    "adamw": lambda parameters, lr, weight_decay: torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay),
}


@together
def fit(
    network: nn.Module | Factory,
    noisy: Any,
    clean: Any = None,
    *,
    method: str = "mslg",
    preset: str | None = None,
    test: Any = None,
    true_labels: Any = None,
    epochs: int | None = None,
    batch_size: int = 64,
    clean_batch_size: int | None = None,
    optimizer: str | Callable[[Iterable[nn.Parameter]], Optimizer] = "sgd",
    learning_rate: float = 0.05,
    weight_decay: float = 1e-4,
    schedule: str = "cosine",
    precision: Precision = "float32",
    accumulate: int = 1,
    noise_rate: float | None = None,
    transition: Any = None,
    head: str | None = None,
    hold_out: bool = True,
    augment: Any = None,
    augment_clean: bool = False,
    sync_batch_norm: bool = False,
    seed: int = 0,
    from_run: Any = None,
    decisions: Any = None,
    device: str = "auto",
    output: Path | str | None = None,
    resume: bool = False,
    force: bool = False,
    checkpoint_minutes: float = 10.0,
    time_budget: float | None = None,
    compare: bool = False,
    fdr: float | None = None,
    progress: bool | Progress = True,
    loggers: str | Logger | Sequence[str | Logger] = (),
    config: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Result:
    """Train a network on noisy labels and learn better ones.

    network      a module, or a function that makes one (needed by methods that start over)
    noisy        (X, y) arrays or tensors, or a map-style Dataset of (x, y)
    clean        the same with verified labels; or a number of verified samples to take out of `noisy`; or "auto";
                 200 or more are divided 60/20/20 into those that steer, select and report (unless hold_out=False)
    method       a name from `mslg list methods`; further keyword arguments go to its constructor
    augment      words such as ["flip", "crop-4", "normalise-0.5"], or functions of a tensor (see `data.augmentation`);
                 what is random in them is for training batches only, with augment_clean=True for clean ones too
    sync_batch_norm  with several processes: batch norm over the whole batch instead of each process's part
    precision    "float32"; "bf16", or "fp16" on a GPU: networks compute in half precision, all else stays in float32
    accumulate   work through each batch in so many parts, one after the other, to need the memory of one
    epochs       30, or a third of the earlier run's with from_run=
    from_run     an earlier run (its folder or its result) on the same data: its networks and labels are kept, with a
                 new optimizer and without a warm-up
    decisions    a reviewer's decisions.csv, or several: reviewed samples join the clean samples that steer, removed
                 ones are left out. Those that the earlier run was given count too
    output       a folder for the run: config, metrics, checkpoints, model, labels. With resume=True a run that was
                 interrupted goes on where it was, bit for bit
    time_budget  seconds: the number of epochs is reduced so that the run fits
    fdr          call as many labels issues as there may be for at most this part of them to be right after all, such as
                 0.1; otherwise all that have a likelier label
    compare      afterwards train the controls that the method should beat, and compare on held-out clean samples:
                 summary["comparison"] says whether it helped
    loggers      "tensorboard", "wandb", "mlflow", or objects like `mslg.training.loggers.Logger`
    """
    begun = time.monotonic()
    where = local_device(device_named(device))
    check_precision(precision, where)
    if not isinstance(accumulate, int) or not 1 <= accumulate <= max(1, batch_size // 2):
        raise ValueError(
            f"accumulate is {accumulate}; a batch of {batch_size} samples is worked through in 1 to "
            f"{max(1, batch_size // 2)} parts, each of 2 samples or more"
        )
    changes = Augment.parse(augment)
    source = as_source(noisy, "the noisy set")
    if true_labels is not None:
        source = source.with_true_labels(true_labels)
    folder = None if output is None else Path(output)
    if folder is None and ranks() > 1:
        raise ValueError(
            f"{ranks()} processes train together and need a folder for the run, which all of them can reach; pass "
            "output= (-o)"
        )
    there = folder is not None and broadcast_object((folder / "config.toml").exists())
    resumed = Run.open(folder) if resume and folder is not None and there else None
    round_ = Round.open(from_run, decisions, source, resumed)
    epochs, asked = round_.epochs(epochs)
    clean_source: Source | int | None
    if isinstance(clean, str):
        if clean != "auto":
            raise unknown("kind of clean set", clean, ["auto"])
        clean_source, settings = None, {"auto_clean": True, **settings}
    else:
        clean_source = clean if clean is None or isinstance(clean, int) else as_source(clean, "the clean set", source)
    data = make_splits(
        source,
        clean_source,
        hold_out=hold_out,
        batch_size=batch_size,
        clean_batch_size=clean_batch_size,
        seed=seed,
        device=where,
        augment=changes,
        augment_clean=augment_clean,
    )
    data = round_.joined(data, source)
    if fdr is not None:
        check_fdr(fdr, data)
    if data.clean is not None and settings.get("auto_clean"):
        log.warning("the %d reviewed samples are the clean set now, in place of low-loss samples", len(data.clean))
        settings["auto_clean"] = False

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
            precision=precision,
            accumulate=accumulate,
            warm=round_.warm,
            seed=seed,
            device=where,
            sync_batch_norm=sync_batch_norm,
            tables=None if folder is None else folder / "tables",
        )

    def new_learner(length: int) -> Method:
        return round_.lead(build_method(method, new_task(length), data, preset, settings), method)

    learner = new_learner(epochs)
    check_outputs(learner, data)
    if time_budget is not None and resumed is None:
        shorter = broadcast_object(_fitting_epochs(learner, data, epochs, time_budget))
        if shorter != epochs:
            log.warning("%d epochs fit into %s; %d were asked for", shorter, in_words(time_budget), epochs)
            epochs = shorter
            learner = new_learner(epochs)
    used = method_settings(method, learner.task, preset, settings)
    resolved = {
        "data": {
            "samples": len(source),
            "fingerprint": source.fingerprint(),
            "clean_fingerprint": clean_source.fingerprint() if isinstance(clean_source, Source) else None,
            **round_.recorded["data"],
            **(config or {}).get("data", {}),
        },
        "noise": (config or {}).get("noise", {}),
        "network": {"class": type(learner.deployed()).__name__, **(config or {}).get("network", {})},
        "method": {"name": method, "preset": preset, **plain_settings(learner, used)},
        "train": {
            "epochs": epochs,
            "epochs_asked": asked,
            "batch_size": batch_size,
            "clean_batch_size": clean_batch_size or batch_size,
            "optimizer": optimizer if isinstance(optimizer, str) else "custom",
            "learning_rate": learning_rate,
            "weight_decay": weight_decay,
            "schedule": schedule,
            "precision": precision,
            "accumulate": accumulate,
            "noise_rate": noise_rate,
            "hold_out": hold_out,
            "augment": changes.words,
            "augment_clean": augment_clean,
            "sync_batch_norm": sync_batch_norm,
            "seed": seed,
            "fdr": fdr,
            **round_.recorded["train"],
        },
    }
    evaluation = Evaluation(data, _test_samples(test, source), source.true_label)
    progress = progress if is_main_process() else False
    display = progress if not isinstance(progress, bool) else for_terminal(method) if progress else Silent()
    comparison = Comparison(method, learner, used, data, resolved, folder) if compare else None
    result = execute(
        learner,
        data,
        source,
        evaluation,
        resolved,
        folder=folder,
        files=None if folder is None else round_.files(data, source),
        resume=resume,
        force=force,
        checkpoint_seconds=60 * checkpoint_minutes,
        time_budget=time_budget,
        display=display,
        loggers=loggers,
        fdr=fdr,
        announce=None if comparison is None else partial(comparison.announce, budget=time_budget),
        rebuild=partial(new_learner, epochs),
    )
    if comparison is not None:
        comparison.complete(
            result,
            display=partial(for_terminal, lines=1) if progress is True else lambda name: Silent(),
            checkpoint_seconds=60 * checkpoint_minutes,
            time_left=None if time_budget is None else time_budget - (time.monotonic() - begun),
        )
    return result


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
    settings = method_settings(name, task, preset, settings)
    if "clean set" in made.needs and data.clean is None and not settings.get("auto_clean"):
        raise ValueError(
            f"{name} needs clean samples and there are none; pass clean= (--clean): a set of verified samples, a "
            'number of verified samples to take out of the data, or "auto" to use low-loss samples instead'
        )
    known = task.noise_rate is not None or settings.get("forget_rate") is not None
    if "noise rate" in made.needs and not known and task.pairs is None:
        raise ValueError(f"{name} needs the noise rate; pass noise_rate= (--noise-rate), a share between 0 and 1")
    method: Method = made(task, **settings)
    return method


def method_settings(
    name: str, task: Task, preset: str | None = None, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What a method's constructor is given: the preset's values, then the settings, their names checked."""
    made = METHODS.load(name)
    settings = dict(settings or {})
    parameters = inspect.signature(made).parameters
    allowed = [key for key in parameters if key != "task"]
    for key in settings:
        if key not in allowed:
            own = [word for word in inspect.signature(fit).parameters if word not in ("settings", "config")]
            raise unknown(f"setting of {name} or of fit", key, [*allowed, *own])
        default = parameters[key].default
        if isinstance(settings[key], str) and isinstance(default, int | float):
            raise ValueError(f"{key} is '{settings[key]}'; it must be a number, such as {default}")
    if preset is not None:
        if preset not in made.presets:
            raise unknown(f"preset of {name}", preset, made.presets or ["(it has none)"])
        settings = {**made.presets[preset](task), **settings}
    return settings


def plain_settings(method: Method, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every constructor argument as resolved, for the record; the settings are those of `method_settings`."""
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
    # Not in inference mode: this is the first pass, and what a network makes and keeps in it must serve training too.
    with torch.no_grad(), method.computing():
        shape = tuple(method.predict(next(data.in_order()).inputs).shape)
    method.train()
    if len(shape) != 2 or shape[1] != method.task.classes:
        raise ValueError(
            f"the network gives outputs of shape {shape} but the data has {method.task.classes} classes; "
            f"its last layer must have {method.task.classes} outputs"
        )


def _test_samples(test: Any, source: Source) -> Samples | None:
    if test is None:
        return None
    found = as_source(test, "the test set", source)
    if found.classes != source.classes:
        raise ValueError(
            f"the test set has the classes {', '.join(found.classes)}, the noisy set {', '.join(source.classes)}; "
            "both need the same ones in the same order"
        )
    return Samples(found.store, torch.arange(len(found)), found.label)


def device_named(name: str) -> torch.device:
    """The device of this name; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def _fitting_epochs(method: Method, data: Splits, epochs: int, budget: float) -> int:
    per_epoch = seconds_per_plain_step(method, data) * work_of(method, data, epochs) / epochs
    fitting = min(epochs, int(budget / per_epoch))
    if fitting < 2 <= epochs:
        raise ValueError(
            f"a time budget of {in_words(budget)} is too short: one epoch takes about {in_words(per_epoch)} and at "
            "least 2 are needed; allow more time, use fewer samples, or mode='head'"
        )
    return fitting
