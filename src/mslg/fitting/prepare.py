"""From settings and data to a run that is ready to be executed. Errors are raised here, before anything is written."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor

from ..data.augmentation import Augment
from ..data.batch import leaves
from ..data.make_splits import make_splits
from ..data.samples import Samples
from ..data.source import Source
from ..data.splits import Splits
from ..issues.flagging import Flagging
from ..issues.from_training import missing_clean_samples
from ..methods import METHODS
from ..registry import UnknownName, expect_name, unknown
from ..review.next_round import Round
from ..runs.execute import Prepared
from ..runs.folder import Run
from ..runs.run_data import NO_CLEAN_SET, RunData
from ..runs.settings import Named, Options, Settings, Train, check_value
from ..runtime.distributed import broadcast_object, local_device, ranks
from ..runtime.durations import in_words
from ..runtime.precision import check_precision
from ..training.cost import seconds_per_plain_step, work_of
from ..training.evaluation import Evaluation
from ..training.method import Method, Task
from ..training.optimizers import RecordedOptimizers, optimizer_factory
from ..training.schedules import schedule
from .settings_record import settings_record

log = logging.getLogger("mslg")

MATRICES = 4  # of classes × classes, float64, at a time: counts, transition, its inverse, the evaluation's
MOST_MATRIX_BYTES = 2**32


def prepare(
    settings: Settings, data: RunData, options: Options, *, head: str | None = None, decisions: Any = None
) -> Prepared:
    """Split the data, make the network and the method, and check that they fit together.

    Args:
        settings: everything that determines the result.
        data: the samples, and the network or its factory.
        options: how the run is executed.
        head: name of the network's last layer, where it is not the last Linear.
        decisions: a reviewer's decisions.csv, or several.
    """
    train, device = settings.train, local_device(device_named(options.device))
    check_precision(train.precision, device)
    _check_accumulate(train)
    folder = None if options.output is None else Path(options.output)
    if folder is None and ranks() > 1:
        raise ValueError(
            f"{ranks()} processes train together and need a folder for the run that all of them can reach; pass "
            "output= (-o)"
        )
    exists = folder is not None and broadcast_object((folder / "config.toml").exists())
    resumed = Run.open(folder) if options.resume and folder is not None and exists else None
    _refuse_too_many_classes(len(data.train.classes), data.train)
    start = Round.open(train.from_run, decisions, data.train, resumed)
    start.check_method(method_name(settings.method))
    splits = split_data(settings, data, start, device)
    epochs, asked = start.epochs(train.epochs)
    optimizer = RecordedOptimizers(
        optimizer_factory(
            train.optimizer,
            learning_rate=train.learning_rate,
            weight_decay=train.weight_decay,
            momentum=train.momentum,
            options=train.optimizer_options,
        ),
        train.learning_rate,
    )
    per_epoch = splits.steps() if train.schedule_every == "step" else 1  # steps of a torch scheduler

    def task(length: int) -> Task:
        return Task(
            given=data.train.label,
            classes=len(data.train.classes),
            network=data.network,
            epochs=length,
            batch_size=train.batch_size,
            optimizer=optimizer,
            schedule=schedule(train.schedule, rate=optimizer.rate, steps=length * per_epoch),
            noise_rate=data.noise_rate if train.noise_rate is None else train.noise_rate,
            transition=None if data.transition is None else torch.as_tensor(data.transition).to(device),
            pairs=splits.pairs,
            head_name=head,
            precision=train.precision,
            accumulate=train.accumulate,
            gradient_clip=train.gradient_clip,
            warm=start.warm,
            seed=train.seed,
            device=device,
            sync_batch_norm=train.sync_batch_norm,
            tables=None if folder is None else folder / "tables",
        )

    auto = data.clean == "auto"
    if auto and splits.clean is not None:
        log.warning("the %d reviewed samples now serve as the clean set, not low-loss samples", len(splits.clean))
        auto = False
    chosen = _method(settings.method, auto, data.clean)

    def new_method(length: int) -> Method:
        return start.warm_start(build_method(chosen, task(length), splits))

    method = new_method(epochs)
    _check_outputs(method, splits)
    if options.time_budget is not None and resumed is None:
        fitting = broadcast_object(_epochs_within(method, splits, epochs, options.time_budget))
        if fitting != epochs:
            log.warning("%d epochs fit into %s; %d were requested", fitting, in_words(options.time_budget), epochs)
            epochs = fitting
            try:
                method = new_method(epochs)
            except ValueError as error:  # such as a method in stages, each of which needs an epoch
                raise ValueError(f"a time budget of {in_words(options.time_budget)} is too short: {error}") from None
    used = method_arguments(chosen, method.task)
    name, lengths = method_name(chosen), (epochs, asked)
    record = settings_record(settings, data, splits, start, method, optimizer.used, lengths, name, chosen.preset, used)
    evaluation = Evaluation(splits, _test_samples(data), data.train.true_label)
    files = {} if folder is None else start.initial_files(splits)
    return Prepared(settings, record, splits, evaluation, lambda: new_method(epochs), method, used, files)


def split_data(settings: Settings, data: RunData, start: Round, device: torch.device) -> Splits:
    """The training samples and the parts of the clean set, with the reviewer's decisions applied."""
    train = settings.train
    if isinstance(data.clean, str):
        expect_name("kind of clean set", data.clean, ["auto"])
    method = METHODS.resolve(settings.method.name)
    cross_fits = method.object.cross_fits
    if data.weights is not None and not method.object.trains_on_noisy:
        raise ValueError(f"{method.name} does not train on the noisy samples, so sample_weights would have no effect")
    splits = make_splits(
        data.train,
        None if isinstance(data.clean, str) else data.clean,
        hold_out=train.hold_out,
        cross_fits=cross_fits,
        batch_size=train.batch_size,
        clean_batch_size=train.clean_batch_size,
        seed=train.seed,
        device=device,
        augment=Augment.parse(train.augment),
        augment_clean=train.augment_clean,
        class_balance=train.class_balance,
        weights=_weights(train, data),
    )
    splits = start.apply_decisions(splits)
    flagging = Flagging.parse(train.flag, train.fdr)
    if flagging.needs_estimate:
        flagging.check(missing_clean_samples(splits, cross_fits=cross_fits))
    return splits


