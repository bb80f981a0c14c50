"""The one list of settings. Keyword arguments of `mslg.fit`, command-line options, recipes, `--set`, the record in
config.toml and the reference pages all come from these dataclasses.

    [data]     the training data, and how its files are read
    [noise]    arguments of the noise, such as convention, probabilities, transition
    [network]  name, and its constructor's arguments
    [method]   name, preset, and its constructor's arguments
    [train]    optimizer, schedule, length, …

Settings determine the result and are recorded. `Options` control how a run is executed: they do not change the
result.
"""

# ruff: noqa: RUF009 - a setting is a dataclass field with its help and range
from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from ..registry import unknown

TABLES = ("data", "noise", "network", "method", "train")
DEFAULT_METHOD = "cross-fitted"
MOST, MOST_SIDE = 10_000_001, 10_001  # of epochs, samples of a batch, words; of pixels: more is a slip of the keyboard
DEFAULT_EPOCHS = 30  # of a run that does not start from another

Tables = dict[str, dict[str, Any]]  # the values that were given, table by table, before defaults are filled in


def _setting(
    default: Any,
    help: str,
    *,
    panel: str | None = None,
    flags: tuple[str, ...] = (),
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """A field with its help and range. With a panel it is an option of `mslg fit`, in that part of its help."""
    metadata = {"help": help, "panel": panel, "flags": flags, "least": least, "above": above, "below": below}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


DATA, METHOD, TRAINING = "Data", "Method and network", "Training"
REVIEW, OUTPUT = "Review", "Output and resuming"


class Table:
    """Base class of the tables: fields with types and ranges, checked on construction."""

    title: ClassVar[str]

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            kind = hints(type(self))[item.name]  # type: ignore[arg-type]
            object.__setattr__(self, item.name, check_value(item.name, value, kind, item.metadata))

    def as_dict(self) -> dict[str, Any]:
        """Every field by name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Data(Table):
    """The training data, given by name rather than as objects."""

    title: ClassVar[str] = "data"

    source: str | None = _setting(None, "an image folder, a .csv or .parquet manifest, an .npz, or a data set's name")
    clean: str | int | None = _setting(
        None,
        "The decisions.csv of mslg start; clean data like DATA; how many verified samples to take out of it; or auto.",
        panel=DATA,
    )
    root: str | None = _setting(None, "Folder with the files of a named data set.", panel=DATA)
    labels: str | None = _setting(
        None, "Replace the labels of DATA by id: a .csv or .parquet from mslg noise or mslg apply.", panel=DATA
    )
    label_column: str | None = _setting(None, "Name of the column of labels.", panel=DATA)
    text_column: str | None = _setting(None, "Name of the column of texts.", panel=DATA)
    path_column: str | None = _setting(None, "Name of the column of image paths.", panel=DATA)
    id_column: str | None = _setting(None, "Name of the column of ids.", panel=DATA)
    corrupt: str | None = _setting(None, "Images that cannot be decoded: error (default) or skip.", panel=DATA)
    noise: str | None = _setting(None, "Corrupt the labels first: see mslg list noises.", panel=DATA)
    rate: float | None = _setting(None, "Fraction of labels to corrupt.", panel=DATA, least=0, below=1 + 1e-9)
    features: str | None = _setting(
        None,
        "Run this network once over the data and train a head on its features: named like NETWORK. For image files "
        "without a GPU the default is packaged:efficientnet-lite0 if it is installed; none trains on pixels.",
        panel=METHOD,
    )
    features_weights: str | None = _setting(None, "weights of the features' network: a file, or a name it knows")
    features_prepare: tuple[str, ...] | None = _setting(None, "how images are prepared for the features' network")
    subset: int | None = _setting(None, "train on this many samples, class-balanced", least=2)
    reveal_noise: bool = _setting(True, "whether methods may know the rate and matrix of noise generated here")
    size: int | None = _setting(None, "side of the images in pixels", least=1, below=MOST_SIDE)
    channels: int | None = _setting(None, "1 (grey) or 3 (RGB)")
    words: int | None = _setting(None, "size of the vocabulary for texts", least=1, below=MOST)
    clean_from: str | None = _setting(None, '"test": cut the clean samples from the test set')
    test: int | None = _setting(None, "number of test samples, with clean_from or test_from", least=1)
    test_from: str | None = _setting(
        None, '"train": use verified training samples as the test set, for tuning; "test": use only some test samples'
    )
    human: str | None = _setting(None, "which of CIFAR-N's human labels")
    human_file: str | None = _setting(None, "the file of CIFAR-N's human labels")
    food101: str | None = _setting(None, "folder of Food-101, for Food-101N's test set")
    mini: bool | None = _setting(None, "WebVision: the first 50 classes only")


@dataclass(frozen=True, kw_only=True)
class Train(Table):
    """How the network is trained."""

    title: ClassVar[str] = "train"

    epochs: int | None = _setting(
        None,
        f"Passes over the training data; {DEFAULT_EPOCHS} unless --from is given.",
        panel=TRAINING,
        least=1,
        below=MOST,
    )
    batch_size: int = _setting(64, "Samples per step.", panel=TRAINING, least=1, below=MOST)
    clean_batch_size: int | None = _setting(None, "clean samples per step; by default batch_size", least=1, below=MOST)
    optimizer: str | Callable[..., Any] = _setting(
        "sgd", "sgd, adam or adamw; in Python also an optimizer class, or a function of the parameters or the module"
    )
    learning_rate: float = _setting(0.05, "Learning rate of the network.", panel=TRAINING, above=0)
    weight_decay: float = _setting(1e-4, "of the optimizer", least=0)
    momentum: float | None = _setting(None, "for optimizers that have one; 0.9 for sgd", least=0, below=1)
    gradient_clip: float | None = _setting(None, "maximum norm of the gradient", above=0)
    optimizer_options: dict[str, Any] = _setting(dict, "further arguments of the optimizer, such as nesterov")
    schedule: str | Callable[..., Any] = _setting(
        "cosine",
        "cosine, constant, steps, …; in Python also a function from progress (0 to 1) to a factor, or from an "
        "optimizer to a torch scheduler",
    )
    schedule_every: Literal["epoch", "step"] = _setting("epoch", "how often a torch scheduler steps: epoch or step")
    precision: Literal["float32", "bf16", "fp16"] = _setting(
        "float32", "float32, or half precision: bf16, or fp16 on GPUs.", panel=TRAINING
    )
    accumulate: int = _setting(1, "micro-batches per batch: less memory for the same step", least=1)
    noise_rate: float | None = _setting(
        None, "Fraction of wrong labels, for methods that need it.", panel=METHOD, least=0, below=1
    )
    hold_out: bool = _setting(
        True, "hold out up to two fifths of the clean samples, where there are enough, to select and to report on"
    )
    augment: Any = _setting(None, "Image augmentation, such as 'flip crop-4 normalise-0.5'.", panel=METHOD)
    augment_clean: bool = _setting(False, "whether clean batches are augmented at random too")
    class_balance: bool = _setting(False, "draw training samples such that given classes are equally frequent")
    class_weights: tuple[float, ...] | None = _setting(
        None, "how often samples of each given class are drawn, relative to the others, in the order of the classes"
    )
    sync_batch_norm: bool = _setting(False, "with several processes: batch norm over the whole batch")
    seed: int = _setting(0, "Random seed: same seed, same result.", panel=TRAINING, least=0, below=2**62)
    flag: str | int | None = _setting(
        None,
        "How many labels to flag: likelier (another class is likelier; the default), balanced (best precision and "
        "recall together), expected (as many as are estimated to be wrong), fdr=0.1, or a number such as 500.",
        panel=REVIEW,
    )
    fdr: float | None = _setting(
        None,
        "Flag as many labels as possible while keeping the false discovery rate below this, such as 0.1.",
        panel=REVIEW,
        above=0,
        below=1,
    )
    from_run: str | Path | None = _setting(
        None,
        "Warm start from this finished run, with its settings where no others are given.",
        panel=REVIEW,
        flags=("--from",),
    )


@dataclass(frozen=True, kw_only=True)
class Options(Table):
    """How a run is executed. None of these changes its result."""

    title: ClassVar[str] = "options"

    output: Path | str | None = _setting(None, "The run's folder.", panel=OUTPUT, flags=("-o", "--output"))
    resume: bool = _setting(False, "Continue an interrupted run.", panel=OUTPUT)
    force: bool = _setting(False, "Replace an existing run.", panel=OUTPUT)
    device: str = _setting("auto", "auto, cpu, cuda, cuda:1, …", panel=TRAINING)
    workers: int | None = _setting(None, "Processes that decode images; by default up to 4.", panel=DATA, least=0)
    time_budget: float | None = _setting(
        None, "Train no longer than this, such as 45s, 30m or 2h.", panel=TRAINING, above=0
    )
    checkpoint_minutes: float = _setting(10.0, "Minutes between checkpoints inside an epoch.", panel=OUTPUT, least=0)
    compare: bool = _setting(
        False, "Skip the controls that show whether the method helped.", panel=REVIEW, flags=("/--no-compare",)
    )
    progress: Any = _setting(True, "a progress bar, or none; or an object like `mslg.training.progress.Progress`")
    loggers: Any = _setting(
        (), "Also log epochs to tensorboard, wandb or mlflow. May be repeated.", panel=OUTPUT, flags=("--log",)
    )


@dataclass(frozen=True)
class Named:
    """A method or a network: its name (or, in Python, the class or function itself) and its constructor's arguments."""

    name: Any = None
    preset: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Named:
        rest = {key: value for key, value in table.items() if key not in ("name", "preset")}
        return cls(table.get("name"), table.get("preset"), rest)


@dataclass(frozen=True)
class Settings:
    """Everything that determines a run's result."""

    data: Data = field(default_factory=Data)
    noise: Mapping[str, Any] = field(default_factory=dict)
    network: Named = field(default_factory=Named)
    method: Named = field(default_factory=lambda: Named(DEFAULT_METHOD))
    train: Train = field(default_factory=Train)

    @classmethod
    def of(cls, tables: Mapping[str, Mapping[str, Any]]) -> Settings:
        """Settings from the values given, with defaults for the rest."""
        for name in tables:
            if name not in TABLES:
                raise unknown("table", name, TABLES)
        for name in ("network", "method"):
            named = tables.get(name, {}).get("name")
            if named is not None and not isinstance(named, str) and not callable(named):
                raise ValueError(f"{name}.name is {named!r}; it must be a name (mslg list {name}s)")
        method = Named.of({"name": DEFAULT_METHOD, **tables.get("method", {})})
        return cls(
            made(Data, tables.get("data", {})),
            dict(tables.get("noise", {})),
            Named.of(tables.get("network", {})),
            method,
            made(Train, tables.get("train", {})),
        )


def made(table: type, values: Mapping[str, Any]) -> Any:
    """A table from values, with their names checked."""
    check_names(table, values)
    return table(**values)


def check_names(table: type, values: Mapping[str, Any]) -> None:
    """Raise for a key that the table does not have."""
    allowed = [item.name for item in fields(table)]
    for key in values:
        if key not in allowed:
            raise unknown(f"key in [{table.title}]", key, allowed)  # type: ignore[attr-defined]


@cache
def hints(table: type) -> dict[str, Any]:
    """The types of a table's fields."""
    return get_type_hints(table)


def default_of(item: Field[Any]) -> Any:
    """A field's default."""
    return item.default_factory() if item.default_factory is not MISSING else item.default


def check_value(name: str, value: Any, kind: Any, limits: Mapping[str, Any] | None = None) -> Any:
    """The value, if it is of this type and within its range; an int is accepted as a float, a list as a tuple.

    Raises:
        ValueError: with the value and what is allowed.
    """
    limits = limits or {}
    choices = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if value is None and (type(None) in choices or Any in choices):
        return None
    for choice in choices:
        if (fitting := _as(value, choice)) is not None:
            _check_range(name, fitting[0], choices, limits)
            return fitting[0]
    words = [word for choice in choices if get_origin(choice) is Literal for word in get_args(choice)]
    if words and isinstance(value, str):
        raise unknown(name, value, words)
    raise ValueError(f"{name} is {value!r}; it must be {_words(choices, limits)}")


def _as(value: Any, kind: Any) -> tuple[Any] | None:
    """The value as this type, in a tuple; None if it does not fit."""
    if kind is Any:
        return (value,)
    if get_origin(kind) is Literal:
        return (value,) if value in get_args(kind) else None
    if kind is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return (float(value) if isinstance(value, int) and abs(value) < 2**53 else value,) if number else None
    if kind is int:
        return (value,) if isinstance(value, int) and not isinstance(value, bool) else None
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        fits = isinstance(value, list | tuple) and all(_as(item, inner) is not None for item in value)
        return (tuple(value),) if fits else None
    if get_origin(kind) in (dict, Mapping):
        return (value,) if isinstance(value, Mapping) else None
    if get_origin(kind) is not None and callable(get_origin(kind)):  # a parametrised Callable
        return (value,) if callable(value) else None
    return (value,) if isinstance(kind, type) and isinstance(value, kind) else None


def _check_range(name: str, value: Any, choices: tuple[Any, ...], limits: Mapping[str, Any]) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    low = limits.get("least") is not None and value < limits["least"]
    low = low or (limits.get("above") is not None and value <= limits["above"])
    high = limits.get("below") is not None and value >= limits["below"]
    if low or high or not math.isfinite(value):
        raise ValueError(f"{name} is {value}; it must be {_words(choices, limits)}")


def _words(choices: tuple[Any, ...], limits: Mapping[str, Any]) -> str:
    """A description of the allowed types and range."""
    kinds = []
    for kind in choices:
        if get_origin(kind) is Literal:
            kinds.append(" or ".join(repr(word) for word in get_args(kind)))
        elif get_origin(kind) is tuple:
            kinds.append("a list")
        elif get_origin(kind) in (dict, Mapping):
            kinds.append("a table of names and values")
        elif get_origin(kind) is not None:
            kinds.append("a function")
        else:
            words = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}
            kinds.append(words.get(kind, "left out" if kind is type(None) else str(getattr(kind, "__name__", kind))))
    bounds = []
    if limits.get("least") is not None:
        bounds.append(f"{limits['least']:g} or more")
    if limits.get("above") is not None:
        bounds.append(f"above {limits['above']:g}")
    if limits.get("below") is not None:
        bounds.append(f"below {limits['below']:,}" if limits["below"] != 1 + 1e-9 else "1 at most")
    return " or ".join(kinds) + (f", {' and '.join(bounds)}" if bounds else "")
