"""Settings of a run as tables: constructor defaults ← recipe ← command line. A run's config.toml is a recipe itself.

[data]     source, clean, noise, rate, root
[network]  name, and its constructor's arguments
[method]   name, preset, and its constructor's arguments
[train]    epochs, batch_size, optimizer, learning_rate, … : the arguments of `mslg.fit`
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from .names import unknown

TABLES = ("data", "network", "method", "train")
DATA_KEYS = ("source", "clean", "noise", "rate")
TRAIN_KEYS = (
    "epochs",
    "batch_size",
    "clean_batch_size",
    "optimizer",
    "learning_rate",
    "weight_decay",
    "schedule",
    "noise_rate",
    "hold_out",
    "seed",
)
RECORDED = {"data": ("samples", "fingerprint"), "network": ("class",)}  # written by a run, not settings

Settings = dict[str, dict[str, Any]]


def recipes() -> dict[str, str]:
    """The recipes that come with the package, with the first line of each."""
    found = {}
    for file in sorted(resources.files("mslg.recipes").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            found[file.name.removesuffix(".toml")] = file.read_text().splitlines()[0].lstrip("# ")
    return found


def load_recipe(name: str) -> Settings:
    """A recipe by name, or from a TOML file."""
    if name.endswith(".toml"):
        path = Path(name)
        if not path.exists():
            raise FileNotFoundError(f"there is no recipe {path}; `mslg list recipes` shows those that come with mslg")
        text = path.read_text()
    else:
        if name not in (known := recipes()):
            raise unknown("recipe", name, known)
        text = (resources.files("mslg.recipes") / f"{name}.toml").read_text()
    return checked(tomllib.loads(text))


def checked(tables: Mapping[str, Any]) -> Settings:
    """Only the tables and keys that mean something; anything else is an error."""
    settings: Settings = {name: {} for name in TABLES}
    for name, table in tables.items():
        if name in ("format_version", "versions", "sweep"):
            continue
        if name not in TABLES:
            raise unknown("table in a recipe", name, TABLES)
        settings[name] = {key: value for key, value in table.items() if key not in RECORDED.get(name, ())}
    for name, keys in {"data": DATA_KEYS, "train": TRAIN_KEYS}.items():
        for key in settings[name]:
            if key not in keys:
                raise unknown(f"key in [{name}]", key, keys)
    return settings


def merged(*layers: Mapping[str, Mapping[str, Any]]) -> Settings:
    """Later layers win; None means not given."""
    result: Settings = {name: {} for name in TABLES}
    for layer in layers:
        for name, table in layer.items():
            result[name].update({key: value for key, value in table.items() if value is not None})
    return result


def assignments(pairs: list[str], method: str) -> Settings:
    """`key=value` words. A key may name its table; otherwise the one that knows it is found."""
    settings: Settings = {name: {} for name in TABLES}
    for pair in pairs:
        key, mark, text = pair.partition("=")
        if not mark:
            raise ValueError(f"'{pair}' is not a setting; write --set key=value, such as --set label_rate=1.5")
        table, _, name = key.strip().rpartition(".")
        settings[table or _owner(name, method)][name] = value_of(text.strip())
        if table and table not in TABLES:
            raise unknown("table", table, TABLES)
    return settings


def value_of(text: str) -> Any:
    """A TOML value; anything that is not one is taken as text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _owner(key: str, method: str) -> str:
    from .methods import METHODS

    known = [name for name in inspect.signature(METHODS.load(method)).parameters if name != "task"]
    if key in known:
        return "method"
    if key in TRAIN_KEYS:
        return "train"
    raise unknown("setting", key, [*known, *TRAIN_KEYS, "network.…"])


def run_recipe(settings: Settings, fit: Callable[..., Any], **options: Any) -> Any:
    """Load the data, corrupt it if asked to, make the network, and fit."""
    from .datasets.open import open_data
    from .networks.build import default_network, network_factory

    seed = int(settings["train"].get("seed", 0))
    opened = open_data(settings["data"], seed=seed)
    network = dict(settings["network"])
    network["name"] = name = network.pop("name", None) or default_network(opened.train)
    method = dict(settings["method"])
    train = {"noise_rate": opened.noise_rate, "transition": opened.transition, **settings["train"]}
    return fit(
        network_factory(name, opened.train, **{key: value for key, value in network.items() if key != "name"}),
        opened.train,
        opened.clean,
        method=method.pop("name", "mslg"),
        test=opened.test,
        config={"data": settings["data"], "network": network},
        **train,
        **method,
        **options,
    )
