"""`mslg check`: inspect the data before training."""

from __future__ import annotations

import json
import logging
import sys
from typing import Annotated, Any

import typer

SHOWN = 10  # entries of a list that are printed; --json has all


def check(
    data: Annotated[str, typer.Argument(help="Data as for mslg fit.")],
    clean: Annotated[str | None, typer.Option(help="Clean data as for mslg fit, to find overlaps.")] = None,
    root: Annotated[str | None, typer.Option(help="The folder of a named data set.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Name of the column of labels.")] = None,
    text_column: Annotated[str | None, typer.Option(help="Name of the column of texts.")] = None,
    path_column: Annotated[str | None, typer.Option(help="Name of the column of image paths.")] = None,
    id_column: Annotated[str | None, typer.Option(help="Name of the column of ids.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that decode images; up to 4 by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output, complete.")] = False,
) -> None:
    """Count samples and classes, and find corrupt images, duplicates and overlaps.

    The exit code is 1 if there is a problem that would stop or spoil a run.

    Example: mslg check photos/ --clean verified.csv
    """
    from dataclasses import asdict

    from ..data.check import inspect
    from ..data.open import open_named, reading_of
    from ..data.open_clean import open_clean
    from ..data.source import Source

    logging.getLogger("mslg").setLevel(logging.WARNING)
    columns = {"label_column": label_column, "text_column": text_column, "path_column": path_column}
    # Corrupt images are to be found, not refused.
    reading = reading_of({**columns, "id_column": id_column, "corrupt": "keep"})
    bundle = open_named(data, root=root, reading=reading)
    opened = open_clean(clean, bundle, root=root, reading=reading)
    total = sum(len(part) for part in (bundle.train, bundle.test, opened) if isinstance(part, Source))
    with _Bar(total) as bar:
        findings = inspect(
            bundle, opened if isinstance(opened, Source | int) else None, workers=workers, advance=bar.advance
        )
    if as_json:
        print(json.dumps(asdict(findings), indent=1, ensure_ascii=False))
    else:
        _print(findings)
    if findings.fatal:
        raise typer.Exit(1)


class _Bar:
    """A progress bar, on a terminal only."""

    def __init__(self, total: int) -> None:
        self._bar: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("looking at samples", total=total)

    def __enter__(self) -> _Bar:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int) -> None:
        if self._bar is not None:
            self._bar.advance(self._task, count)


def _print(findings: Any) -> None:
    _say("samples   " + ", ".join(f"{count} {name}" for name, count in findings.samples.items()))
    classes = sorted(findings.classes.items(), key=lambda pair: -pair[1])
    _say(f"classes   {len(classes)}: " + _some([f"{name} ({count})" for name, count in classes]))
    if findings.sizes:  # texts have none
        _say("sizes     " + _some([f"{size} ({count})" for size, count in findings.sizes.items()]))
    _lines("corrupt", [f"{entry['id']} ({entry['part']}): {entry['problem']}" for entry in findings.corrupt])
    _lines("same content", [" = ".join(group) for group in findings.duplicates])
    _lines("in train and test", [" = ".join(pair) for pair in findings.leaks])
    _lines("in both sets by id", findings.same_ids)
    _lines("in both sets by content", [" = ".join(pair) for pair in findings.same_content])
    for words in findings.warnings:
        _say(f"note      {words}")
    for words in findings.fatal:
        _say(f"FATAL     {words}")
    if not findings.fatal:
        _say("ok        nothing here would stop a run")


def _say(text: str) -> None:
    """Names from the data must not act on the terminal."""
    from ..runtime.printable import printable

    print(printable(text))


def _some(words: list[str]) -> str:
    return ", ".join(words[:SHOWN]) + (f" and {len(words) - SHOWN} more" if len(words) > SHOWN else "")


def _lines(title: str, entries: list[str]) -> None:
    if entries:
        _say(f"{title}: {len(entries)}")
        for entry in entries[:SHOWN]:
            _say(f"  {entry}")
        if len(entries) > SHOWN:
            _say(f"  and {len(entries) - SHOWN} more (--json lists them all)")
