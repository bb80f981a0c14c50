"""The page on the Python interface, from signatures, docstrings and the comments of fields."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from functools import cached_property
from typing import Any

import mslg
import mslg.bilevel
import mslg.data.splits
import mslg.testing
import mslg.training.method
from mslg.registry import Registry

INTRODUCTION = """\
# Python interface

The public names, as they are in the code. What is at the top is imported as `from mslg import …`; the others are named
with their module.
"""
WORDS = {
    "Train with scikit-learn": "What a fit leaves behind, and examples: [With scikit-learn](../scikit-learn.md).\n",
    "A loop of your own": "In use: [How it works](../how-it-works.md) and the README.\n",
    "Check a method, a noise or a data set of your own": "In use: [Plugins](../plugins.md).\n",
}
SECTIONS: dict[str, list[str]] = {
    "Train": ["fit", "Result", "review_next", "write_report"],
    "Use what was trained": ["load_model", "export"],
    "Train with scikit-learn": ["MSLGClassifier", "NoisyLabelClassifier"],
    "A loop of your own": ["mslg_step", "Bilevel", "LabelTable", "Batch"],
    "Add a method": ["Method", "Task", "MSLG"],
    "Check a method, a noise or a data set of your own": [],
    "What there is": ["METHODS", "NOISES", "DATASETS", "NETWORKS"],
}
INSIDE = {
    "Add a method": [
        (mslg.training.method, ["StepResult", "SingleNetwork"]),
        (mslg.data.splits, ["Splits", "Samples"]),
    ],
    "Check a method, a noise or a data set of your own": [
        (mslg.testing, ["check_method", "check_noise", "check_dataset"])
    ],
    "A loop of your own": [(mslg.bilevel, [name for name in mslg.bilevel.__all__ if name != "Bilevel"])],
}
# Of these the inherited members matter too; of others only their own.
WITH_INHERITED = {"MSLGClassifier", "NoisyLabelClassifier"}
WIDTH = 100


def api_page() -> str:
    """The whole page."""
    sorted_in = {name for names in SECTIONS.values() for name in names}
    sections = {**SECTIONS, "More": [name for name in mslg.__all__ if name not in sorted_in]}
    parts = [INTRODUCTION]
    for title, names in sections.items():
        if not names and title not in INSIDE:
            continue
        parts.append(f"## {title}\n")
        if title in WORDS:
            parts.append(WORDS[title])
        parts += [_entry(f"mslg.{name}", getattr(mslg, name)) for name in names]
        for module, inside in INSIDE.get(title, []):
            parts += [_entry(f"{module.__name__}.{name}", getattr(module, name)) for name in inside]
    return "\n".join(parts).rstrip("\n") + "\n"


def _entry(path: str, thing: Any) -> str:
    if isinstance(thing, Registry):
        return _registry(path, thing)
    if inspect.isclass(thing):
        return _class(path, thing)
    if inspect.isroutine(thing):
        return "\n".join([_heading(path), _signature(path.rpartition(".")[2], thing), _docstring(thing)])
    value = str(thing).removeprefix("typing.")
    return f"{_heading(path)}\n```py\n{path.rpartition('.')[2]} = {value}\n```\n"


def _heading(path: str) -> str:
    return f"### `{path}`\n"


def _registry(path: str, registry: Registry) -> str:
    rows = [f"| `{name}` | {entry.summary} | {', '.join(entry.needs)} |" for name, entry in registry.built_in.items()]
    words = f"A mapping from names to entries, those of installed packages included; `{path}.load(name)` imports one.\n"
    return "\n".join([_heading(path), words, "| name | what it is | needs |", "|---|---|---|", *rows, ""])


def _class(path: str, thing: type) -> str:
    parts = [_heading(path)]
    fields = _fields(thing)
    if not fields:
        parts.append(_signature(thing.__name__, thing))
    parts.append(_docstring(thing))
    if fields:
        parts += ["| field | type | default | meaning |", "|---|---|---|---|", *fields, ""]
    members = _members(thing)
    if members:
        parts += ["| member | what it does |", "|---|---|", *members, ""]
    return "\n".join(parts)


def _fields(thing: type) -> list[str]:
    """Rows for the fields of a dataclass or a named tuple, with the comment that follows each in the source."""
    if dataclasses.is_dataclass(thing):
        names = [field.name for field in dataclasses.fields(thing) if not field.name.startswith("_")]
    else:
        names = list(getattr(thing, "_fields", ()))
    source = inspect.getsource(thing) if names else ""
    rows = []
    for name in names:
        line = re.search(rf"^    {name}: (?P<rest>.+)$", source, re.MULTILINE)
        if line is None:
            continue
        rest, _, comment = line["rest"].partition("  # ")
        kind, _, default = rest.partition(" = ")
        default = "" if default.startswith("field(") else default
        rows.append(f"| `{name}` | {_code(kind)} | {_code(default)} | {comment.replace('|', chr(92) + '|')} |")
    return rows


def _members(thing: type) -> list[str]:
    """Rows for the methods and properties that have a docstring of their own, in the order of the source."""
    rows = []
    for base in thing.__mro__ if thing.__name__ in WITH_INHERITED else [thing]:
        if not base.__module__.startswith("mslg"):
            continue
        for name, member in vars(base).items():
            function = _function(member)
            if function is None or not function.__doc__ or (name.startswith("_") and name != "__call__"):
                continue
            plain = isinstance(member, property | cached_property)
            shown = name if plain else _call(name, getattr(thing, name))
            rows.append(f"| {_code(shown)} | {_first_line(function)} |")
    return rows


def _function(member: Any) -> Any:
    """The function behind a method or a property, None for anything else."""
    if isinstance(member, property):
        return member.fget
    if isinstance(member, cached_property):
        return member.func
    if isinstance(member, staticmethod | classmethod):
        return member.__func__
    # A function that is the default of a field has the name of another place.
    return member if inspect.isfunction(member) and "." in member.__qualname__ else None


def _call(name: str, function: Any) -> str:
    """A member's call in short: its arguments without their types."""
    words, seen_star = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not seen_star:
            words.append("*")
            seen_star = True
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        words.append(f"{prefix}{parameter.name}{default}")
    return f"{name.replace('__call__', '')}({', '.join(words)})"


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    signature = signature.replace(parameters=parameters)
    if inspect.isclass(function):
        signature = signature.replace(return_annotation=signature.empty)
    text = f"{name}{_plain(signature)}"
    if len(text) > WIDTH:
        lines, star = [], False
        for parameter in parameters:
            if parameter.kind is parameter.KEYWORD_ONLY and not star:
                lines.append("    *,")
                star = True
            lines.append(f"    {_plain(parameter)},")
        end = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
        text = "\n".join([f"{name}(", *lines, f"){end}"])
    return f"```py\n{text}\n```\n"


