"""Curves of a sweep: test accuracy, right labels and memorised labels over epochs; accuracy over the size of the clean
set."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from ..registry import expect_name
from ..runs.settings import DEFAULT_METHOD
from ..runtime.files import write_atomically
from .grid import Axis, Cell, Grid
from .ledger import Finished

Key = tuple[str, str, int]
KINDS = ("epochs", "labels", "given", "clean")
YLABELS = {"labels": "right labels (%)", "given": "given label predicted (%)"}
FILES = (".png", ".svg", ".pdf")
# Okabe and Ito's colour-blind-safe palette, without its yellow, which is hard to see on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", ":", "-.")
MARKERS = "os^Dv"
ACROSS = 3  # panels side by side
WIDTH = 8.6  # inches


class Line(NamedTuple):
    """Mean and standard deviation over seeds, in percent."""

    x: list[int]
    mean: list[float]
    sd: list[float]  # 0 for a single seed


class Panel(NamedTuple):
    """Lines by label, with a title; a line in `dashed` accompanies the solid one of the same label."""

    title: str
    lines: dict[str, Line]
    dashed: dict[str, Line]


def panels(grid: Grid, results: Mapping[Key, Finished], kind: str = "epochs") -> list[Panel]:
    """The panels to draw; empty ones are left out."""
    expect_name("kind of plot", kind, KINDS)
    if kind == "clean":
        return _over_clean(grid, results)
    found = []
    for column in grid.columns:
        runs = {
            row.name: [results[key] for seed in grid.seeds if (key := (row.name, column.name, seed)) in results]
            for row in grid.rows
        }
        if kind == "epochs":
            panel = Panel(column.name, _curves(runs, "test/accuracy"), {})
        elif kind == "given":
            differ = _curves(runs, "predictions/differ")
            panel = Panel(column.name, {row: _complement(line) for row, line in differ.items()}, {})
        else:
            panel = Panel(column.name, _curves(runs, "labels/accuracy"), _curves(runs, "predictions/accuracy"))
        found.append(panel)
    return [panel for panel in found if panel.lines or panel.dashed]


def colour_numbers(grid: Grid) -> dict[str, int]:
    """Numbers of colours by label: a row has the same one in every panel and every kind of plot. Where rows are the
    sizes of one method's clean set, its line has that of the first."""
    numbers = {row.name: number for number, row in enumerate(grid.rows)}
    for row, number in list(zip(grid.rows, numbers.values(), strict=True)):
        numbers.setdefault(_method(row, grid.cell(row, grid.columns[0], grid.seeds[0])), number)
    return numbers


def over_epochs(runs: Sequence[Finished], name: str) -> Line:
    """Mean and standard deviation over runs, at the epochs (counted from 1) that all of them have."""
    points = [
        {epoch + 1: value for epoch, value in zip(run.epochs, run.curves[name], strict=True) if value is not None}
        for run in runs
        if name in run.curves
    ]
    shared = sorted(set.intersection(*map(set, points))) if points else []
    return _line({epoch: [100 * each[epoch] for each in points] for epoch in shared})


def draw(panels: Sequence[Panel], path: Path, *, title: str, colours: Mapping[str, int], kind: str = "epochs") -> None:
    """Draw the panels into a .png, .svg or .pdf; `colours` are those of `colour_numbers`."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    if path.suffix not in FILES:
        raise ValueError(f"{path} must end in {', '.join(FILES)}")
    style = {"svg.hashsalt": "mslg", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    across = min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    labels = _numbered(panels, colours)
    width = max(4.6, WIDTH * across / ACROSS)
    with rc_context(style):
        height = 0.5 + 2.5 * down + 0.19 * -(-len(labels) // _legend_columns(list(labels), width))
        figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
        figure.set_facecolor("white")
        axes = figure.subplots(
            down, across, squeeze=False, sharey=kind == "clean"
        )  # methods are compared across panels
        for axis in axes.flat[len(panels) :]:
            axis.set_visible(False)
        for axis, panel in zip(axes.flat, panels, strict=False):
            _draw_panel(axis, panel, labels, kind)
        for row in axes:
            row[0].set_ylabel(YLABELS.get(kind, "test accuracy (%)"))
        figure.suptitle(title, fontsize=11)
        _legend(figure, labels, kind, any(panel.dashed for panel in panels))
        content = BytesIO()
        unstamped = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[path.suffix]
        figure.savefig(content, format=path.suffix[1:], metadata=unstamped)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())


def _numbered(panels: Sequence[Panel], colours: Mapping[str, int]) -> dict[str, int]:
    """The labels in the legend's order, with the number of their colour; those that are no rows are counted."""
    labels = dict.fromkeys(label for panel in panels for label in (*panel.lines, *panel.dashed))
    found = {label: colours.get(label, number) for number, label in enumerate(labels)}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _draw_panel(axis: Any, panel: Panel, labels: Mapping[str, int], kind: str) -> None:
    for lines, second in ((panel.lines, False), (panel.dashed, True)):
        for label, line in lines.items():
            look = _look(labels[label], kind, second)
            axis.plot(line.x, line.mean, label=label, **look)
            if not second:
                low = [max(mean - sd, 0.0) for mean, sd in zip(line.mean, line.sd, strict=True)]
                high = [min(mean + sd, 100.0) for mean, sd in zip(line.mean, line.sd, strict=True)]
                axis.fill_between(line.x, low, high, color=look["color"], alpha=0.15, linewidth=0)
    axis.set_title(panel.title, fontsize=9)
    axis.grid(color="#e4e4e4", linewidth=0.6)
    axis.set_axisbelow(True)
    if kind == "clean":
        sizes = sorted({x for line in panel.lines.values() for x in line.x})
        axis.set_xscale("log")
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45 if len(sizes) > 5 else 0)
        axis.minorticks_off()
        axis.set_xlabel("clean samples")
    else:
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_xlabel("epoch")


