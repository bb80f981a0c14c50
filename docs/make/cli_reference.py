"""The page on the command line, from the signatures and docstrings of the commands."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from mslg.cli.app import app

INTRODUCTION = """\
# Command line

Every command with its arguments and options, as `mslg COMMAND --help` shows them. Data goes to stdout, messages go to
stderr. The exit code is 0 if all went well, 1 after a failure and 2 if the command was not understood. `NO_COLOR` and
output that is no terminal are respected.
"""
KINDS = {str: "text", Path: "path", int: "number", float: "number", bool: ""}


def cli_page() -> str:
    """The whole page."""
    commands: dict[str, Callable[..., Any]] = {
        info.name or info.callback.__name__: info.callback for info in app.registered_commands if info.callback
    }
    rows = [f"| [`mslg {name}`](#mslg-{name}) | {_summary(command)} |" for name, command in commands.items()]
    overview = "\n".join(["| command | what it does |", "|---|---|", *rows])
    return "\n".join([INTRODUCTION, overview, *(_section(name, command) for name, command in commands.items())])


def _summary(command: Callable[..., Any]) -> str:
    return " ".join((inspect.getdoc(command) or "").partition("\n\n")[0].split())


def _section(name: str, command: Callable[..., Any]) -> str:
    words, examples = _words_and_examples(inspect.getdoc(command) or "")
    lines = ["", f"## `mslg {name}`", "", *words, "```sh", *examples, "```", ""]
    arguments: list[str] = []
    panels: dict[str, list[str]] = {}
    hints = get_type_hints(command, include_extras=True)
    for key, parameter in inspect.signature(command).parameters.items():
        kind, info = get_args(hints[key])[:2]
        if isinstance(info, ArgumentInfo):
            arguments.append(f"| `{key.upper()}` | {_text(info.help)} |")
        elif isinstance(info, OptionInfo) and not info.hidden:
            panels.setdefault(info.rich_help_panel or "Options", []).append(_row(parameter, kind, info))
    if arguments:
        lines += ["| argument | meaning |", "|---|---|", *arguments, ""]
    for title, options in panels.items():
        lines += [f"| {title} | meaning | default |", "|---|---|---|", *options, ""]
    return "\n".join(lines).rstrip("\n")


def _words_and_examples(text: str) -> tuple[list[str], list[str]]:
    """A help text's paragraphs, and the commands that it gives as examples."""
    words, _, examples = text.partition("Example")
    paragraphs = [" ".join(part.split()) for part in words.split("\n\n") if part.strip()]
    return [line for paragraph in paragraphs for line in (paragraph, "")], re.findall(r"mslg .+", examples)


def _row(parameter: inspect.Parameter, kind: Any, info: OptionInfo) -> str:
    # The first name of an annotated option stands where its default would.
    first = info.default if isinstance(info.default, str) else f"--{parameter.name.replace('_', '-')}"
    names = [name.strip() for each in (first, *(info.param_decls or ())) for name in each.split("/") if name.strip()]
    flags = ", ".join(f"`{name}`" for name in sorted(names, key=len))
    default = parameter.default
    if default is parameter.empty:
        words = "required"
    else:
        # What a flag does by default is told by its name.
        words = "" if default is None or isinstance(default, bool) else f"`{default}`"
    return f"| {' '.join(filter(None, [flags, _kind(kind)]))} | {_text(info.help)} | {words} |"


def _kind(kind: Any) -> str:
    """What is to be written after an option."""
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is list:
        kind = get_args(kind)[0]
    return KINDS[kind]


def _text(words: str | None) -> str:
    return (words or "").replace("|", "\\|")
