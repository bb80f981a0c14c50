"""Names and the classes or functions behind them, imported only when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """Where a thing is, what it is in one line, and what it needs."""

    path: str  # package.module:name
    summary: str
    needs: tuple[str, ...] = ()


class Registry(Mapping[str, Entry]):
    """A fixed set of named things of one kind."""

    def __init__(self, kind: str, entries: dict[str, Entry]) -> None:
        self.kind = kind
        self._entries = entries

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            raise unknown(self.kind, name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def load(self, name: str) -> Any:
        """The class or function of this name."""
        return load(self[name].path)


def load(path: str) -> Any:
    """The thing at `package.module:name`."""
    module, _, name = path.partition(":")
    if not name:
        raise ValueError(f"'{path}' is not an import path; write package.module:name")
    return getattr(import_module(module), name)


class UnknownName(ValueError):
    """A name that is not in its list."""


def unknown(kind: str, name: object, allowed: Iterable[str]) -> UnknownName:
    """The error for a name that is not allowed."""
    choices = list(allowed)
    close = get_close_matches(str(name), choices, n=1, cutoff=0.5)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    return UnknownName(f"unknown {kind} '{name}'.{hint} Allowed: {', '.join(choices)}")


def expect_name(kind: str, name: str, allowed: Iterable[str]) -> None:
    """Raise unless the name is one of those allowed."""
    choices = list(allowed)
    if name not in choices:
        raise unknown(kind, name, choices)
