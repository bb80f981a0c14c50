"""What a run is made of beside its settings: the data, and what makes the network. Passed in as objects, or opened by
name from the settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from ..data.augmentation import Augment
from ..data.image_stores import ImageStore
from ..data.make_splits import clean_from_test, held_out_of_train, verified_labels
from ..data.open import subset
from ..data.source import Source
from ..methods import METHODS
from ..networks.build import default_network, network_factory
from ..networks.features import backbone, cache_folder, extract, preparation
from ..registry import expect_name
from .image_default import with_image_default
from .open_data import open_data
from .settings import Data, Options, Settings

log = logging.getLogger("mslg")

NO_CLEAN_SET = (
    "clean samples and there are none; check 100 random samples first (mslg start DATA), or pass clean= (--clean): a "
    'set of verified samples, a number of verified samples to take out of the data, or "auto" to use low-loss ones'
)


@dataclass(frozen=True)
class RunData:
    """The data and the network of a run.

    Attributes:
        network: a module, or a function that makes one.
        train: the noisy samples.
        clean: the clean samples; or how many verified ones to take out of `train`; or "auto"; or None.
        test: the test samples, if there are any.
        noise_rate, transition: known where the noise was generated here and may be revealed.
        weights: (samples,) how often each sample of `train` is drawn, relative to the others.
        record: the tables data, noise and network, as config.toml will have them.
    """

    network: nn.Module | Callable[[], nn.Module]
    train: Source
    clean: Source | int | str | None = None
    test: Source | None = None
    noise_rate: float | None = None
    transition: Tensor | None = None
    record: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    weights: Tensor | None = None


def open_run_data(
    settings: Settings, options: Options | None = None, *, reviewed: bool = False
) -> tuple[Settings, RunData]:
    """Open the data by name, corrupt it if a noise is named, extract features if asked to, and choose the network.

    Args:
        settings: of the run.
        options: how it is carried out.
        reviewed: whether a reviewer's decisions will be among the clean samples.

    Returns:
        The settings, with what was decided here filled in, and the data.
    """
    options = options or Options()
    data, train, seed = settings.data, settings.train, settings.train.seed

    def opened_with(data: Data) -> Any:
        given = {key: value for key, value in data.as_dict().items() if value is not None}
        return open_data(given, noise_settings=settings.noise, seed=seed, workers=options.workers)

    opened: Any = opened_with(data)
    settings = with_image_default(settings, opened.train, options.device)
    if settings.data.size != data.size:
        opened = opened_with(settings.data)
    data, train = settings.data, settings.train
    if data.test_from is not None:
        opened = opened._replace(**_held_out_of_train(opened, data, seed))
    elif data.clean_from is not None or data.test is not None:
        opened = opened._replace(**_clean_from_test(opened, data, seed))
    opened, data = _with_verified(settings, opened, data)
    if data.features is not None:
        if not reviewed and train.from_run is None:
            _refuse_without_clean(settings, opened)  # now: features may take a while
        parts, data = _features(opened, data, train.augment, options)
        opened, train = opened._replace(**parts), replace(train, augment=None)
    else:
        _keep_decoded(opened)
    augment = Augment.parse(train.augment)
    name = settings.network.name or default_network(opened.train, augment)
    settings = replace(settings, data=data, train=train, network=replace(settings.network, name=name))
    network = network_factory(name, opened.train, augment=augment, **settings.network.arguments)
    record = {
        "data": {key: value for key, value in data.as_dict().items() if value is not None},
        "noise": dict(settings.noise),
        "network": {"name": name, **settings.network.arguments},
    }
    rate, transition = (opened.noise_rate, opened.transition) if data.reveal_noise else (None, None)
    return settings, RunData(network, opened.train, opened.clean, opened.test, rate, transition, record)


def _with_verified(settings: Settings, opened: Any, data: Data) -> tuple[Any, Data]:
    """Where a method needs a clean set and none is named, the verified samples of the data are it."""
    verified = opened.train.verified_label
    count = 0 if verified is None else int((verified >= 0).sum())
    named = opened.clean is not None or settings.train.from_run is not None
    if named or not 0 < count < len(opened.train) or not _needs_clean(settings):
        return opened, data
    log.info("the clean set is the %s verified samples of the data (--clean %d)", f"{count:,}", count)
    return opened._replace(clean=count), replace(data, clean=count)


def _needs_clean(settings: Settings) -> bool:
    needs = METHODS.resolve(settings.method.name).object.needs
    return "clean set" in needs and not settings.method.arguments.get("auto_clean")


def _refuse_without_clean(settings: Settings, opened: Any) -> None:
    if _needs_clean(settings) and opened.clean is None:
        raise ValueError(f"{METHODS.resolve(settings.method.name).name} needs {NO_CLEAN_SET}")
    if isinstance(opened.clean, int):
        verified_labels(opened.train)  # raises where there are none


def _clean_from_test(opened: Any, data: Data, seed: int) -> dict[str, Any]:
    if data.clean_from is None:
        raise ValueError(
            f"test = {data.test} says how many test samples, not where they come from; also give "
            'clean_from = "test" (the rest of the test set beside the clean samples) or test_from = "train", or leave '
            "test out"
        )
    expect_name("place to take clean samples from", data.clean_from, ["test"])
    if not isinstance(opened.clean, int) or opened.test is None:
        raise ValueError(
            'clean_from = "test" needs a number of clean samples and data with a test set; '
            "give clean = N, or leave clean_from out"
        )
    clean, test = clean_from_test(opened.test, opened.clean, data.test, seed)
    return {"clean": clean, "test": test}


def _held_out_of_train(opened: Any, data: Data, seed: int) -> dict[str, Any]:
    assert data.test_from is not None
    expect_name("place to take test samples from", data.test_from, ["train", "test"])
    if data.clean_from is not None:
        raise ValueError("test_from and clean_from both say where the test samples come from; give one of them")
    if data.test is None:
        raise ValueError(f'test_from = "{data.test_from}" needs the number of test samples; give test = N')
    if data.test_from == "test":
        if opened.test is None:
            raise ValueError('test_from = "test" needs data with a test set; use "train", or leave it out')
        return {"test": subset(opened.test, data.test)}
    train, test = held_out_of_train(opened.train, data.test, seed)
    return {"train": train, "test": test}


def _keep_decoded(opened: Any) -> None:
    """Image files that every epoch reads are decoded once."""
    for part in (opened.train, opened.clean, opened.test):
        if isinstance(part, Source) and isinstance(part.store, ImageStore):
            part.store.keep_decoded(cache_folder() / "pixels")


def _features(opened: Any, data: Data, augment: Any, options: Options) -> tuple[dict[str, Any], Data]:
    """Training, clean and test inputs replaced by a backbone's features. How the images were prepared is recorded, so
    that a resumed run prepares them likewise."""
    assert data.features is not None
    if data.features_prepare is not None:
        prepare = Augment.parse(data.features_prepare)
    else:
        prepare = preparation(data.features, opened.train, Augment.parse(augment))
    network = backbone(data.features, opened.train, prepare=prepare, weights=data.features_weights)
    parts = {"train": opened.train, "clean": opened.clean, "test": opened.test}
    how: dict[str, Any] = {"device": options.device}
    if isinstance(options.progress, bool):
        how["progress"] = options.progress
    made = {
        key: extract(part, network, prepare=prepare, name=data.features, **how)
        for key, part in parts.items()
        if isinstance(part, Source)
    }
    return made, replace(data, features_prepare=tuple(prepare.words))