def _weights(train: Train, data: RunData) -> Tensor | None:
    """How often each sample is drawn: by its class, or by its own weight."""
    given = {"class_balance": train.class_balance, "class_weights": train.class_weights is not None}
    given["sample_weights"] = data.weights is not None
    if sum(given.values()) > 1:
        raise ValueError(f"{' and '.join(name for name, there in given.items() if there)}: give one of them")
    if train.class_weights is None and data.weights is None:
        return None
    weights, name = data.weights, "sample_weights"
    if train.class_weights is not None:
        if len(train.class_weights) != len(data.train.classes):
            raise ValueError(
                f"class_weights has {len(train.class_weights)} numbers, and there are {len(data.train.classes)} "
                f"classes: {', '.join(data.train.classes[:10])}"
            )
        weights, name = torch.tensor(train.class_weights, dtype=torch.float64)[data.train.label], "class_weights"
    assert weights is not None
    if len(weights) != len(data.train):
        raise ValueError(f"{name} has {len(weights)} numbers for {len(data.train)} samples; pass one per sample")
    if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()) or not bool((weights > 0).any()):
        raise ValueError(f"{name} must be 0 or more, finite, and not all 0")
    return weights


def build_method(named: Named, task: Task, data: Splits) -> Method:
    """A method from its name or class: its constructor's defaults, then the preset, then the arguments given."""
    made = METHODS.resolve(named.name).object
    arguments = method_arguments(named, task)
    missing = [need for need in made.needs if not _available(need, task, data, arguments)]
    if missing:
        raise ValueError(f"{method_name(named)} needs {' and '.join(ADVICE[need] for need in missing)}")
    method: Method = made(task, **arguments)
    return method


ADVICE = {
    "clean set": NO_CLEAN_SET,
    "noise rate": "the noise rate; pass noise_rate= (--noise-rate), a fraction between 0 and 1",
}


def _available(need: str, task: Task, data: Splits, arguments: Mapping[str, Any]) -> bool:
    if need == "clean set":
        return data.clean is not None or bool(arguments.get("auto_clean"))
    if need == "noise rate":
        return task.noise_rate is not None or task.pairs is not None or arguments.get("forget_rate") is not None
    return True  # a transition matrix can be estimated; the method says so itself where it cannot


def method_name(named: Named) -> str:
    """The method's name in the record."""
    return METHODS.resolve(named.name).name


def method_arguments(named: Named, task: Task) -> dict[str, Any]:
    """The arguments of a method's constructor: the preset's, then those given, with names and types checked."""
    resolved = METHODS.resolve(named.name)
    made, name = resolved.object, resolved.name
    parameters = inspect.signature(made).parameters
    kinds = get_type_hints(made.__init__)
    allowed = [key for key in parameters if key != "task"]
    arguments = dict(named.arguments)
    for key, value in arguments.items():
        if key not in allowed:
            raise _unknown_setting(name, key, [*allowed, *Train.__dataclass_fields__])
        if key in kinds:
            arguments[key] = check_value(key, value, kinds[key])
    if named.preset is not None:
        if named.preset not in made.presets:
            others = [other for other in METHODS.built_in if named.preset in METHODS.load(other).presets]
            if others:
                raise UnknownName(
                    f"'{named.preset}' is a preset of {' and '.join(others)}, not of {name}; pass method= (--method)"
                )
            raise unknown(f"preset of {name}", named.preset, made.presets or ["(it has none)"])
        arguments = {**made.presets[named.preset](task), **arguments}
    return arguments


# What settings are called elsewhere.
MEANT = {
    "lr": "learning_rate",
    "wd": "weight_decay",
    "max_epochs": "epochs",
    "num_epochs": "epochs",
    "n_epochs": "epochs",
    "num_train_epochs": "epochs",
    "per_device_train_batch_size": "batch_size",
    "max_grad_norm": "gradient_clip",
    "clip_grad_norm": "gradient_clip",
    "gradient_clip_val": "gradient_clip",
    "scheduler": "schedule",
    "lr_scheduler": "schedule",
    "output_dir": "output",
    "random_state": "seed",
    "num_workers": 'loader={"num_workers": …}',
    "collate_fn": 'loader={"collate_fn": …}',
    "sampler": "sample_weights, class_weights or class_balance",
}


