"""From a name to a class or function: built in, registered by an installed package, or `package.module:Name`.

Nothing is imported before it is used, so that listing names needs neither torch nor the packages that registered them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from functools import cache, reduce
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

SHOWN = 8  # names in an error message: more are not read

# The import paths that the user has typed, where settings come from files; None where they all come from the caller.
_typed: ContextVar[frozenset[str] | None] = ContextVar("typed", default=None)


@contextmanager
def import_only(typed: Iterable[str] | None) -> Iterator[None]:
    """Inside, no code is imported but that of installed packages and of these names; None allows everything."""
    token = _typed.set(None if typed is None else frozenset(typed))
    try:
        yield
    finally:
        _typed.reset(token)


def importable() -> frozenset[str] | None:
    """The import paths that may be imported here; None if all may."""
    return _typed.get()


class Entry(NamedTuple):
    """Where a thing is, what it is in one line, and what it needs."""

    path: str  # package.module:name
    summary: str
    needs: tuple[str, ...] = ()


class Resolved(NamedTuple):
    """A class or function that was asked for, with the name to record it under."""

    name: str  # a registered name, or package.module:Name
    object: Any
    needs: frozenset[str]


class UnknownName(ValueError):
    """A name that is not in its list."""


class UntrustedCode(ValueError):
    """A file made by somebody else names code that would have to be imported."""


@dataclass(frozen=True, eq=False)
class Registry(Mapping[str, Entry]):
    """Things of one kind by name: those of this package, and those that installed packages register.

    group   entry-point group in which other packages register theirs; its last word is what `mslg list` calls them
    option  how a user names one: the keyword and the option, for messages
    forms   what else may be given instead of a name, for messages
    base    import path of the class that all of them must inherit from
    """

    kind: str
    built_in: Mapping[str, Entry]
    group: str | None = None
    option: str = ""
    forms: str = ""
    base: str | None = None

    def __getitem__(self, name: str) -> Entry:
        if name in self.built_in:
            return self.built_in[name]
        if name not in self.registered():
            raise self.unknown(name)
        return self.registered()[name]

    def __contains__(self, name: object) -> bool:
        return name in self.built_in or name in self.registered()

    def __iter__(self) -> Iterator[str]:
        return iter([*self.built_in, *self.registered()])

    def __len__(self) -> int:
        return len(self.built_in) + len(self.registered())

    def registered(self) -> Mapping[str, Entry]:
        """The entries of other packages. Two packages must not use the same name, nor one that is built in."""
        entries: dict[str, Entry] = {}
        for name, path, package in entry_points_of(self.group) if self.group else ():
            if other := self.built_in.get(name) or entries.get(name):
                whose = "is built in" if name in self.built_in else f"comes {other.summary}"
                raise ValueError(
                    f"the {self.kind} '{name}' {whose} ({other.path}), and the package {package} registers {path} "
                    f"under the same name; rename its entry point in {self.group}, or uninstall {package}"
                )
            entries[name] = Entry(path, f"from the package {package}")
        return entries

    def load(self, name: str) -> Any:
        """The class or function registered under this name."""
        return load(self[name].path, self.kind)

    def resolve(self, thing: Any, *, allow_import: bool = True) -> Resolved:
        """The class or function that a user means.

        Args:
            thing: The class or function itself, a registered name, or `package.module:Name`.
            allow_import: Whether code outside this package that no installed package has registered may be imported.
                Pass False for names from a file that somebody else may have made, such as a recipe or a run folder.

        Raises:
            UntrustedCode: `thing` is an import path and `allow_import` is False.
            UnknownName: There is no such name.
        """
        if not isinstance(thing, str):
            if not callable(thing):
                raise TypeError(
                    f"the {self.kind} is {thing!r}; pass a class or function, a registered name"
                    f"{f' ({self.listing})' if self.group else ''}, or {self.forms}"
                )
            path = f"{thing.__module__}:{thing.__qualname__}" if hasattr(thing, "__qualname__") else repr(thing)
            return self._checked(self._name_of(path), thing)
        name = self._name_of(thing)
        if name in [*self]:  # reads what packages register: a clash with a built-in name is never silent
            return self._checked(name, self.load(name))
        if ":" not in name or self.group is None:
            raise self.unknown(name)
        typed = _typed.get()
        if not allow_import or (typed is not None and name not in typed):
            raise UntrustedCode(
                f"the {self.kind} '{name}' is code outside mslg, named by a file that somebody else may have made, and "
                f"importing it would run it. If you trust it, name it yourself ({self.option}), or pass --trust-code"
            )
        return self._checked(name, load(name, self.kind, from_folder=True))

    def unknown(self, name: object) -> UnknownName:
        """The error for a name that is not registered."""
        return unknown(self.kind, name, self, see=self.listing, forms=self.forms)

    @property
    def listing(self) -> str:
        """The command that lists all of them."""
        return f"mslg list {self.group.rpartition('.')[2]}" if self.group else ""

    def _name_of(self, path: str) -> str:
        """The name that an import path is registered under; any other text as it is."""
        return next((name for name in self if self[name].path == path), path) if ":" in path else path

    def _checked(self, name: str, thing: Any) -> Resolved:
        if self.base is not None and not (isinstance(thing, type) and issubclass(thing, load(self.base))):
            raise TypeError(f"the {self.kind} {name} is not a subclass of {self.base.replace(':', '.')}")
        needs = self[name].needs if name in self else ()
        return Resolved(name, thing, frozenset(getattr(thing, "needs", needs)))


@cache
def entry_points_of(group: str) -> tuple[tuple[str, str, str], ...]:
    """Name, import path and package of what installed packages have registered in a group, without importing them."""
    from importlib.metadata import entry_points

    points = sorted(entry_points(group=group), key=lambda point: point.name)
    return tuple((point.name, point.value, point.dist.name if point.dist else "?") for point in points)


def load(path: str, kind: str = "object", *, from_folder: bool = False) -> Any:
    """The class or function at `package.module:name`; with `from_folder` also of a module in the current folder."""
    module_name, _, name = path.partition(":")
    if not name:
        raise ValueError(f"'{path}' is not an import path; write package.module:Name")
    try:
        module = _import_from_folder(module_name) if from_folder else import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and needs another that is not
        raise ImportError(
            f"there is no module {module_name} for the {kind} {path}; write package.module:Name, and start where the "
            "package can be imported (its folder, or PYTHONPATH)"
        ) from error
    found = reduce(lambda thing, word: getattr(thing, word, None), name.split("."), module)
    if not callable(found):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        close = get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f" Did you mean '{module_name}:{close[0]}'?" if close else ""
        raise ValueError(f"{module_name} has no class or function '{name}' for the {kind} {path}.{hint}")
    return found


def _import_from_folder(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        here = str(Path.cwd())
        if here in sys.path:
            raise
        # The installed command, unlike `python -m`, does not look in the current folder. Installed modules go first.
        sys.path.append(here)
        return import_module(name)


def unknown(kind: str, name: object, allowed: Iterable[str], *, see: str = "", forms: str = "") -> UnknownName:
    """The error for a name that is not allowed: what was meant, the names most like it, where to see all of them."""
    choices = list(allowed)
    close = get_close_matches(str(name), choices, n=1, cutoff=0.5)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    shown = ", ".join(choices)
    if len(choices) > SHOWN:
        likeness = {choice: SequenceMatcher(None, str(name), choice).ratio() for choice in choices}
        nearest = sorted(choices, key=lambda choice: -likeness[choice])[:SHOWN]
        shown = f"{', '.join(nearest)}, … ({see or f'{len(choices)} in all'})"
    return UnknownName(f"unknown {kind} '{name}'.{hint} Allowed: {shown}{f', or {forms}' if forms else ''}")


def expect_name(kind: str, name: str, allowed: Iterable[str]) -> None:
    """Raise unless the name is one of those allowed."""
    choices = list(allowed)
    if name not in choices:
        raise unknown(kind, name, choices)
