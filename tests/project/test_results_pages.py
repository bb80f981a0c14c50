"""The pages of results say what the cells say: verdicts, gaps, and the same bytes each time."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mslg.sweeps.grid import Grid, load_grid
from mslg.sweeps.ledger import FORMAT, Finished, _line
from mslg.sweeps.table import Difference, difference

ROOT = Path(__file__).parents[2]
SWEEPS = (
    "features",
    "features-chosen",
    "tuning",
    "study",
    "clean-samples",
    "ablations",
    "memorising",
    "memorising-tuning",
    "ladder",
    "ladder-published",
    "ladder-pixels",
)
Accuracy = Callable[[str, str, int], float]


@pytest.fixture(scope="module")
def made_by() -> ModuleType:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import memorising  # noqa: F401 - used by `put`, which finds it only now
        import results_pages
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return results_pages


def put(results: Path, name: str, value: Accuracy, keep: Callable[[str, str, int], bool] | None = None) -> Grid:
    """A sweep by its recipe, with made-up cells."""
    folder = results / name
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "benchmarks" / "recipes" / f"{name}.toml", folder / "recipe.toml")
    if name == "memorising":  # which has the rows whose learning rate has been chosen
        import memorising

        rates = {row.name: 0.05 for row in memorising.ROWS if row.tuned}
        (folder / "recipe.toml").write_text(memorising.recipe(rates))
    grid = load_grid(str(folder / "recipe.toml"))
    lines = [f'{{"format_version": {FORMAT}}}\n']
    for cell in grid.cells():
        if keep is not None and not keep(*cell.key):
            continue
        accuracy = value(*cell.key)
        last = {"test/accuracy": accuracy, "select/accuracy": accuracy, "labels/accuracy": accuracy}
        last |= {"given/accuracy": 0.6, "suggested/accuracy": 0.7 + 0.001 * cell.seed}
        curves: dict[str, list[float | None]] = {name: [0.6, accuracy] for name in ("test/accuracy", "labels/accuracy")}
        curves["predictions/differ"] = [0.7, 0.1]
        about = {"seconds": 1.0, "commit": "0123456789", "versions": {"mslg": "9.9"}}
        lines.append(_line(Finished(*cell.key, cell.digest, "done", last, {}, [0, 1], curves, **about)))  # type: ignore[arg-type]
    (folder / "cells.jsonl").write_text("".join(lines))
    return grid


def wobble(row: str, seed: int) -> float:
    """Small, different for each seed and row, the same each time."""
    return 0.001 * ((7 * seed + len(row)) % 5)


def features(row: str, column: str, seed: int) -> float:
    """mslg: far above in most columns, level with gold-correction at 40 % uniform, far below it at 60 %."""
    base = {"mslg": 0.8, "gold-correction": 0.7, "co-teaching": 0.95}.get(row, 0.6)
    if column == "uniform-40" and row == "gold-correction":
        return 0.8 + (0.01 if seed % 2 else -0.01)
    if column == "uniform-60" and row == "gold-correction":
        base = 0.85
    return base + wobble(row, seed)


def clean(row: str, column: str, seed: int) -> float:
    """At 20 % and 40 % enough with 250; at 60 % every sample counts."""
    missing = 0.0 if column != "feature-dependent-60" else {"5000": 0.0, "2000": 0.005}.get(row, 0.05)
    return 0.75 - missing - (0.1 if row in ("50", "100") else 0.0) + 0.01 * seed


def ablations(row: str, column: str, seed: int) -> float:
    drop = {"L_c,1": 0.1, "no entropy loss": -0.1}.get(row, 0.0)
    return 0.7 - drop + (0.0001 * seed if drop else 0.05 * (seed - 0.5) * len(row))


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory, made_by: ModuleType) -> Path:
    """Docs made from complete made-up sweeps; the sweeps are beside."""
    folder = tmp_path_factory.mktemp("complete")
    values: dict[str, Accuracy] = {"features": features, "clean-samples": clean, "ablations": ablations}
    values |= {
        "memorising": memorised,
        "memorising-tuning": lambda row, column, seed: 0.5 - 0.1 * row.endswith(": 0.01"),
    }
    for name in SWEEPS:
        put(folder / "results", name, values.get(name, lambda row, column, seed: 0.5 + wobble(row, seed)))
    (folder / "results" / "exploration.md").write_text("Much was tried.\n")
    made_by.write(folder / "results", docs=folder / "docs")
    return folder


def line(page: str, start: str) -> str:
    return next(each for each in page.splitlines() if each.startswith(start))


def unwrapped(path: Path) -> str:
    """A page with each paragraph on one line."""
    return re.sub(r"(?<=[^\n|])\n(?=[^\n|#-])", " ", path.read_text())


def section(page: str, title: str) -> str:
    return re.split(r"\n#+ ", page.split(f" {title}\n", 1)[1])[0]


def test_differences_in_words(made_by: ModuleType) -> None:
    from pages import words  # the fixture has imported it

    assert words.verdict(Difference(4, 1.2, 0.4, 2.0)) == "above by 1.2"
    assert words.verdict(Difference(4, -0.3, -0.5, -0.1)) == "below by 0.3"
    assert words.verdict(Difference(4, -0.01, -0.02, -0.005)) == "below by less than 0.1"
    assert words.verdict(Difference(4, 1.2, -0.4, 2.8)) == "no significant difference"
    assert words.verdict(Difference(1, 1.2)) == "one seed, no interval"
    assert words.verdict(None) == "–"
    assert words.with_interval(Difference(4, -1.25, -2.0, -0.5)) == "**−1.2** [−2.0, −0.5]"
    assert words.signed(-0.04) == "0.0"
    found = {
        "a": Difference(4, 1.0, 0.5, 1.5),
        "b": Difference(4, -1.0, -1.5, -0.5),
        "c": Difference(4, 0.1, -1.0, 1.2),
    }
    told = "significantly above in 1, no significant difference in 1 (c +0.1), significantly below in 1 (b by 1.0)"
    assert words.tally(found, 3) == f"of 3 columns, {told}"
    assert words.tally(found, 9) == f"of the 3 of 9 columns that can be judged, {told}"
    assert words.tally({}, 9) == "none of the 9 columns can be judged yet"


def test_difference_over_shared_seeds() -> None:
    found = difference({0: 2.0, 1: 4.0, 2: 9.0}, {0: 1.0, 1: 1.0, 3: 5.0})
    assert found is not None
    assert (found.seeds, found.mean) == (2, 2.0)
    assert difference({0: 1.0}, {1: 1.0}) is None


def test_the_default_against_the_best(complete: Path) -> None:
    page = unwrapped(complete / "docs" / "features.md")
    best = section(page, "Is MSLG ever significantly below the best?")
    assert re.search(r"gold-correction \| 70\.\d ± .* \| above by (9|10)\.\d \|", line(best, "| uniform-20 "))
    assert "no significant difference" in line(best, "| uniform-40 ")
    assert re.search(r"gold-correction \| .*\| below by (4|5)\.\d \|", line(best, "| uniform-60 "))
    told = "Of 13 columns, significantly above in 11, no significant difference in 1 (uniform-40"
    assert told in best
    assert re.search(r"significantly below in 1 \(uniform-60 by [45]\.\d\)", best)
    assert "[the exploration](tuning.md#exploration)" in best
    controls = section(page, "Against each control")
    assert "- cross-entropy: of 12 columns, significantly above in 12, no significant difference in 0" in controls
    assert re.search(r"- gold-correction: .* below in 1 \(uniform-60", controls)
    assert "- cross-entropy, chosen: " in controls
    suggested = section(page, "Are the suggested labels better than the given ones?")
    assert "In the columns with noise: of 12 columns, significantly above in 12" in suggested
    assert "co-teaching](../methods/co-teaching.md) † | 95." in page, "who is told more is marked, and not bold"
    assert "<small>(83.48 ± 0.11)</small>" in line(page, "| [mslg](../methods/mslg.md)"), "the paper's number"
    assert "mslg 9.9" in page
    assert "`0123456789`" in page


def test_claims_about_clean_samples(complete: Path) -> None:
    page = unwrapped(complete / "docs" / "clean-samples.md")
    enough = section(page, "Claim 1: 1,000 are nearly enough")
    assert "yes: less than 1 point is missing" in line(enough, "| feature-dependent-20 ")
    assert "no: 5.0 points are missing" in line(enough, "| feature-dependent-60 ")
    assert "The claim holds in 2 of the 3 columns" in enough
    need = section(page, "Claim 2: the need does not depend on the noise ratio")
    assert line(need, "| feature-dependent-20 ").startswith("| feature-dependent-20 | 250 | 0.0 ")
    assert line(need, "| feature-dependent-60 ").startswith("| feature-dependent-60 | 2,000 | **+5.0** ")
    assert "The number needed lies between 250 and 2,000, and the gain differs significantly" in need
    assert "The claim does not hold here." in need
    assert (complete / "docs" / "clean-samples.svg").exists()


def test_claims_as_ablations(complete: Path) -> None:
    page = unwrapped(complete / "docs" / "ablations.md")
    names = "uniform-40, feature-dependent-40 and feature-dependent-released-60"
    assert f"`L_c,1`: of 3 columns, the claim is not decided in {names}." in page
    assert f"`no entropy loss`: of 3 columns, the claim is not decided in {names}." in page


def test_a_claim_is_judged_by_its_row(made_by: ModuleType) -> None:
    from pages.ablations import judged

    worse, better, same = Difference(4, -1.0, -1.5, -0.5), Difference(4, 1.0, 0.5, 1.5), Difference(4, 0.0, -1.0, 1.0)
    assert judged({"a": worse, "b": better, "c": same}, 3) == (
        "of 3 columns, the claim holds in a; it is contradicted in b; it is not decided in c"
    )
    assert judged({"a": worse}, 3) == "of the 1 of 3 columns that can be judged, the claim holds in a"
    assert judged({}, 3) == "nothing to judge yet"


def stated(*values: tuple[float, float, float, float]) -> list[dict[str, dict[str, float]]]:
    """Statements, each the same at every depth: estimate, low, high and truth."""
    rows = [dict(zip(("estimate", "low", "high", "truth"), each, strict=True)) for each in values]
    return [dict.fromkeys(("all", "200", "1000", "5000", "10000"), row) for row in rows]


def put_issues(results: Path, bases: tuple[str, ...]) -> Path:
    """Made-up cells of the two measurements of the issue list."""
    measures = ("average_precision", "precision_at_errors", "suggested_accuracy")
    found = [
        {"set": name, "seed": seed, "lists": {each: dict.fromkeys(measures, of[each] + 0.01 * seed) for each in of}}
        for name, of in {
            "features uniform 0.2": {"mslg": 0.9, "cleanlab": 0.8, "loss": 0.7},
            "features pair 0.4": {"mslg": 0.5, "cleanlab": 0.4, "loss": 0.6},
        }.items()
        for seed in (0, 2)
    ]
    inside, outside = (0.2, 0.1, 0.3, 0.25), (0.2, 0.1, 0.3, 0.45)
    rates = [
        {"set": "features uniform 0.2", "seed": 20, "basis": basis, "statements": stated(inside, outside)}
        for basis in bases
    ]
    rates += [{**rates[0], "set": "features pair 0.4", "statements": stated(inside, inside)}]
    results.mkdir(parents=True)
    for name, cells in {"issue_detection": found, "error_rate": rates}.items():
        (results / f"{name}.json").write_text(json.dumps({"versions": {}, "cells": cells}))
    return results


def test_the_issue_list_and_its_error_rate(tmp_path: Path, made_by: ModuleType) -> None:
    from pages import issues

    (tmp_path / "page.md").write_text(issues.page(put_issues(tmp_path / "results", ("pairs", "injected"))))
    page = unwrapped(tmp_path / "page.md")
    lists = section(page, "Which list finds wrong labels best?")
    assert line(lists, "| features uniform 0.2 ") == "| features uniform 0.2 | mslg | **91.0** | **91.0** | **91.0** |"
    assert lists.count("|  | loss of a plain network | **61.0** |") == 1
    assert "Means over the seeds 0, 2" in lists
    assert "Ours is first but for average precision on *features pair 0.4* (51.0, loss 61.0);" in lists
    pairs = section(page, "With clean samples that carry both labels")
    assert line(pairs, "| features uniform 0.2 ").startswith("| features uniform 0.2 | 1 of 2, 0.150 | 1 of 2, 0.150 ")
    assert line(pairs, "| **together** ").startswith("| **together** | 3 of 4, 0.100 ")
    injected = section(page, "With a clean set from elsewhere: noise of the estimated kind put in")
    assert "features pair 0.4" not in injected
    assert line(injected, "| **together** ").startswith("| **together** | 1 of 2, 0.150 ")
    assert "Only the statement does without pairs here: the network was trained as for the first table" in injected
    assert page.count("Not run yet.") == 1, "the round of review"


def test_without_statements_from_elsewhere_nothing_is_said_of_them(tmp_path: Path, made_by: ModuleType) -> None:
    from pages import issues

    page = issues.page(put_issues(tmp_path / "results", ("pairs",)))
    assert "With a clean set from elsewhere" not in page
    assert "Without pairs" not in page


def test_the_chosen_settings(complete: Path) -> None:
    page = (complete / "docs" / "tuning.md").read_text()
    assert "Much was tried." in page
    assert "<!-- exploration -->" not in page
    grid = load_grid(str(ROOT / "benchmarks" / "recipes" / "tuning.toml"))
    methods = {str(grid.cell(row, grid.columns[0], 100).settings["method"]["name"]) for row in grid.rows}
    chosen = re.findall(r"^\| .*\| \*\*\d[\d.]+\*\* \| [^|]*\|$", section(page, "What was tried"), re.MULTILINE)
    assert len(chosen) == len(methods)


def test_the_price_of_cheaper_steps(complete: Path) -> None:
    page = unwrapped(complete / "docs" / "ladder.md")
    told = "within 0.5 points of the exact step, or above it, in all 6 columns;"
    assert f"The preset `fast` is, by its mean over seeds, {told}" in page
    assert re.search(r"^\| fast \| ([+−]?\d\.\d \[[^|]*\] \| ?){4}$", page, re.MULTILINE), "differences, with intervals"
    assert "| as fast |" in section(page, "Where the labels decide: the published form")


def test_a_preset_that_loses_more_than_it_may_is_told(tmp_path: Path, made_by: ModuleType) -> None:
    put(
        tmp_path / "results",
        "ladder",
        lambda row, column, seed: 0.7 - 0.02 * (row == "fast" and column == "uniform-60"),
    )
    made_by.write(tmp_path / "results", docs=tmp_path / "docs")
    told = "more than 0.5 points below the exact step in ladder, uniform-60 (−2.0)."
    assert told in unwrapped(tmp_path / "docs" / "ladder.md")


def test_the_tables_of_a_steps_cost_are_those_measured(made_by: ModuleType) -> None:
    for page in made_by.WITH_COSTS:
        text = page.read_text()
        assert "<!-- step cost: " in text
        same = made_by.step_cost.filled(text, made_by.RESULTS) == text
        assert same, f"run python benchmarks/results_pages.py: {page.name} has other numbers than step_cost.json"


def test_a_table_of_costs_leaves_open_what_was_not_measured(made_by: ModuleType) -> None:
    measured = {"mlp": {"batch": 8, "time": {"plain": 1.0, "exact": 3.456}, "memory": {"plain": 1.0, "exact": None}}}
    rows = made_by.step_cost.cost_table(measured, ["cnn8", "mlp"]).splitlines()
    assert rows[0] == "| a step, in plain ones | time: MLP on features, batch 8 | peak memory |"
    assert "| **exact** (default) | 3.46 | – |" in rows
    assert any(row.endswith("| – | – |") for row in rows)


def test_what_is_not_finished_is_left_out(tmp_path: Path, made_by: ModuleType) -> None:
    def some(row: str, column: str, seed: int) -> bool:
        return seed < 2 and row != "elr" and (column in ("clean", "uniform-20") or row == "mslg")

    whole = put(tmp_path / "results", "features", features, some)
    assert [column.name for column in whole.columns[:2]] == ["clean", "uniform-20"]
    made_by.write(tmp_path / "results", docs=tmp_path / "docs")
    page = unwrapped(tmp_path / "docs" / "features.md")
    assert "mean ± standard deviation over 2 seeds" in page
    assert "uniform-20" in page
    assert "| [elr]" not in page
    assert "uniform-40" not in section(page, "The table")
    for name in ("tuning", "ablations", "clean-samples"):
        assert "Not run yet: `mslg sweep" in (tmp_path / "docs" / f"{name}.md").read_text()
    for made in (tmp_path / "docs").glob("*.md"):
        assert not re.search(r"\d of \d+ cells", made.read_text()), "no counts of unfinished work"
    index = (tmp_path / "docs" / "index.md").read_text()
    assert "[Ablations](ablations.md)" in index
    assert "(digits.md)" in index
    assert "scorecard.svg" not in index, "nothing to draw"


def memorised(row: str, column: str, seed: int) -> float:
    base = {"mslg released": 0.5, "mslg": 0.45, "mslg published": 0.2, "pencil": 0.4, "co-teaching": 0.9}
    return base.get(row, 0.3) + wobble(row, seed)


def test_networks_that_memorise(complete: Path, tmp_path: Path, made_by: ModuleType) -> None:
    page = unwrapped(complete / "docs" / "memorising.md")
    claim = section(page, "MSLG beats the others under structured noise")
    told = r"- `mslg released`: above the best of them in 4 of 4 columns \(feature-40 \+(9|10)\.\d to pencil"
    assert re.search(told, claim)
    assert "- `mslg published`: above the best of them in 0 of 4 columns" in claim
    assert "co-teaching" not in claim, "who is told the rate does not count"
    regime = section(page, "Do networks memorise here?")
    assert line(regime, "| uniform-40 ").split("|")[3:6] == [" 60.0 ", " 30.2 ", " −29.8 "]
    assert "the last epoch is at least 8 points below" in regime
    assert "cross-entropy, stopped early" in section(page, "The table")
    assert line(section(page, "How the learning rates were chosen"), "| cross-entropy ").count("**") == 2
    part = tmp_path / "results"
    put(part, "memorising", memorised, lambda row, column, seed: seed == 0 and column == "uniform-40" and row != "elr")
    made_by.write(part, docs=tmp_path / "docs")
    page = unwrapped(tmp_path / "docs" / "memorising.md")
    assert "feature-40" not in section(page, "The table")
    assert "| [elr]" not in page
    assert "structured noise" not in page, "a claim that nothing can be said about is left out"


def test_leading_rows_with_more_seeds_and_later_methods_in_fewer_columns(tmp_path: Path, made_by: ModuleType) -> None:
    from pages.memorising_tables import tables
    from pages.sweep import read

    first = ("uniform-40", "feature-40", "released-80", "feature-80")
    leading = ("default", "default, label learning", "pencil", "mslg released")
    later = ("dmlp", "l2rw")
    costly = ("mlc", "emlc", "metalabelnet", "truncated-gce", "noisy-plus-clean")

    def there(row: str, column: str, seed: int) -> bool:
        if column == "uniform-60" or row in costly:
            return False
        if seed > 1:
            return row in leading and column in first
        return row not in later or column in first

    def value(row: str, column: str, seed: int) -> float:
        return 0.6 if row == "l2rw" and column == "feature-40" else memorised(row, column, seed)

    results = tmp_path / "results"
    put(results, "memorising", value, there)
    made_by.write(results, docs=tmp_path / "docs")
    page = unwrapped(tmp_path / "docs" / "memorising.md")
    assert "uniform-80" in line(section(page, "The table"), "|  | uniform-40")
    assert "| **50.1 ± 0.2** <small>" in line(section(page, "The table"), "| [mslg released]")
    more = section(page, "The rows that decide, with more seeds")
    assert "over 4 seeds" in more
    assert "uniform-80" not in more
    assert "| [elr]" not in more
    few = section(page, "Later methods")
    assert "over 2 seeds" in few
    assert line(few, "| [l2rw]").count("|") == 6
    against = section(page, "Against the best rival")
    assert line(against, "| uniform-40 ").split("|")[2:4] == [" pencil ", " 4, 2 "], "mslg has two seeds"
    assert "| l2rw | 2 |" in line(against, "| feature-40 ")
    assert "| pencil |" in line(against, "| clean ")
    found = tables(read("memorising", results, results))
    assert found.columns == [*first, "released-40", "uniform-80", "clean"]
    assert found.minus("default", "pencil")["uniform-40"].seeds == 4
    assert found.minus("default", "pencil")["clean"].seeds == 2
    # A second seed that one of the methods lacks would leave the best rival out of a comparison.
    (tmp_path / "other").mkdir()
    put(tmp_path / "other", "memorising", memorised, lambda *key: there(*key) and (key[0] != "pencil" or key[2] == 0))
    assert tables(read("memorising", tmp_path / "other", results)).once


def test_the_default_where_networks_memorise(tmp_path: Path, made_by: ModuleType) -> None:
    from pages import scorecard
    from pages.memorising_tables import tables
    from pages.sweep import read

    def value(row: str, column: str, seed: int) -> float:
        above = {"default": 0.6, "default, label learning": 0.62}
        return above.get(row, 0.55 if row == "pencil" and column != "clean" else 0.3)

    put(tmp_path, "memorising", value, lambda row, column, seed: column != "uniform-60" and seed == 0)
    (told,) = scorecard.memorised(tables(read("memorising", tmp_path, tmp_path)))
    told = told.replace("\n", " ")
    assert "the default is above in 7 of 7 columns, by up to 30.0 points; one seed. With label learning" in told


def test_the_scorecard(tmp_path: Path, made_by: ModuleType) -> None:
    from pages import scorecard
    from pages.memorising_tables import tables
    from pages.scorecard_picture import across
    from pages.sweep import read

    folder = tmp_path / "robustness"
    folder.mkdir()
    rows = {"default": 0.9, "clean only": 0.85, "gold correction": 0.8, "dividemix": 0.95, "meta": 0.9}
    cells = [
        {"row": row, "setting": setting, "seed": seed, "test": value + 0.001 * ((seed * len(row)) % 3)}
        | {"given": 0.6, "suggested": 0.7, "average_precision": 0.9}
        for setting in ("digits uniform 40 20", "wine pair 40 20")
        for row, value in rows.items()
        if setting.startswith("digits") or row != "dividemix"
        for seed in range(4)
    ]
    (folder / "cells.jsonl").write_text("".join(json.dumps(cell) + "\n" for cell in cells))
    won, lost = scorecard.sections(tmp_path)[-2:]
    assert "Significantly above the best of seven controls in 2 of 2 noisy settings" in won
    assert "below another method in digits uniform 40 20 (dividemix, 4.9 points)" in lost.replace("\n", " ")
    told = scorecard.sentence(tmp_path, "results").replace("\n", " ")
    assert "In [2 settings](results/robustness.md)" in told
    assert "significantly better in 2 of the 2 noisy ones and significantly worse in 0 of all." in told
    assert "significantly better than it: `dividemix` in 1 (digits uniform 40 20)." in told
    value = {"default": 0.6, "gold-correction": 0.5, "pencil": 0.55}
    put(tmp_path, "memorising", lambda row, column, seed: value.get(row, 0.3), lambda *key: key[2] < 2)
    put(tmp_path, "features", lambda row, column, seed: value.get(row, 0.3) + wobble(row, seed))
    pixels, features = (read(name, tmp_path, tmp_path) for name in ("memorising", "features"))
    assert scorecard.draw(tmp_path, tmp_path, features, tables(pixels))
    picture = (tmp_path / "scorecard.svg").read_text()
    number = 1 + 2 + len(pixels.columns) + len(features.columns)
    assert picture.count('<circle class="control"') == number, "one per setting and one in the legend"
    assert picture.count('<circle class="rival"') == number - 1, "a setting without other methods"
    drawn = re.search(r">released-80</text>\n.*rival.*\n.*control.* cx=\"(.*?)\"", picture)
    assert drawn is not None
    assert float(drawn[1]) == pytest.approx(across(10.0), abs=0.1)
    assert picture.count('<line class="control"') == 2 + len(features.columns), "no intervals of two seeds"
    text = "before <!-- robustness: verdict -->\nold\n<!-- robustness: end --> after"
    filled = scorecard.filled(text, tmp_path, "results")
    assert filled.startswith("before <!-- robustness: verdict -->\n\nIn [2 settings]")
    assert filled.endswith("<!-- robustness: end --> after")
    assert scorecard.filled(filled, tmp_path, "results") == filled


def test_the_robustness_page_has_untouched_settings_and_pixels(tmp_path: Path, made_by: ModuleType) -> None:
    from pages import robustness

    def write(name: str, cells: list[dict[str, Any]]) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "cells.jsonl").write_text("".join(json.dumps(cell) + "\n" for cell in cells))

    about = {"given": 0.6, "suggested": 0.7, "average_precision": 0.9}
    write(
        "robustness",
        [
            {"row": row, "setting": setting, "seed": seed, "test": value + 0.001 * seed, **about}
            for setting in ("digits uniform 40 20", "iris matrix 30 20")
            for row, value in (("default", 0.9), ("clean only", 0.8))
            for seed in range(3)
        ],
    )
    rows = {"default": 0.5, "cross-entropy": 0.3, "clean-only": 0.35, "gold-correction": 0.4, "noisy-then-clean": 0.45}
    rows |= {"pencil": 0.51, "elr": 0.2, "co-teaching": 0.9, "released, label rate 0": 0.9}
    pixels = [
        {"row": row, "column": "uniform-40", "seed": seed, "last": {"test/accuracy": value}}
        for row, value in rows.items()
        for seed in ((0, 1) if row in ("default", "pencil") else (0,))
    ]
    write("memorising", [{"format_version": 1}, *pixels])
    page = robustness.page(tmp_path)
    first, second = page.split("## Settings that nothing was tuned on")
    assert "| digits uniform 40 20 |" in first
    assert "| iris matrix 30 20 |" not in first
    assert "| iris matrix 30 20 |" in second
    # Neither a method that is told the noise nor a part of another one is compared with.
    assert "| uniform-40 | 50.0 (2) | noisy-then-clean (1) | +5.0 | pencil (2) | **-1.0 ± 0.0** |" in second


def test_a_claim_of_the_paper_is_judged_by_its_columns(made_by: ModuleType) -> None:
    from pages.paper_claims import verdict as judge

    above, below, level = Difference(4, 1.0, 0.5, 1.5), Difference(4, -1.0, -1.5, -0.5), Difference(4, 0.1, -1.0, 1.2)
    assert judge([above, above]) == "**Holds** here"
    assert judge([above, level]) == "**Holds in part** here (1 of 2 columns)"
    assert judge([above, below]) == "**Does not hold** here (contradicted in 1 of 2 columns, right in 1)"
    assert judge([level]) == "**Cannot be told** here"


def test_pages_that_quote_the_suite_quote_it_as_it_is(made_by: ModuleType) -> None:
    for page, folder in made_by.WITH_VERDICT.items():
        text = page.read_text()
        assert "<!-- robustness: verdict -->" in text
        same = made_by.scorecard.filled(text, made_by.RESULTS, folder) == text
        assert same, f"run python benchmarks/results_pages.py: {page.name} says something else than the cells"


def test_the_same_cells_give_the_same_bytes(complete: Path, tmp_path: Path, made_by: ModuleType) -> None:
    command = [sys.executable, str(made_by.__file__), "--results", str(complete / "results"), "--docs", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": "7"})
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == sorted(path.name for path in (complete / "docs").iterdir())
    assert {"features-epochs.svg", "features-labels.svg", "clean-samples.svg"} < set(files)
    for name in files:
        assert (tmp_path / name).read_bytes() == (complete / "docs" / name).read_bytes(), name


def test_the_committed_pages_are_those_of_the_committed_cells(tmp_path: Path, made_by: ModuleType) -> None:
    if any(map(_is_written, made_by.RESULTS.glob("*/.lock"))):
        pytest.skip("a sweep is running: its pages are made when it is finished")
    made_by.write(docs=tmp_path)
    for made in sorted(tmp_path.iterdir()):
        committed = made_by.DOCS / made.name
        assert committed.exists(), f"run python benchmarks/results_pages.py: there is no {committed.name}"
        if made.suffix == ".svg" and _drawn_by(made) != _drawn_by(committed):
            continue  # another matplotlib draws the same with other bytes
        same = made.read_bytes() == committed.read_bytes()
        assert same, f"run python benchmarks/results_pages.py: {committed.name} is not what the cells give"
    nav = (ROOT / "zensical.toml").read_text()
    for page in tmp_path.glob("*.md"):
        assert f"results/{page.name}" in nav


def _is_written(lock: Path) -> bool:
    """Whether a sweep that runs holds the lock of its folder."""
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _drawn_by(picture: Path) -> list[str]:
    return re.findall(r"Matplotlib v[\d.]+", picture.read_text())