def _methods_with(key: str) -> list[str]:
    """The methods that have this setting."""
    return [name for name in METHODS.built_in if key in inspect.signature(METHODS.load(name)).parameters]


def _unknown_setting(method: str, key: str, allowed: list[str]) -> ValueError:
    """The error for a setting that a method does not have; it names the methods that do."""
    if (meant := MEANT.get(key)) is not None:
        return UnknownName(f"unknown setting of {method} or of fit '{key}'. Did you mean {meant}?")
    others = _methods_with(key)
    if not others or key == "task":
        return unknown(f"setting of {method} or of fit", key, allowed)
    named = " and ".join(others) if len(others) < 3 else f"{', '.join(others[:3])} and other methods"
    return UnknownName(
        f"unknown setting of {method} or of fit '{key}'; it is one of {named}: choose the method with method= "
        "(--method), or leave the setting out"
    )


def device_named(name: str) -> torch.device:
    """The device of this name; "auto" is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = " ".join(str(error).split())[:200]
        raise ValueError(
            f"the device '{name}' cannot be used here ({why}); use cpu, or auto for the best there is"
        ) from None
    return device


def _method(named: Named, auto: bool, clean: Any) -> Named:
    """The method, with `auto_clean` set if the clean set is "auto"."""
    if clean != "auto":
        return named
    methods = _methods_with("auto_clean")
    if ":" not in named.name and named.name not in methods:
        raise ValueError(
            f'clean="auto" (--clean auto) is a setting of {" and ".join(methods)}; {named.name} has no such setting: '
            "leave it out, or choose one of these with method= (--method)"
        )
    return Named(named.name, named.preset, {**named.arguments, "auto_clean": auto})


def _check_accumulate(train: Train) -> None:
    most = max(1, train.batch_size // 2)
    if train.accumulate > most:
        raise ValueError(
            f"accumulate is {train.accumulate}; a batch of {train.batch_size} samples can be split into 1 to {most} "
            "micro-batches of at least 2 samples"
        )


def _refuse_too_many_classes(classes: int, source: Source) -> None:
    """Raise, before training, if matrices of classes × classes would not fit into memory afterwards."""
    needed, present = MATRICES * 8 * classes**2, len(source.label.unique())
    few = present < classes // 2  # mostly gaps: somebody's codes, not class numbers
    most = MOST_MATRIX_BYTES // 8 if few else MOST_MATRIX_BYTES
    if needed <= most:
        return
    hint = f"; only {present} of them occur: number the classes from 0 without gaps, or pass names" if few else ""
    raise ValueError(
        f"there are {classes:,} classes, for which judging the labels needs {MATRICES} matrices of classes × classes, "
        f"{needed / 2**30:.1f} GiB, and at most {most / 2**30:.1f} GiB are used{hint}"
    )


def _check_outputs(method: Method, data: Splits) -> None:
    """Raise, before the first epoch, unless the network returns one logit per class."""
    method.eval()
    # Not in inference mode: tensors that the network creates and keeps in its first pass are used in training too.
    two = data.train.at(torch.arange(min(2, len(data.train))))
    inputs = next(data.in_order(two)).inputs
    try:
        with torch.no_grad(), method.computing():
            shape = tuple(method.predict(inputs).shape)
    except (RuntimeError, IndexError) as error:
        kinds = ", ".join(f"{tuple(each.shape[1:])} of {each.dtype}" for each in leaves(inputs))
        raise ValueError(
            f"the network cannot take the inputs, {kinds} per sample ({' '.join(str(error).split())[:300]}); take a "
            "network that fits them, or convert them: integers are passed on as they are, because they may be tokens"
        ) from error
    method.train()
    if len(shape) != 2 or shape[1] != method.task.classes:
        raise ValueError(
            f"the network returns outputs of shape {shape} but the data has {method.task.classes} classes; "
            f"its last layer must have {method.task.classes} outputs"
        )


def _test_samples(data: RunData) -> Samples | None:
    test, source = data.test, data.train
    if test is None:
        return None
    if test.classes != source.classes:
        raise ValueError(
            f"the test set has the classes {', '.join(test.classes)}, the noisy set {', '.join(source.classes)}; "
            "both need the same ones in the same order"
        )
    return Samples(test.store, torch.arange(len(test)), test.label)


def _epochs_within(method: Method, data: Splits, epochs: int, budget: float) -> int:
    per_epoch = seconds_per_plain_step(method, data) * work_of(method, data, epochs) / epochs
    fitting = min(epochs, int(budget / per_epoch))
    if fitting < 2 <= epochs:
        raise ValueError(
            f"a time budget of {in_words(budget)} is too short: one epoch takes about {in_words(per_epoch)} and at "
            "least 2 are needed; allow more time, use fewer samples, or mode='head'"
        )
    return fitting
