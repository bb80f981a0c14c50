"""The recipes of sweeps: those of the paper hold its numbers, and every row of each leads to a method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mslg.data.augmentation import Augment
from mslg.data.make_splits import make_splits
from mslg.data.readers import CLASSES, DATASETS
from mslg.data.source import make_source
from mslg.fitting.prepare import build_method, method_arguments
from mslg.methods.mslg.paper import paper_settings
from mslg.networks import NETWORKS
from mslg.noise import NOISES
from mslg.noise.apply import settings_of
from mslg.runs.recipes import recipes, sweeps
from mslg.runs.settings import Named
from mslg.sweeps.grid import Cell, Grid, load_grid
from mslg.sweeps.paper import paper, paper_numbers
from mslg.training.method import Task
from mslg.training.optimizers import OPTIMIZERS
from mslg.training.schedules import schedule

BENCHMARKS = sorted((Path(__file__).parents[2] / "benchmarks" / "recipes").glob("*.toml"))
ALL = [*sweeps(), *map(str, BENCHMARKS)]
TABLES = {
    "paper-table1-published": ("cifar10", "published"),
    "paper-table1-released": ("cifar10", "released"),
    "paper-clothing1m": ("clothing1m", "published"),
    "paper-food101n": ("food101n", "published"),
}


def task_of(cell: Cell, **told: Any) -> Task:
    classes, train = CLASSES[cell.settings["data"]["source"]], cell.settings["train"]
    return Task(
        torch.arange(2 * classes) % classes,
        classes,
        lambda: nn.Linear(2, classes),
        train["epochs"],
        train.get("batch_size", 64),
        **told,
    )


def settings_in_full(cell: Cell) -> dict[str, Any]:
    """What the method's constructor is given, presets included."""
    given = {key: value for key, value in cell.settings["method"].items() if key not in ("name", "preset")}
    method = cell.settings["method"]
    return method_arguments(Named(method["name"], method.get("preset"), given), task_of(cell))


def places(grid: Grid) -> set[tuple[str | None, str | None]]:
    return {(row.paper, column.paper) for row in grid.rows for column in grid.columns}


@pytest.mark.parametrize("name", ALL, ids=lambda name: Path(name).stem)
def test_every_row_leads_to_a_method(name: str) -> None:
    grid = load_grid(name)
    for cell in grid.cells():
        data, train, network = (cell.settings[table] for table in ("data", "train", "network"))
        assert data["source"] in DATASETS
        assert network["name"].partition(":")[0] in [*NETWORKS, "torchvision"]
        assert train.get("optimizer", "sgd") in OPTIMIZERS
        schedule(train.get("schedule", "cosine"))
        Augment.parse(train.get("augment"))
        if "noise" in data:
            assert data["noise"] in NOISES
            allowed = settings_of(data["noise"])
            assert all(key.partition(".")[0] in allowed for key in cell.settings["noise"])
        assert not any(place in str(cell.placed(root="data", output="out")) for place in ("{root}", "{output}"))
        if cell.seed != grid.seeds[0]:
            continue
        method = dict(cell.settings["method"])
        told = (
            {"noise_rate": 0.4, "transition": torch.eye(CLASSES[data["source"]])}
            if data.get("reveal_noise", True)
            else {}
        )
        labels = torch.arange(40) % CLASSES[data["source"]]
        task = task_of(cell, pairs=(labels, torch.where(torch.arange(40) < 20, labels, labels.roll(1))), **told)
        clean = make_splits(make_source(np.eye(2), [0, 1]), make_source(np.eye(2) + 5, [0, 1]))
        build_method(Named.of(method), task, clean)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_papers_rows_columns_and_runs(name: str) -> None:
    grid, (table, _) = load_grid(name), TABLES[name]
    assert grid.paper == table
    assert places(grid) == set(paper_numbers(table))
    assert len(grid.rows) * len(grid.columns) == len(paper_numbers(table))
    assert [row.paper for row in grid.rows] == [row.name for row in grid.rows] == list(paper()["tables"][table]["rows"])
    assert [column.name for column in grid.columns] == paper()["tables"][table]["columns"]
    assert len(grid.seeds) == paper()["tables"][table]["runs"]
    assert {cell.settings["method"]["name"] == cell.row for cell in grid.cells()} == {True}


@pytest.mark.parametrize("name", TABLES)
def test_the_columns_are_the_noise_that_they_say(name: str) -> None:
    kinds = {"clean": "uniform", "uniform": "uniform", "feature": "feature-dependent"}
    for column in load_grid(name).columns:
        if column.name == "test":
            assert "noise" not in column.changes["data"]
            continue
        kind, _, percent = column.name.partition("-")
        noise = kinds[kind] + ("-released" if name.endswith("released") and kind == "feature" else "")
        assert column.changes["data"] == {"noise": noise, "rate": int(percent) / 100}
        assert "fill" not in column.changes["noise"]  # the paper rounds down


