"""From noisy data, clean data and a network to a trained model and corrected labels, in one call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, WeightedRandomSampler

from ..data.from_python import Items, as_source
from ..issues.flagging import Flagging
from ..registry import expect_name
from ..runs.execute import execute
from ..runs.folder import Run, refuse_place
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
    label: int | str | None = None,
    classes: Sequence[str] | None = None,
    key: int | str | None = None,
    loader: Mapping[str, Any] | None = None,
    sample_weights: Any = None,
    **settings: Any,
) -> Result:
    """Train a network on noisy labels and learn better ones.

    Args:
        network: a module, or a function that makes one (needed by methods that start over).
        noisy: (X, y) arrays or tensors; a map-style Dataset or a DataLoader of (x, y), (a, mask, y) or dicts with a
            label; a Hugging Face `datasets.Dataset`; (Dataset, y); or with key= an iterable Dataset.
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
        label: the position or key of the label in an item of a Dataset, if it is not the usual one; all other parts
            are then inputs.
        classes: the class names, in the order of the logits, if not all of them occur or numbers need names.
        key: the position or key of a sample's name in the items of an iterable Dataset.
        loader: options of a DataLoader with which Datasets are read, such as num_workers and collate_fn.
        sample_weights: (samples,) how often each noisy sample is drawn, relative to the others; a DataLoader's
            WeightedRandomSampler does the same.
        **settings: any field of `mslg.runs.settings.Train` (epochs, batch_size, learning_rate, from_run, …) or of
            `mslg.runs.settings.Options` (output, resume, device, compare, …), or an argument of the method's
            constructor.

    Returns:
        The trained model, the labels, and the numbers.
    """
    options = made(Options, {key: value for key, value in settings.items() if key in OPTIONS})
    settings["from_run"] = _folder_of(settings.get("from_run"))
    if "batch_size" not in settings and isinstance(noisy, DataLoader) and noisy.batch_size is not None:
        settings["batch_size"] = noisy.batch_size
    if sample_weights is None and isinstance(noisy, DataLoader) and isinstance(noisy.sampler, WeightedRandomSampler):
        sample_weights = noisy.sampler.weights
    train = made(Train, {key: value for key, value in settings.items() if key in TRAIN})
    arguments = {key: value for key, value in settings.items() if key not in OPTIONS | TRAIN}
    items = Items(label, key, loader)
    source = as_source(noisy, "the noisy set", items=items, classes=classes)
    if true_labels is not None:
        source = source.with_true_labels(true_labels)
    if isinstance(clean, str):
        expect_name("kind of clean set", clean, ["auto"])
    elif clean is not None and not isinstance(clean, int):
        clean = as_source(clean, "the clean set", source, items=items)
    data = RunData(
        network,
        source,
        clean,
        None if test is None else as_source(test, "the test set", source, items=items),
        transition=None if transition is None else torch.as_tensor(transition),
        weights=None if sample_weights is None else torch.as_tensor(sample_weights, dtype=torch.float64),
    )
    return run(Settings(train=train, method=Named(method, preset, arguments)), data, options, head, decisions)


def fit_settings(tables: Mapping[str, Mapping[str, Any]], *, decisions: Any = None, **options: Any) -> Result:
    """Train from settings that name the data and the network, such as those of a recipe or the command line.

    Args:
        tables: the settings, table by table.
        decisions: a reviewer's decisions.csv, or several.
        **options: fields of `mslg.runs.settings.Options`.
    """
    how, settings = made(Options, options), Settings.of(tables)
    _refuse_early(settings, how)
    settings, data = open_run_data(settings, how, reviewed=bool(decisions))
    return run(settings, data, how, None, decisions)


def run(settings: Settings, data: RunData, options: Options, head: str | None, decisions: Any) -> Result:
    """Prepare and execute a run, in all processes started by a launcher such as torchrun."""
    with process_group(local_device(device_named(options.device))):
        return Result.of(execute(prepare(settings, data, options, head=head, decisions=decisions), options))


def _refuse_early(settings: Settings, options: Options) -> None:
    """Raise for what is known to be wrong before the data is read, which may take minutes."""
    Flagging.parse(settings.train.flag, settings.train.fdr).check(None)
    if options.output is not None and not (options.resume and (Path(options.output) / "config.toml").exists()):
        refuse_place(Path(options.output), force=options.force)


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
