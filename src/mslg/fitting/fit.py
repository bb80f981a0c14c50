"""From noisy data, clean data and a network to a trained model and corrected labels, in one call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..data.source import Source, make_source
from ..registry import expect_name
from ..runs.execute import execute
from ..runs.folder import Run
from ..runs.run_data import RunData, open_run_data
from ..runs.settings import DEFAULT_METHOD, Named, Options, Settings, Train, default_of, hints, made
from ..runtime.distributed import local_device, process_group
from .prepare import device_named, prepare
from .result import Result

OPTIONS = {item.name for item in fields(Options)}
TRAIN = {item.name for item in fields(Train)}


def fit(
    network: nn.Module | Callable[[], nn.Module],
    noisy: Any,
    clean: Any = None,
    *,
    method: Any = DEFAULT_METHOD,
    preset: str | None = None,
    test: Any = None,
    true_labels: Any = None,
    transition: Any = None,
    head: str | None = None,
    decisions: Any = None,
    **settings: Any,
) -> Result:
    """Train a network on noisy labels and learn better ones.

    Args:
        network: a module, or a function that makes one (needed by methods that start over).
        noisy: (X, y) arrays or tensors, or a map-style Dataset of (x, y).
        clean: the same with verified labels; or a number of verified samples to take out of `noisy`; or "auto". Of
            many, two fifths are held out to select and to report on (unless hold_out=False).
        method: a name from `mslg list methods`, package.module:Name, or a subclass of `mslg.Method`.
        preset: a named set of the method's arguments, such as "fast" or "published".
        test: test samples, like `noisy` with true labels.
        true_labels: the true labels of `noisy`, for evaluation only.
        transition: (classes, classes) P(given = j | true = i), for methods that use one.
        head: name of the network's last layer, where it is not the last Linear.
        decisions: a reviewer's decisions.csv, or several: reviewed samples join the clean set, removed ones are left
            out. Decisions passed to an earlier run (from_run) still apply.
        **settings: any field of `mslg.runs.settings.Train` (epochs, batch_size, learning_rate, from_run, …) or of
            `mslg.runs.settings.Options` (output, resume, device, compare, …), or an argument of the method's
            constructor.

    Returns:
        The trained model, the labels, and the numbers.
    """
    options = made(Options, {key: value for key, value in settings.items() if key in OPTIONS})
    settings["from_run"] = _folder_of(settings.get("from_run"))
    train = made(Train, {key: value for key, value in settings.items() if key in TRAIN})
    arguments = {key: value for key, value in settings.items() if key not in OPTIONS | TRAIN}
    source = as_source(noisy, "the noisy set")
    if true_labels is not None:
        source = source.with_true_labels(true_labels)
    if isinstance(clean, str):
        expect_name("kind of clean set", clean, ["auto"])
    elif clean is not None and not isinstance(clean, int):
        clean = as_source(clean, "the clean set", source)
    data = RunData(
        network,
        source,
        clean,
        None if test is None else as_source(test, "the test set", source),
        transition=None if transition is None else torch.as_tensor(transition),
    )
    return run(Settings(train=train, method=Named(method, preset, arguments)), data, options, head, decisions)


def fit_settings(tables: Mapping[str, Mapping[str, Any]], *, decisions: Any = None, **options: Any) -> Result:
    """Train from settings that name the data and the network, such as those of a recipe or the command line.

    Args:
        tables: the settings, table by table.
        decisions: a reviewer's decisions.csv, or several.
        **options: fields of `mslg.runs.settings.Options`.
    """
    how = made(Options, options)
    settings, data = open_run_data(Settings.of(tables), how)
    return run(settings, data, how, None, decisions)


def run(settings: Settings, data: RunData, options: Options, head: str | None, decisions: Any) -> Result:
    """Prepare and execute a run, in all processes started by a launcher such as torchrun."""
    with process_group(local_device(device_named(options.device))):
        return Result.of(execute(prepare(settings, data, options, head=head, decisions=decisions), options))


def as_source(data: Any, name: str, like: Source | None = None) -> Source:
    """Arrays, tensors, a Dataset or a Source as a source, with the classes of `like` if given."""
    classes = None if like is None else like.classes
    if isinstance(data, Source):
        return data
    if isinstance(data, tuple | list) and len(data) == 2:
        return make_source(data[0], data[1], classes=classes, name=name)
    if isinstance(data, tuple | list):
        raise TypeError(f"{name} is a {type(data).__name__} of {len(data)}; pass (inputs, labels) or a Dataset")
    return make_source(data, classes=classes, name=name)


def _folder_of(start: Any) -> Path | str | None:
    """The folder of an earlier run, given as a path, a run or a result."""
    if start is None or isinstance(start, str | Path):
        return start
    earlier = start if isinstance(start, Run) else getattr(start, "run", None)
    if earlier is None:
        raise ValueError(
            f"from_run is a {type(start).__name__} without a folder; fit with output= (a folder) and start from that"
        )
    return Path(earlier.path)


def _full_signature() -> inspect.Signature:
    """The signature of `fit` with every setting spelled out, for help() and editors."""
    own = inspect.signature(fit)
    named = [parameter for parameter in own.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    kind = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(item.name, kind, default=default_of(item), annotation=hints(table)[item.name])
        for table in (Train, Options)
        for item in fields(table)
    ]
    rest = inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD, annotation=Any)
    return own.replace(parameters=[*named, *more, rest])


fit.__signature__ = _full_signature()  # type: ignore[attr-defined]
