"""From a recipe to cells."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mslg.methods import METHODS
from mslg.sweeps.grid import load_grid
from mslg.sweeps.resolve_cell import resolved
from tests.support.small_sweep import RECIPE, grid_of

BY_NOISE = RECIPE.replace('[rows.mslg.method]\nname = "mslg"', "") + (
    "[method]\n"
    "label_rate = 2.0\n"
    "[by_noise.uniform-40]\n"
    "label_rate = 3.0\n"
    "start = 4.0\n"
    "[rows.plain]\n"
    "[rows.own]\n"
    "method = { label_rate = 7.0 }\n"
    "[rows.both]\n"
    "method = { label_rate = 7.0 }\n"
    "by_noise = { uniform-40 = { label_rate = 8.0 } }\n"
)


def test_cells_come_seed_by_seed_and_know_their_settings(tmp_path: Path) -> None:
    grid = grid_of(tmp_path)
    cells = grid.cells()
    assert [cell.key for cell in cells[:4]] == [
        ("cross entropy", "uniform-40", 0),
        ("mslg", "uniform-40", 0),
        ("cross entropy", "pair-20", 0),
        ("mslg", "pair-20", 0),
    ]
    assert len(cells) == 8
    assert grid.title == "Two methods on two noises."
    assert grid_of(tmp_path, RECIPE.partition("\n")[2]).title == "given", "untitled: the name of its file"
    last = cells[-1].settings
    assert last["data"] == {"source": "digits", "clean": 100, "noise": "pair", "rate": 0.2}
    assert last["train"]["seed"] == 1
    assert cells[0].name == "cross-entropy--uniform-40--0"


def test_settings_by_noise(tmp_path: Path) -> None:
    grid = grid_of(tmp_path, BY_NOISE)
    settings = {(cell.row, cell.column): cell.settings["method"] for cell in grid.cells()}
    assert settings["plain", "uniform-40"] == {"label_rate": 3.0, "start": 4.0}
    assert settings["plain", "pair-20"] == {"label_rate": 2.0}
    assert settings["own", "uniform-40"] == {"label_rate": 7.0, "start": 4.0}, "a row's own value wins"
    assert settings["both", "uniform-40"]["label_rate"] == 8.0
    assert settings["both", "pair-20"]["label_rate"] == 7.0
    assert settings["cross entropy", "uniform-40"] == {"name": "cross-entropy"}, "another method's settings are not its"


def test_a_digest_names_the_settings_and_not_the_places(tmp_path: Path) -> None:
    text = RECIPE.replace('source = "digits"', 'source = "digits"\nroot = "{root}/files"')
    cells = grid_of(tmp_path, text).cells()
    assert len({cell.digest for cell in cells}) == 8
    assert [cell.digest for cell in grid_of(tmp_path, text).cells()] == [cell.digest for cell in cells]
    changed = grid_of(tmp_path, text.replace("rate = 0.2", "rate = 0.3")).cells()
    for before, after in zip(cells, changed, strict=True):
        assert (before.digest == after.digest) == (before.column == "uniform-40")
    assert cells[0].placed(root="/here")["data"]["root"] == "/here/files"
    with pytest.raises(ValueError, match=r"the recipe has the path \{root\}/files; pass the folder"):
        cells[0].placed(root=None)


WRONG = {
    "no sweep": ('[data]\nsource = "digits"\n', "is not the recipe of a sweep: it needs the tables"),
    "key of sweep": (RECIPE.replace("seeds =", "seed ="), r"unknown key in \[sweep\] 'seed'. Did you mean 'seeds'"),
    "key of a row": (RECIPE + "[rows.x]\nknow = 'all'\n", r"unknown key in \[rows.x\] 'know'. Did you mean 'knows'"),
    "key of a column": (RECIPE + "[columns.x]\nknows = 'all'\n", r"unknown key in \[columns.x\] 'knows'"),
    "key of data": (RECIPE + "[rows.x.data]\nclaen = 3\n", r"unknown key in \[data\] 'claen'. Did you mean 'clean'"),
    "seeds": (RECIPE.replace("[0, 1]", "[0, 0]"), r"seeds = \[0, 0\]; expected distinct integers"),
    "one seed": (RECIPE.replace("[0, 1]", "4"), "seeds = 4; expected distinct integers"),
    "reference": (RECIPE.replace('"cross entropy"', '"cross"', 1), "unknown reference row 'cross'. Did you mean"),
    "noise": (RECIPE + "[by_noise.unifrom-40]\nstart = 1.0\n", "write a noise and its percentage, such as uniform-60"),
    "table": (RECIPE + "[methods]\nname = 'x'\n", "unknown table in a recipe 'methods'. Did you mean 'method'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_recipe_is_named(name: str, tmp_path: Path) -> None:
    text, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        grid_of(tmp_path, text)


def test_the_example_in_the_docs_is_complete(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text()
    [text] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    cells = grid_of(tmp_path, text).cells()
    assert len(cells) == 24
    for cell in cells:
        assert resolved(cell, {})["method"]["name"] in METHODS


def test_a_recipe_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no recipe nowhere.toml"):
        load_grid("nowhere.toml")
    with pytest.raises(ValueError, match="for a single run use `mslg fit --recipe`"):
        load_grid("digits")