def _look(number: int, kind: str, second: bool) -> dict[str, Any]:
    """Seven colours, repeated with other dashes, or with other markers where dashes already have a meaning."""
    colour, turn = COLOURS[number % len(COLOURS)], number // len(COLOURS)
    if kind in ("epochs", "given"):
        return {"color": colour, "linestyle": DASHES[turn % len(DASHES)], "linewidth": 1.4}
    marker = MARKERS[turn % len(MARKERS)] if kind == "clean" or turn else None
    width = {"linewidth": 1.0 if second else 1.4, "markersize": 3.5}
    return {"color": colour, "linestyle": "--" if second else "-", "marker": marker, **width}


def _legend(figure: Any, labels: Mapping[str, int], kind: str, dashed: bool) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=label, **_look(number, kind, False)) for label, number in labels.items()]
    if kind == "labels" and dashed:
        for words, dash in {"label table": "-", "predictions": "--"}.items():
            handles.append(Line2D([], [], label=words, color="#777777", linestyle=dash))
    columns = _legend_columns([str(handle.get_label()) for handle in handles], figure.get_figwidth())
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """As many columns as fit below the panels."""
    longest = max(map(len, labels))
    return max(1, min(len(labels), int(width / (0.55 + 0.068 * longest))))


def _curves(runs: Mapping[str, Sequence[Finished]], name: str) -> dict[str, Line]:
    lines = {row: over_epochs(found, name) for row, found in runs.items()}
    return {row: line for row, line in lines.items() if line.x}


def _complement(line: Line) -> Line:
    return line._replace(mean=[100 - mean for mean in line.mean])


def _line(values: Mapping[int, Sequence[float]]) -> Line:
    known = {x: several for x, several in sorted(values.items()) if several}
    deviations = [statistics.stdev(several) if len(several) > 1 else 0.0 for several in known.values()]
    return Line(list(known), [statistics.fmean(several) for several in known.values()], deviations)


def _over_clean(grid: Grid, results: Mapping[Key, Finished]) -> list[Panel]:
    """A panel per noise, a line per method; of a single method one panel, a line per noise. The cells of a line
    differ in nothing but the size of the clean set and the seed."""
    rows = {row.name: row for row in grid.rows}
    points: dict[str, dict[tuple[int, int], Cell]] = {}  # by all other settings: cells by (size, seed)
    for cell in grid.cells():
        result, size = results.get(cell.key), cell.settings["data"].get("clean")
        if result is None or not isinstance(size, int) or "test/accuracy" not in result.last:
            continue
        other = points.setdefault(_apart_from_size(cell), {}).setdefault((size, cell.seed), cell)
        if other is not cell:
            raise ValueError(
                f"'{other.row}', '{other.column}' and '{cell.row}', '{cell.column}' are the same run: {size} clean "
                f"samples, seed {cell.seed}, and no other setting differs; exclude one with --row or --column"
            )
    found: dict[str, dict[str, dict[int, list[float]]]] = {}
    for cells in points.values():
        first = next(iter(cells.values()))
        lines = found.setdefault(_method(rows[first.row], first), {})
        label = _noise(first)
        if label in lines:  # another setting differs as well
            label = f"{label} ({first.row}, {first.column})"
        line = lines.setdefault(label, {})
        for (size, _), cell in cells.items():
            line.setdefault(size, []).append(100 * results[cell.key].last["test/accuracy"])
    if found and len({size for lines in found.values() for values in lines.values() for size in values}) < 2:
        raise ValueError(
            "all cells have clean sets of the same size; this plot is for sweeps whose rows or columns differ in "
            "data.clean"
        )
    if len(found) > 1:
        noises = dict.fromkeys(noise for lines in found.values() for noise in lines)
        found = {
            noise: {method: found[method][noise] for method in found if noise in found[method]} for noise in noises
        }
    return [
        Panel(title, {label: _line(values) for label, values in lines.items()}, {}) for title, lines in found.items()
    ]


def _apart_from_size(cell: Cell) -> str:
    without = {"data": "clean", "train": "seed"}
    tables = {
        name: {key: value for key, value in table.items() if key != without.get(name)}
        for name, table in cell.settings.items()
    }
    return json.dumps(tables, sort_keys=True)


def _method(row: Axis, cell: Cell) -> str:
    """Rows that differ in the size of the clean set are one method."""
    return str(cell.settings["method"].get("name", DEFAULT_METHOD)) if "clean" in row.changes["data"] else row.name


def _noise(cell: Cell) -> str:
    data = cell.settings["data"]
    kind, rate = data.get("noise"), data.get("rate")
    if kind is None:
        return "labels as given"
    return str(kind) if rate is None else f"{kind} {100 * rate:.0f} %"
