"""Settings of a run as tables: constructor defaults ← recipe ← command line. A run's config.toml is a recipe itself.

[data]     source, clean, noise, rate, root, subset, told; size, channels, corrupt for image files; words for
           texts; settings of named data sets
[noise]    settings of the noise, such as convention, probabilities, transition
[network]  name, and its constructor's arguments
[method]   name, preset, and its constructor's arguments
[train]    epochs, batch_size, optimizer, learning_rate, … : the arguments of `mslg.fit`
[by_noise.KIND-PERCENT]  settings of the method for one noise and rate
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from ..registry import unknown

TABLES = ("data", "noise", "network", "method", "train")
DATA_KEYS = (
    *("source", "labels", "clean", "noise", "rate", "root"),
    *("size", "channels", "corrupt"),  # how image files are read
    "words",  # of the vocabulary that texts are encoded by
    *("human", "human_file", "food101", "mini"),  # settings of some of the named data sets
    *("features", "features_weights", "features_prepare"),  # a backbone, its weights, how images are prepared for it
    *("clean_from", "test"),  # "test": the clean samples are cut from the test set, of which so many are left
    "test_from",  # "train": so many verified training samples are the test set, for choosing settings
    "subset",  # train on so many samples, class-balanced
    "told",  # whether methods are told the rate and the matrix of noise made here; true unless given
)
TRAIN_KEYS = (
    "epochs",
    "batch_size",
    "clean_batch_size",
    "optimizer",
    "learning_rate",
    "weight_decay",
    "schedule",
    "precision",
    "accumulate",
    "noise_rate",
    "hold_out",
    "augment",
    "augment_clean",
    "sync_batch_norm",
    "seed",
)
RECORDED = {
    "data": ("samples", "fingerprint", "clean_fingerprint", "decisions_fingerprint"),
    "network": ("class",),
    "train": ("epochs_asked", "from_run_fingerprint"),
}  # written by a run, not settings

DEFAULT_NAMES = {"method": "mslg"}  # that of the network depends on the data

Settings = dict[str, dict[str, Any]]


def recipes() -> dict[str, str]:
    """The recipes that come with the package, with the first line of each."""
    found = {}
    for file in sorted(resources.files("mslg.runs.recipes").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            found[file.name.removesuffix(".toml")] = file.read_text().splitlines()[0].lstrip("# ")
    return found


def sweeps() -> list[str]:
    """Those of them that are for many runs: `mslg sweep`."""
    return [name for name in recipes() if "sweep" in tomllib.loads(recipe_text(name))]


def load_recipe(name: str, *, noise: str | None = None, rate: float | None = None) -> Settings:
    """A recipe by name, or from a TOML file. A noise and a rate replace the recipe's own, and with them those settings
    of the method that it has for this noise: `[by_noise.uniform-60]` holds them for 60 % uniform noise."""
    tables = tomllib.loads(recipe_text(name))
    if "rows" in tables or "columns" in tables:
        raise ValueError(f"{name} is the recipe of a sweep, not of a single run; run it with: mslg sweep {name} -o DIR")
    by_noise = tables.pop("by_noise", {})
    settings = merged(checked(tables), {"data": {"noise": noise, "rate": rate}})
    data = settings["data"]
    if data.get("noise") is not None and data.get("rate") is not None:
        settings["method"].update(by_noise.get(f"{data['noise']}-{round(100 * data['rate'])}", {}))
    return settings


def recipe_text(name: str) -> str:
    """The text of a recipe by name, or of a TOML file."""
    if name.endswith(".toml"):
        path = Path(name)
        if not path.exists():
            raise FileNotFoundError(f"there is no recipe {path}; `mslg list recipes` shows those that come with mslg")
        return path.read_text()
    if name not in (known := recipes()):
        raise unknown("recipe", name, known)
    return (resources.files("mslg.runs.recipes") / f"{name}.toml").read_text()


def checked(tables: Mapping[str, Any]) -> Settings:
    """Only the tables and keys that mean something; anything else is an error."""
    settings: Settings = {name: {} for name in TABLES}
    for name, table in tables.items():
        if name in ("format_version", "versions", "sweep"):
            continue
        if name not in TABLES:
            raise unknown("table in a recipe", name, TABLES)
        settings[name] = {key: value for key, value in table.items() if key not in RECORDED.get(name, ())}
    for name, keys in {"data": DATA_KEYS, "train": (*TRAIN_KEYS, "from_run", "fdr")}.items():
        for key in settings[name]:
            if key not in keys:
                raise unknown(f"key in [{name}]", key, keys)
    return settings


def merged(*layers: Mapping[str, Mapping[str, Any]]) -> Settings:
    """Later layers win; None means not given. Another name drops the settings that came before it."""
    result: Settings = {name: {} for name in TABLES}
    for layer in layers:
        for name, table in layer.items():
            given = {key: value for key, value in table.items() if value is not None}
            before = result[name].get("name", DEFAULT_NAMES.get(name))
            if name in ("method", "network") and before is not None and given.get("name", before) != before:
                result[name] = {}  # the settings of another method mean nothing to this one
            result[name].update(given)
    return result


def assignments(pairs: list[str], method: str) -> Settings:
    """`key=value` words. A key may name its table; otherwise the one that knows it is found."""
    settings: Settings = {name: {} for name in TABLES}
    for pair in pairs:
        key, mark, text = pair.partition("=")
        if not mark:
            raise ValueError(f"'{pair}' is not a setting; write --set key=value, such as --set label_rate=1.5")
        table, dot, name = key.strip().partition(".")
        if not dot:
            table, name = _owner(key.strip(), method), key.strip()
        if table not in TABLES:
            raise unknown("table", table, TABLES)
        settings[table][name] = value_of(text.strip())
    return settings


def value_of(text: str) -> Any:
    """A TOML value; anything that is not one is taken as text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _owner(key: str, method: str) -> str:
    from ..methods import METHODS

    known = [name for name in inspect.signature(METHODS.load(method)).parameters if name != "task"]
    if key in known:
        return "method"
    if key in TRAIN_KEYS:
        return "train"
    raise unknown("setting", key, [*known, *TRAIN_KEYS, "network.…"])


