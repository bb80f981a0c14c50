"""Command-line options generated from the list of settings, which holds their names, types, defaults and help."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer

from ..runs.settings import default_of, hints

F = TypeVar("F", bound=Callable[..., None])

# Types of options whose Python type cannot be parsed from text.
TYPED: dict[str, Any] = {
    "clean": str | None,
    "augment": str | None,
    "from_run": Path | None,
    "output": Path | None,
    "time_budget": str | None,
    "loggers": list[str] | None,
}


def with_settings(*tables: type, **defaults: Any) -> Callable[[F], F]:
    """Add an option to a command for each setting of these tables that has a panel. The command receives them as
    keyword arguments; None means not given, unless `defaults` has another value."""

    def add(command: F) -> F:
        own = inspect.signature(command, eval_str=True)
        kept = [parameter for parameter in own.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
        made = [
            _option(item.name, hints(table)[item.name], item.metadata, defaults.get(item.name), default_of(item))
            for table in tables
            for item in fields(table)
            if item.metadata["panel"] is not None and item.name not in own.parameters
        ]
        parameters = [*(p for p in kept if p.kind is not p.KEYWORD_ONLY), *made]
        parameters += [p for p in kept if p.kind is p.KEYWORD_ONLY]
        command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        return command

    return add


def _option(name: str, kind: Any, about: Mapping[str, Any], default: Any, usual: Any) -> inspect.Parameter:
    flags = list(about["flags"])
    if flags and flags[0].startswith("/"):  # an option that switches off a default
        flags = [f" {flags[0]}"]
        default, info = (
            True,
            typer.Option(*flags, help=about["help"], show_default=False, rich_help_panel=about["panel"]),
        )
        return _parameter(name, bool, default, info)
    typed = TYPED.get(name) or _typed(kind)
    if typed is bool:
        flags = flags or [f"--{name.replace('_', '-')}"]
        default = False
    if default is None and usual is not None and typed is not bool and not callable(usual) and usual != ():
        about = {**about, "help": f"{about['help'].rstrip('.')} (default {usual})."}
    return _parameter(name, typed, default, typer.Option(*flags, help=about["help"], rich_help_panel=about["panel"]))


def _parameter(name: str, kind: Any, default: Any, info: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _typed(kind: Any) -> Any:
    """The type that an argument is parsed as, or None if it is not given."""
    choices = [each for each in get_args(kind) if each is not type(None)] if _is_union(kind) else [kind]
    if bool in choices:
        return bool
    number = next((each for each in (int, float) if choices == [each]), None)
    return (number or str) | None


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType) and get_origin(kind) is not Literal
