"""The paper's numbers, and a control that chooses on clean samples."""

from __future__ import annotations

import pytest

from mslg.registry import UnknownName
from mslg.sweeps.chosen_row import chosen
from mslg.sweeps.ledger import Finished
from mslg.sweeps.paper import paper, paper_numbers


def test_the_numbers_of_the_first_table() -> None:
    numbers = paper_numbers("cifar10")
    assert len(numbers) == 11 * 9
    assert numbers["mslg", "clean-0"] == (87.55, None)
    assert numbers["mslg", "feature-80"] == (74.87, 0.11)
    assert numbers["co-teaching", "uniform-20"] == (85.96, 0.09)
    assert numbers["pencil", "feature-80"] == (10.71, 0.1)
    failed = [place for place, (mean, _) in numbers.items() if mean is None]
    assert failed == [("symmetric-ce", "feature-60"), ("symmetric-ce", "feature-80")]
    assert all(sd is None for (_, column), (_, sd) in numbers.items() if column == "clean-0")


@pytest.mark.parametrize(
    ("table", "rows", "best", "plain"), [("clothing1m", 11, 76.02, 69.93), ("food101n", 8, 79.06, 77.51)]
)
def test_the_numbers_of_the_tables_with_one_column(table: str, rows: int, best: float, plain: float) -> None:
    numbers = paper_numbers(table)
    assert len(numbers) == rows
    assert numbers["mslg", "test"] == (best, None)
    assert numbers["cross-entropy", "test"] == (plain, None)
    assert max(mean for mean, _ in numbers.values() if mean is not None) == best


def test_every_row_is_as_long_as_the_table_is_wide() -> None:
    for table in paper()["tables"].values():
        for values in table["rows"].values():
            assert len(values["mean"]) == len(values["sd"]) == len(table["columns"])


def test_a_table_that_is_not_there() -> None:
    with pytest.raises(
        UnknownName, match=r"unknown table of the paper 'cifar'\. Did you mean 'cifar10'\? Allowed: cifar10"
    ):
        paper_numbers("cifar")


def cell(row: str, seed: int, select: float | None, test: float, state: str = "done") -> Finished:
    last = {} if state == "failed" else {"test/accuracy": test}
    return Finished(row, "uniform", seed, "0", state, last if select is None else {**last, "select/accuracy": select})


def test_the_row_chosen_is_the_best_on_clean_samples_not_on_the_test() -> None:
    cells = [
        cell("short", 0, 0.7, 0.5),
        cell("long", 0, 0.6, 0.9),
        cell("short", 1, 0.6, 0.5),
        cell("long", 1, 0.6, 0.9),
        cell("short", 2, None, 0.0, "failed"),
        cell("long", 2, 0.1, 0.2),
    ]
    found = chosen(cells, "chosen")
    assert [(each.row, each.seed, each.last["test/accuracy"]) for each in found] == [
        ("chosen", 0, 0.5),
        ("chosen", 1, 0.5),  # of equals the first
        ("chosen", 2, 0.2),
    ]
    with pytest.raises(
        ValueError, match="short, uniform, seed 3 has no select/accuracy to select by; selecting needs 200"
    ):
        chosen([cell("short", 3, None, 0.5)], "chosen")
    assert chosen([cell("short", 4, None, 0.0, "failed")], "chosen")[0].state == "failed"