def run_recipe(settings: Settings, fit: Callable[..., Any], *, workers: int | None = None, **options: Any) -> Any:
    """Load the data, corrupt it if asked to, make the network, and fit. The number of worker processes is no part of
    the settings: it changes no result, and a run may be resumed with another."""
    from ..data.augmentation import Augment
    from ..networks.build import default_network, network_factory
    from .open_data import open_data

    seed = int(settings["train"].get("seed", 0))
    opened = open_data(settings["data"], noise_settings=settings.get("noise"), seed=seed, workers=workers)
    data, train = dict(settings["data"]), dict(settings["train"])
    if data.get("test_from") is not None:
        opened = opened._replace(**_held_out_of_train(opened, data, seed))
    elif data.get("clean_from") is not None or data.get("test") is not None:
        opened = opened._replace(**_clean_from_test(opened, data, seed))
    if data.get("features") is not None:
        opened = opened._replace(**_features(opened, data, train.pop("augment", None), options))
    augment = Augment.parse(train.get("augment"))
    network = dict(settings["network"])
    network["name"] = name = network.pop("name", None) or default_network(opened.train, augment)
    method = dict(settings["method"])
    if _told(data):
        train = {"noise_rate": opened.noise_rate, "transition": opened.transition, **train}
    sizes = {key: value for key, value in network.items() if key != "name"}
    return fit(
        network_factory(name, opened.train, augment=augment, **sizes),
        opened.train,
        opened.clean,
        method=method.pop("name", "mslg"),
        test=opened.test,
        config={"data": data, "noise": settings.get("noise", {}), "network": network},
        **train,
        **method,
        **options,
    )


def _told(data: Mapping[str, Any]) -> bool:
    told = data.get("told", True)
    if not isinstance(told, bool):
        raise ValueError(f"told is {told!r}; it must be true or false: whether methods are told the noise made here")
    return told


def _clean_from_test(opened: Any, data: Mapping[str, Any], seed: int) -> dict[str, Any]:
    from ..data.make_splits import clean_from_test
    from ..registry import expect_name

    if data.get("clean_from") is None:
        raise ValueError(
            f'test = {data["test"]} says how many test samples, not where they come from; give clean_from = "test" '
            '(what is left of the test set beside the clean samples) or test_from = "train" too, or leave test out'
        )
    expect_name("place to take clean samples from", str(data.get("clean_from")), ["test"])
    if not isinstance(opened.clean, int) or opened.test is None:
        raise ValueError(
            'clean_from = "test" needs a number of clean samples and data with a test set; '
            "give clean = N, or leave clean_from out"
        )
    clean, test = clean_from_test(opened.test, opened.clean, data.get("test"), seed)
    return {"clean": clean, "test": test}


def _held_out_of_train(opened: Any, data: Mapping[str, Any], seed: int) -> dict[str, Any]:
    from ..data.make_splits import held_out_of_train
    from ..registry import expect_name

    expect_name("place to take test samples from", str(data["test_from"]), ["train"])
    if data.get("clean_from") is not None:
        raise ValueError("test_from and clean_from both say where the test samples come from; give one of them")
    if not isinstance(data.get("test"), int):
        raise ValueError('test_from = "train" needs the number of test samples; give test = N')
    train, test = held_out_of_train(opened.train, data["test"], seed)
    return {"train": train, "test": test}


def _features(opened: Any, data: dict[str, Any], augment: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Training, clean and test inputs replaced by a backbone's features. How the images were prepared is written into
    the data's settings, so that a resumed run prepares them likewise."""
    from ..data.augmentation import Augment
    from ..data.source import Source
    from ..networks.features import backbone, extract, preparation

    name, weights = str(data["features"]), data.get("features_weights")
    if (words := data.get("features_prepare")) is not None:
        prepare = Augment.parse(words)
    else:
        prepare = preparation(name, opened.train, Augment.parse(augment))
    data["features_prepare"] = prepare.words
    network = backbone(name, opened.train, prepare=prepare, weights=weights)
    parts = {"train": opened.train, "clean": opened.clean, "test": opened.test}
    told = {key: options[key] for key in ("device", "progress") if key in options}
    return {
        key: extract(part, network, prepare=prepare, name=name, **told)
        for key, part in parts.items()
        if isinstance(part, Source)
    }
