"""Curves over seeds, computed a second time with loops; pictures that are written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mslg.sweeps.curves import COLOURS, colour_numbers, draw, over_epochs, panels
from mslg.sweeps.grid import Grid
from mslg.sweeps.ledger import Finished
from tests.support.small_sweep import RECIPE, grid_of, made

SIZES = "".join(
    f"[columns.{noise}-{size}]\ndata = {{ noise = '{noise}', rate = 0.2, clean = {size} }}\n"
    for noise in ("uniform", "pair")
    for size in (500, 50)
)


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    return grid_of(tmp_path)


def with_curves(grid: Grid) -> dict[tuple[str, str, int], Finished]:
    found = made(grid, lambda *_: 0.8)
    for key, each in found.items():
        curves: dict[str, list[float | None]] = {"test/accuracy": [0.2 + 0.1 * key[2], 0.5, None, 0.8 + 0.05 * key[2]]}
        if key[0] == "mslg":
            curves["labels/accuracy"] = [0.6, 0.6, 0.7, 0.9]
        curves["predictions/accuracy"] = [0.1, 0.2, 0.3, 0.4]
        curves["predictions/differ"] = [0.9, 0.6, 0.5, 0.1]
        found[key] = replace(each, epochs=[0, 5, 10, 15], curves=curves)
    return found


def test_a_curve_is_the_mean_over_seeds_at_epochs_that_all_have(grid: Grid) -> None:
    runs = [each for key, each in with_curves(grid).items() if key[:2] == ("mslg", "pair-20")]
    line = over_epochs(runs, "test/accuracy")
    assert line.x == [1, 6, 16]
    for position, values in enumerate([(20, 30), (50, 50), (80, 85)]):
        mean = sum(values) / 2
        assert line.mean[position] == pytest.approx(mean)
        assert line.sd[position] == pytest.approx(sum((value - mean) ** 2 for value in values) ** 0.5)
    assert over_epochs(runs[:1], "test/accuracy").sd == [0, 0, 0]
    assert over_epochs(runs, "labels/none").x == []


def test_a_panel_for_each_column(grid: Grid) -> None:
    results = with_curves(grid)
    over = panels(grid, results)
    assert [panel.title for panel in over] == ["uniform-40", "pair-20"]
    assert list(over[0].lines) == ["cross entropy", "mslg"]
    labels = panels(grid, results, "labels")
    assert list(labels[0].lines) == ["mslg"], "only methods with a table have its labels"
    assert list(labels[0].dashed) == ["cross entropy", "mslg"]
    given = panels(grid, results, "given")[0].lines["mslg"]
    assert given.mean == pytest.approx([10, 40, 50, 90]), "what differs from the given labels is not memorised"
    assert panels(grid, {}) == []
    with pytest.raises(ValueError, match=r"unknown kind of plot 'epoch'. Did you mean 'epochs'"):
        panels(grid, results, "epoch")
    with pytest.raises(ValueError, match="all cells have clean sets of the same size"):
        panels(grid, results, "clean")


def test_accuracy_over_the_size_of_the_clean_set(tmp_path: Path) -> None:
    head, _, rows = RECIPE.partition("[columns.uniform-40.data]")
    grid = grid_of(tmp_path, head + SIZES + rows[rows.index("[rows.") :])
    found = panels(
        grid, made(grid, lambda row, column, seed: (500 if "500" in column else 250) / 1000 + seed / 100), "clean"
    )
    assert [panel.title for panel in found] == ["uniform 20 %", "pair 20 %"]
    assert list(found[0].lines) == ["cross entropy", "mslg"]
    line = found[1].lines["cross entropy"]
    assert line.x == [50, 500]
    assert line.mean == pytest.approx([25.5, 50.5])


def test_rows_may_be_sizes_too(tmp_path: Path) -> None:
    text = RECIPE[: RECIPE.index("[rows.")].replace('reference = "cross entropy"', "")
    text += "".join(f"[rows.'{size} clean']\ndata = {{ clean = {size} }}\n" for size in (50, 100, 200))
    grid = grid_of(tmp_path, text)
    found = panels(grid, made(grid, lambda *_: 0.5), "clean")
    assert [panel.title for panel in found] == ["cross-fitted"]
    assert found[0].lines["uniform 40 %"].x == [50, 100, 200]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_pictures_are_written_and_the_same_each_time(grid: Grid, tmp_path: Path, suffix: str) -> None:
    results = with_curves(grid)
    kinds = ("epochs", "labels", "given") if suffix == ".png" else ("epochs",)
    for kind in kinds:
        contents = []
        for name in ("one", "two"):
            path = tmp_path / "new" / f"{name}{suffix}"
            draw(panels(grid, results, kind), path, title=grid.title, colours=colour_numbers(grid), kind=kind)
            contents.append(path.read_bytes())
        assert contents[0] == contents[1]
        assert len(contents[0]) > 5000
    with pytest.raises(ValueError, match=r"must end in .png, .svg, .pdf"):
        draw(panels(grid, results), tmp_path / "picture.gif", title="", colours={})


def test_rows_that_differ_in_more_than_the_size_are_lines_of_their_own(tmp_path: Path) -> None:
    text = RECIPE[: RECIPE.index("[rows.")].replace('reference = "cross entropy"', "")
    text += "".join(
        f"[rows.'{size} at {rate}']\ndata = {{ clean = {size} }}\nmethod = {{ label_rate = {rate} }}\n"
        for rate in (1.0, 2.0)
        for size in (50, 100)
    )
    grid = grid_of(tmp_path, text)
    [panel] = panels(grid, made(grid, lambda row, *_: 0.5 if "1.0" in row else 0.6), "clean")
    assert {label: line.mean for label, line in panel.lines.items() if "uniform" in label} == {
        "uniform 40 %": pytest.approx([50, 50]),
        "uniform 40 % (50 at 2.0, uniform-40)": pytest.approx([60, 60]),
    }
    twice = grid_of(tmp_path, text.replace("label_rate = 2.0", "label_rate = 1.0"))
    with pytest.raises(ValueError, match=r"'50 at 1.0', 'uniform-40' and '50 at 2.0', 'uniform-40' are the same run"):
        panels(twice, made(twice, lambda *_: 0.5), "clean")


def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bool]]:
    """What is drawn from here on: label, colour, dashed."""
    from matplotlib.axes import Axes

    found: list[tuple[str, str, bool]] = []
    plot = Axes.plot

    def noted(axis: Axes, *args: Any, **options: Any) -> Any:
        found.append((options["label"], options["color"], options["linestyle"] == "--"))
        return plot(axis, *args, **options)

    monkeypatch.setattr(Axes, "plot", noted)
    return found


def test_a_row_keeps_its_colour_in_every_panel_and_kind(
    grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = {key: each for key, each in with_curves(grid).items() if key[:2] != ("cross entropy", "uniform-40")}
    found = drawn(monkeypatch)
    for kind in ("epochs", "labels"):  # labels: only mslg has a table, and would come first
        draw(panels(grid, results, kind), tmp_path / "all.png", title="", colours=colour_numbers(grid), kind=kind)
    alone = replace(grid, rows=grid.rows[1:])
    draw(panels(alone, results), tmp_path / "alone.png", title="", colours=colour_numbers(grid))
    assert {(label, colour) for label, colour, _ in found} == {("cross entropy", COLOURS[0]), ("mslg", COLOURS[1])}
    assert len(found) == 3 + 5 + 2


def test_so_it_does_over_the_size_of_the_clean_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, _, rows = RECIPE.partition("[columns.uniform-40.data]")
    grid = grid_of(tmp_path, head + SIZES + rows[rows.index("[rows.") :])
    found = drawn(monkeypatch)
    made_of = {key: each for key, each in made(grid, lambda *_: 0.5).items() if key[0] == "mslg" or "pair" in key[1]}
    draw(panels(grid, made_of, "clean"), tmp_path / "clean.png", title="", colours=colour_numbers(grid), kind="clean")
    assert {label: colour for label, colour, _ in found} == {"cross entropy": COLOURS[0], "mslg": COLOURS[1]}
    sizes = RECIPE[: RECIPE.index("[rows.")].replace('reference = "cross entropy"', "")
    sizes += "".join(f"[rows.'{size} clean']\ndata = {{ clean = {size} }}\n" for size in (50, 100))
    assert colour_numbers(grid_of(tmp_path, sizes)) == {"50 clean": 0, "100 clean": 1, "cross-fitted": 0}


def test_bands_end_where_the_scale_does(grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.axes import Axes

    bands: list[tuple[list[float], list[float]]] = []
    monkeypatch.setattr(Axes, "fill_between", lambda axis, x, low, high, **options: bands.append((low, high)))
    curves: list[dict[str, list[float | None]]] = [{"test/accuracy": [0.0, 1.0]}, {"test/accuracy": [0.1, 0.9]}]
    results = {
        key: replace(each, epochs=[0, 1], curves=curves[key[2]]) for key, each in made(grid, lambda *_: 0.8).items()
    }
    draw(panels(grid, results), tmp_path / "bands.png", title="", colours=colour_numbers(grid))
    assert len(bands) == 4
    for low, high in bands:
        assert low[0] == 0
        assert high[1] == 100
