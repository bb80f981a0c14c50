"""Recipes: settings in TOML files, bundled with the package or written by the user. A run's config.toml is one too.

Settings come in layers: the constructors' defaults, then a recipe, then the command line. Each layer is a dictionary of
tables with only the values that were given; `mslg.runs.settings` turns the merged layers into checked settings.

    [by_noise.KIND-PERCENT]  settings of the method for one noise and rate, such as [by_noise.uniform-60]
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any

from ...registry import UntrustedCode, unknown
from ...runtime.files import regular
from ..settings import DEFAULT_METHOD, TABLES, Data, Tables, Train, check_names, check_value, hints

# What a run records in addition to its settings.
RECORDED = {
    "data": (
        "samples",
        "fingerprint",
        "known_labels_fingerprint",
        "clean_fingerprint",
        "test_fingerprint",
        "decisions_fingerprint",
        "weights_fingerprint",
    ),
    "network": ("class", "made_by"),
    "train": ("epochs_asked", "from_run_fingerprint"),
}
# Settings that may name code, and what may stand before the colon without being code: torchvision:resnet50, hf:FOLDER.
LIBRARIES = ("torchvision", "timm", "packaged")
NAMES_CODE: dict[tuple[str, str], tuple[str, ...]] = {
    ("method", "name"): (),
    ("network", "name"): LIBRARIES,
    ("noise", "network"): LIBRARIES,
    ("data", "noise"): (),
    ("data", "features"): LIBRARIES,
    ("data", "source"): ("hf",),
    ("data", "clean"): ("hf",),
}


def recipes() -> dict[str, str]:
    """The recipes that come with the package, with the first line of each."""
    files = sorted(resources.files(__name__).iterdir(), key=lambda file: file.name)
    texts = {file.name.removesuffix(".toml"): file.read_text() for file in files if file.name.endswith(".toml")}
    return {name: text.splitlines()[0].lstrip("# ") for name, text in texts.items()}


def sweeps() -> list[str]:
    """The names of the recipes for `mslg sweep`."""
    return [name for name in recipes() if "sweep" in tomllib.loads(recipe_text(name))]


def load_recipe(name: str, *, noise: str | None = None, rate: float | None = None) -> Tables:
    """A recipe by name, or from a TOML file. Another noise or rate replaces the recipe's own, and with it the settings
    under [by_noise]."""
    tables = parsed(recipe_text(name), name)
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
        return regular(path).read_text(encoding="utf-8")
    if name not in (known := recipes()):
        raise unknown("recipe", name, known)
    return (resources.files(__name__) / f"{name}.toml").read_text()


def parsed(text: str, name: str) -> dict[str, Any]:
    """The tables of a recipe's text; a mistake in it is an error that names the recipe."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"{name} is not valid TOML: {why}") from error


def checked(tables: Mapping[str, Any]) -> Tables:
    """The tables of settings, without what a run records in addition; unknown names and wrong types are errors."""
    settings: Tables = {name: {} for name in TABLES}
    for name, table in tables.items():
        if name in ("format_version", "threads", "versions", "sweep"):
            continue
        if name not in TABLES:
            raise unknown("table in a recipe", name, TABLES)
        if not isinstance(table, Mapping):
            raise ValueError(f"{name} is {table!r}; it must be a table: [{name}]")
        settings[name] = {key: value for key, value in table.items() if key not in RECORDED.get(name, ())}
    for kind in (Data, Train):
        check_names(kind, settings[kind.title])
        limits = {item.name: item.metadata for item in fields(kind)}
        for key, value in settings[kind.title].items():
            check_value(f"{kind.title}.{key}", value, hints(kind)[key], limits[key])
    return settings


def merged(*layers: Mapping[str, Mapping[str, Any]]) -> Tables:
    """Later layers win; None means not given. Another name drops the settings that came before it."""
    result: Tables = {name: {} for name in TABLES}
    for layer in layers:
        for name, table in layer.items():
            given = {key: value for key, value in table.items() if value is not None}
            before = result[name].get("name", DEFAULT_METHOD if name == "method" else None)
            if name in ("method", "network") and before is not None and given.get("name", before) != before:
                result[name] = {}  # settings of another method or network do not apply
            result[name].update(given)
    return result


def assignments(pairs: list[str], method: Any) -> Tables:
    """The settings of `--set key=value`. A key may name its table, as in network.width=8; otherwise it belongs to the
    method or to [train]."""
    settings: Tables = {name: {} for name in TABLES}
    for pair in pairs:
        key, mark, text = pair.partition("=")
        if not mark:
            raise ValueError(f"'{pair}' is not a setting; write --set key=value, such as --set label_rate=1.5")
        table, dot, name = key.strip().partition(".")
        if not dot:
            table, name = _table_of(key.strip(), method), key.strip()
        if table not in TABLES:
            raise unknown("table", table, TABLES)
        settings[table][name] = value_of(text.strip())
    return checked(settings)


def value_of(text: str) -> Any:
    """A TOML value, or True and False as Python writes them; anything else is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return {"True": True, "False": False}.get(text, text)


def _table_of(key: str, method: Any) -> str:
    from ...methods import METHODS

    of_method = [name for name in inspect.signature(METHODS.resolve(method).object).parameters if name != "task"]
    of_train = [item.name for item in fields(Train)]
    if key in of_method:
        return "method"
    if key in of_train:
        return "train"
    raise unknown("setting", key, [*of_method, *of_train, "network.…"])


def refuse_code(
    settings: Mapping[str, Mapping[str, Any]], typed: Mapping[str, Mapping[str, Any]], file: object
) -> None:
    """Raise if settings from a file name code to import that the user has not named on the command line."""
    allowed = typed_code(typed)
    for table, key, path in _named_code(settings):
        if path not in allowed:
            option = {"name": f"--{table}", "source": "DATA"}.get(key, f"--{key.replace('_', '-')}")
            raise UntrustedCode(
                f"{file} names the code {path} ({table}.{key}), and code named in a file is not imported; if you trust "
                f"it, name it yourself ({option} {path}) or pass --trust-code"
            )


def typed_code(typed: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The import paths that the user has typed, in any table."""
    return {value for table in typed.values() for value in table.values() if isinstance(value, str) and ":" in value}


def _named_code(settings: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Settings of the form package.module:name."""
    for (table, key), libraries in NAMES_CODE.items():
        value = settings.get(table, {}).get(key)
        if not isinstance(value, str):
            continue
        kind, mark, _ = value.partition(":")
        is_path = table == "data" and key in ("source", "clean") and Path(value).exists()
        if mark and kind not in libraries and not is_path:
            yield table, key, value