def _plain(part: Any) -> str:
    # Annotations are strings in this code base; their quotes are not part of them.
    text = re.sub(r"""(: |-> )(['"])(.*?)\2(?=[,)=\s]|$)""", r"\1\3", str(part))
    return text.replace(repr(1 / 3), "1/3")


def _docstring(thing: Any) -> str:
    """A docstring as Markdown: lines of "name   meaning" become a table."""
    text = inspect.cleandoc(vars(thing).get("__doc__") or "") if inspect.isclass(thing) else inspect.getdoc(thing) or ""
    parts: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        rows = _named(block)
        if heading := re.match(r"(Parameters|Attributes)\n-+\n", block):
            parts.append(_numpy_section(heading[1].removesuffix("s").lower(), block[heading.end() :]))
        elif section := re.match(r"(Args|Attributes|Returns|Raises):\n", block):
            parts.append(_section(section[1], textwrap.dedent(block[section.end() :])))
        elif rows is None:
            parts.append(textwrap.dedent(block).replace("\n", " "))
        else:
            parts.append("\n".join(["| argument | meaning |", "|---|---|", *rows]))
    return "\n\n".join(_escaped(part) for part in parts if part) + "\n"


def _section(title: str, body: str) -> str:
    """A section of a docstring: "name: meaning" in lines, a meaning continued in indented ones; or plain text."""
    if title == "Returns":
        return f"Returns: {' '.join(body.split())}"
    column = {"Args": "argument", "Attributes": "attribute", "Raises": "raises"}[title]
    entries = re.findall(r"^(\S+?): (.*(?:\n +.*)*)", body, re.MULTILINE)
    rows = [f"| `{name}` | {_cell(' '.join(meaning.split()))} |" for name, meaning in entries]
    return "\n".join([f"| {column} | meaning |", "|---|---|", *rows])


def _numpy_section(column: str, body: str) -> str:
    """A section in the style of NumPy: "name : type", with the meaning in the indented lines below it."""
    entries = re.findall(r"^(\S[^:\n]*?)(?: : .*)?((?:\n +.*)+)", body, re.MULTILINE)
    rows = [
        f"| {', '.join(f'`{name}`' for name in names.split(', '))} | {_cell(' '.join(meaning.split()))} |"
        for names, meaning in entries
    ]
    return "\n".join([f"| {column} | meaning |", "|---|---|", *rows])


def _named(block: str) -> list[str] | None:
    """The rows of a block whose lines are "name   meaning", a meaning going on in lines that are set in."""
    lines = block.splitlines()
    first = re.match(r"[a-z_][\w, .]*?\s{2,}(?=\S)", lines[0]) if lines else None
    if first is None:
        return None
    rows: list[list[str]] = []
    for line in lines:
        names, meaning = line[: first.end()], line[first.end() :]
        if not names.endswith(" "):  # more names than fit into the column
            names, meaning = re.split(r"\s{2,}", line, maxsplit=1)
        if names := names.strip():
            rows.append([names, meaning])
        else:
            rows[-1][1] += " " + meaning
    return [f"| {', '.join(f'`{name}`' for name in names.split(', '))} | {_cell(meaning)} |" for names, meaning in rows]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _escaped(text: str) -> str:
    """Signs that Markdown would take for emphasis, outside of code."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else piece.replace("*", "\\*") for piece in pieces)


def _first_line(member: Any) -> str:
    text = inspect.getdoc(member) or ""
    return _escaped(_cell(" ".join(re.split(r"\n\s*\n", text)[0].split())))


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""
