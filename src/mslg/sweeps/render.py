"""The table of a sweep as text, Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .grid import Grid
from .table import Difference, Place, Summary

MARKS = "†‡§¶"
MEASURES = {
    "test/accuracy": "accuracy on the test set",
    "select/accuracy": "accuracy on the select part of the clean samples",
    "report/accuracy": "accuracy on the report part of the clean samples",
    "given/accuracy": "given labels that are correct",
    "predictions/accuracy": "predicted labels of the training set that are correct",
    "labels/accuracy": "labels in the label table that are correct",
    "suggested/accuracy": "suggested labels that are correct",
}
LATEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "−": "$-$", "–": "--", "%": r"\%", "†": r"$^\dagger$"}
LATEX |= {"‡": r"$^\ddagger$", "§": r"$^\S$", "¶": r"$^\P$", "&": r"\&", "_": r"\_", "#": r"\#", "$": r"\$"}
LATEX |= {"{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


@dataclass(frozen=True)
class Shown:
    """What a renderer needs."""

    grid: Grid
    summary: Summary
    against: str | None
    differences: Mapping[tuple[str, str], Difference]

    @property
    def has_paper(self) -> bool:
        return any(place.paper is not None for place in self.summary.places.values())

    @property
    def marks(self) -> dict[str, str]:
        """Footnote marks, one per kind of knowledge that some rows have beyond the protocol."""
        known = list(dict.fromkeys(row.knows for row in self.grid.rows if row.knows is not None))
        return {
            words: MARKS[number] if number < len(MARKS) else f"({number + 1})" for number, words in enumerate(known)
        }

    def label(self, name: str) -> str:
        knows = next(row.knows for row in self.grid.rows if row.name == name)
        return name if knows is None else f"{name} {self.marks[knows]}"


def text(shown: Shown, width: int = 120) -> str:
    """Aligned columns, wrapped into blocks that fit the width; the best of a column has a star."""
    parts = [_heading(shown)]
    for heading, rows, cell in _tables(shown, lambda words: f"{words}*"):
        parts += [*([heading] if heading else []), _aligned(shown, rows, cell, width)]
    return "\n\n".join([*parts, "\n".join(_notes(shown, "*"))]) + "\n"


def markdown(shown: Shown) -> str:
    """Markdown tables; the best of a column is bold."""
    columns = [column.name for column in shown.grid.columns]
    title, *protocol = _heading(shown).splitlines()
    parts = [f"**{title}**", *protocol]
    for heading, rows, cell in _tables(shown, lambda words: f"**{words}**"):
        lines = [("", *columns), ("---", *("---:" for _ in columns))]
        lines += [(shown.label(row), *(cell(row, column) for column in columns)) for row in rows]
        table = "\n".join("| " + " | ".join(word.replace("|", "\\|") for word in line) + " |" for line in lines)
        parts += [*([heading] if heading else []), table]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in _notes(shown, "bold"))]) + "\n"


def latex(shown: Shown) -> str:
    """One tabular per table (package booktabs), and the notes as comments."""
    columns = [column.name for column in shown.grid.columns]
    lines = [f"% {line}" for line in _heading(shown).splitlines()]
    for heading, rows, cell in _tables(shown, lambda words: f"\0{words}\1"):
        lines += [f"% {heading}"] if heading else []
        lines += [rf"\begin{{tabular}}{{l{'r' * len(columns)}}}", r"\toprule"]
        lines += [" & ".join(map(_latex, ("", *columns))) + r" \\", r"\midrule"]
        for row in rows:
            lines.append(" & ".join(map(_latex, (shown.label(row), *(cell(row, name) for name in columns)))) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*lines, *(f"% {note}" for note in _notes(shown, "bold"))]) + "\n"


def as_csv(shown: Shown) -> str:
    """One line per row and column."""
    lines = records(shown)["cells"]
    into = io.StringIO()
    names = [name for name in lines[0] if name != "values"]
    writer = csv.DictWriter(into, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return into.getvalue()


def as_json(shown: Shown) -> str:
    """All numbers."""
    return json.dumps(records(shown), indent=1, ensure_ascii=False) + "\n"


def records(shown: Shown) -> dict[str, Any]:
    """The table as plain values, in percent, rounded to four decimals."""
    grid, summary = shown.grid, shown.summary
    cells = []
    for row in grid.rows:
        for column in grid.columns:
            key = row.name, column.name
            place, difference = summary.places[key], shown.differences.get(key)
            paper = place.paper or (None, None)
            cells.append(
                {
                    "row": row.name,
                    "column": column.name,
                    "mean": _round(place.mean),
                    "sd": _round(place.sd),
                    "seeds": len(place.values),
                    "failed": place.failed,
                    "without": place.without,
                    "asked": place.seeds,
                    "best": key in summary.best,
                    "knows": row.knows,
                    "paper_mean": paper[0],
                    "paper_sd": paper[1],
                    "paper_failed": place.paper is not None and paper[0] is None,
                    "difference": None if difference is None else _round(difference.mean),
                    "difference_low": None if difference is None else _round(difference.low),
                    "difference_high": None if difference is None else _round(difference.high),
                    "difference_seeds": 0 if difference is None else difference.seeds,
                    "significant": difference is not None and difference.significant,
                    "values": {str(seed): _round(value) for seed, value in place.values.items()},
                }
            )
    about = {"title": grid.title, "protocol": grid.protocol, "note": grid.note, "measure": summary.measure}
    about |= {
        "epoch": "best on select" if summary.best_epoch else "last",
        "paper": grid.paper,
        "against": shown.against,
    }
    return {**about, "cells": cells}


FORMATS: dict[str, Callable[[Shown], str]] = {
    "text": text,
    "markdown": markdown,
    "latex": latex,
    "csv": as_csv,
    "json": as_json,
}

CellWords = Callable[[str, str], str]


def _tables(shown: Shown, bold: Callable[[str], str]) -> Iterable[tuple[str, list[str], CellWords]]:
    """The table itself and the table of differences: heading, rows, and a function from (row, column) to text."""
    summary, differences = shown.summary, shown.differences
    rows = [row.name for row in shown.grid.rows]

    def number(row: str, column: str) -> str:
        return _number(summary.places[row, column], bold if (row, column) in summary.best else str)

    def difference(row: str, column: str) -> str:
        found = differences.get((row, column))
        asked = len(shown.grid.seeds)
        return "–" if found is None else _difference(found, asked, bold if found.significant else str)

    yield "", rows, number
    if shown.against is not None and differences:
        others = [row for row in rows if row != shown.against]
        yield f"difference to {shown.against}, paired by seed, with 95 % intervals", others, difference


def _number(place: Place, bold: Callable[[str], str]) -> str:
    counts = [f"{place.finished}/{place.seeds}"] if 0 < place.finished < place.seeds else []
    counts += [f"{place.failed} fail"] if place.failed and place.values else []
    counts += [f"{place.without} n/a"] if place.without and place.values else []
    nothing = "fail" if place.failed else "n/a" if place.without else "–"
    words = [nothing if place.mean is None else bold(_spread(place.mean, place.sd))]
    words += [f"({', '.join(counts)})"] if counts else []
    if place.paper is not None:
        mean, sd = place.paper
        words.append("[fail]" if mean is None else f"[{_spread(mean, sd)}]")
    return " ".join(words)


def _difference(found: Difference, asked: int, bold: Callable[[str], str]) -> str:
    words = [bold(_signed(found.mean))]
    if found.low is not None and found.high is not None:
        words.append(f"[{_signed(found.low)}, {_signed(found.high)}]")
    if found.seeds < asked:
        words.append(f"({found.seeds}/{asked})")
    return " ".join(words)


def _notes(shown: Shown, bold: str) -> list[str]:
    grid, summary = shown.grid, shown.summary
    measure = MEASURES.get(summary.measure, summary.measure)
    when = "the epoch that was best on the select part" if summary.best_epoch else "the last epoch"
    notes = [f"{measure} in percent, {when}: mean ± standard deviation over {len(grid.seeds)} seeds; {bold}: best"]
    if grid.note is not None:
        notes.insert(0, grid.note)
    if shown.has_paper:
        notes.append("[…]: the paper's number for the same noise, with its own data, networks and protocol")
    places = summary.places.values()
    if any(place.finished < place.seeds for place in places):
        notes.append(f"(n/{len(grid.seeds)}): only n seeds are finished, never marked as best; –: none")
    if any(place.without for place in places):
        notes.append("n/a: finished, but without this metric")
    if any(place.failed for place in places):
        notes.append("fail: training diverged")
    notes += [f"{mark}: knows {words}; never marked as best" for words, mark in shown.marks.items()]
    if shown.against is not None and shown.differences:
        notes.append(f"differences in percentage points; {bold}: the interval excludes zero")
        if any(found.seeds < len(grid.seeds) for found in shown.differences.values()):
            notes.append(f"(n/{len(grid.seeds)}) after a difference: over the n seeds that both rows have")
    return notes


def _heading(shown: Shown) -> str:
    protocol = shown.grid.protocol
    return shown.grid.title + ("" if protocol is None else f"\nprotocol {protocol}")


def _aligned(shown: Shown, rows: list[str], cell: CellWords, width: int) -> str:
    names = ["", *map(shown.label, rows)]
    first = max(map(len, names))
    blocks: list[list[str]] = []
    used = width
    for column in shown.grid.columns:
        words = [column.name, *(cell(row, column.name) for row in rows)]
        wide = max(map(len, words))
        if used + 2 + wide > width:
            blocks.append([f"{name:<{first}}" for name in names])
            used = first
        blocks[-1] = [f"{line}  {word:>{wide}}" for line, word in zip(blocks[-1], words, strict=True)]
        used += 2 + wide
    return "\n\n".join("\n".join(block) for block in blocks)


def _latex(words: str) -> str:
    escaped = "".join(LATEX.get(letter, letter) for letter in words)
    return escaped.replace("\0", r"\textbf{").replace("\1", "}")


def _spread(mean: float, sd: float | None) -> str:
    return f"{mean:.1f}" if sd is None else f"{mean:.1f} ± {sd:.1f}"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