@pytest.mark.parametrize("name", [*TABLES, "paper-clean-samples"])
def test_mslg_has_the_papers_settings_in_every_cell(name: str) -> None:
    table, version = TABLES.get(name, ("cifar10", "published"))
    common = paper()["hyperparameters"][table]
    told = common[version]
    cells = [cell for cell in load_grid(name).cells() if cell.settings["method"]["name"] == "mslg"]
    assert cells
    for cell in cells:
        data, train, network = (cell.settings[key] for key in ("data", "train", "network"))
        beta = told["beta"]
        if isinstance(beta, dict):
            beta = beta.get(cell.column, beta["uniform-20"])  # without noise none is published
        size = common["batch_size"]
        scaled = paper_settings(
            told["alpha"], beta, batch_size=size, classes=CLASSES[table], reduction=told["reduction"]
        )
        found = settings_in_full(cell)
        assert {key: found[key] for key in scaled} == pytest.approx(scaled, rel=1e-9), cell.key
        assert (found["start"], found["entropy_weight"], found["loss"]) == (common["start"], 1.0, "reverse-kl")
        learner: Any = build_method(
            Named("mslg", None, found), task_of(cell), make_splits(make_source(np.eye(2), [0, 1]), _two())
        )
        assert learner.first_label_epoch == common["warm_up"]
        assert (train["epochs"], train["batch_size"], train["weight_decay"]) == (
            common["epochs"],
            size,
            common["weight_decay"],
        )
        assert (train["optimizer"], train["hold_out"], train["augment"]) == ("sgd", False, told["augment"])
        rates = {int(epoch): rate for epoch, rate in told["learning_rate"].items()}
        for epoch in range(train["epochs"]):
            expected = rates[max(start for start in rates if start <= epoch)]
            assert train["learning_rate"] * schedule(train["schedule"])(epoch / train["epochs"]) == pytest.approx(
                expected
            )
        assert network["name"] == common["network"]
        assert data.get("test") == told.get("test")
        assert data["clean"] == (told["clean"] if name in TABLES else int(cell.row))
        assert data.get("clean_from") == ("test" if table == "cifar10" else None)


def _two() -> Any:
    return make_source(np.eye(2) + 5, [0, 1])


def test_the_papers_numbers_once_more() -> None:
    cells = {cell.key: cell for cell in load_grid("paper-table1-published").cells()}
    rates = {column: settings_in_full(cells["mslg", column, 0])["label_rate"] for _, column, _ in cells}
    assert rates == {
        "clean-0": 15.625,
        "uniform-20": 15.625,
        "uniform-40": 15.625,
        "uniform-60": 7.8125,
        "uniform-80": 1.5625,
        **{f"feature-{percent}": 15.625 for percent in (20, 40, 60, 80)},
    }
    assert cells["mlnt", "uniform-20", 3].settings["train"]["epochs"] == 240


def test_who_is_told_the_noise_says_so() -> None:
    for name in ALL:
        grid = load_grid(name)
        for row in grid.rows:
            cell = grid.cell(row, grid.columns[0], 0)
            method, told = cell.settings["method"], cell.settings["data"].get("reveal_noise", True)
            uses = {"co-teaching": "forget_rate" not in method, "forward": method.get("matrix", "given") == "given"}
            counted = method.get("preset") == "clothing1m"
            if uses.get(method.get("name", "mslg"), False) and told and not counted:
                assert row.knows, (name, row.name)
            else:
                assert row.knows is None, (name, row.name)


def test_the_benchmarks_columns_stand_beside_the_papers() -> None:
    grid = load_grid(str(BENCHMARKS[0].parent / "features.toml"))
    assert {column.paper for column in grid.columns} == {column for _, column in paper_numbers("cifar10")}
    assert {row.paper for row in grid.rows} - {None} == {row for row, _ in paper_numbers("cifar10")}
    released = next(row for row in grid.rows if row.name == "mslg released")
    expected = paper_settings(0.5, 4000, batch_size=256, classes=10, reduction="element")
    for column in grid.columns:
        found = settings_in_full(grid.cell(released, column, 0))
        assert {key: found[key] for key in expected} == pytest.approx(expected)


def test_sweeps_are_recipes() -> None:
    assert set(sweeps()) < set(recipes())
    assert "digits" not in sweeps()
    assert set(TABLES) < set(sweeps())
