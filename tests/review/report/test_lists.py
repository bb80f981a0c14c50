"""The three lists of the page in a real browser: suspects, a random check, and what is worth most."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from mslg.review.report import write_report
from mslg.review.report.cards import read_cards
from tests.support.run_folders import CLASSES, run_folder

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("MSLG_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")

browsed = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install it, or name it in MSLG_CHROMIUM"),
]


def with_lists(folder: Path) -> Path:
    """The folder with some of its suspects as a random check, and some as worth most."""
    rows = pq.read_table(folder / "suspects.parquet")
    pq.write_table(rows.slice(0, 40), folder / "audit.parquet")
    pq.write_table(rows.slice(10, 8), folder / "next.parquet")
    return folder


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Any]:
    report = write_report(with_lists(run_folder(tmp_path / "run"))).as_uri()
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM)
        window = browser.new_page(viewport={"width": 1280, "height": 860})
        trouble: list[str] = []
        window.on("pageerror", lambda error: trouble.append(str(error)))
        window.goto(f"{report}#review")
        yield window
        assert not trouble
        browser.close()


def go_to(page: Any, part: str, listed: int) -> None:
    page.click(f"#to-{part}")
    page.locator("#found", has_text=f"{listed} samples listed").wait_for()


@pytest.mark.usefixtures("page")
class TestInTheBrowser:
    pytestmark = browsed

    def test_a_random_check_shows_nothing_that_could_sway(self, page: Any) -> None:
        go_to(page, "check", 40)
        assert page.inner_text("#labels").split() == ["Given", "ant"]
        for hidden in ("#accept", "#bulk-accept", "#filters", "#probs", "#history", "#nearest"):
            assert not page.is_visible(hidden), hidden
        assert "What the run thinks of them is hidden" in page.inner_text("#task")
        for _ in range(20):
            page.keyboard.press("k")
        page.locator("#task", has_text="0 of 20 random labels are wrong: 0 %").wait_for()
        page.keyboard.press("u")
        page.locator("#reviewed", has_text="19 of 40 reviewed").wait_for()
        assert page.inner_text("#card-title") == "Sample s019", "undo leads back to the sample"

    def test_a_class_has_a_key_in_the_random_check(self, page: Any) -> None:
        go_to(page, "check", 40)
        assert page.locator("#choice-list button:disabled").all_inner_texts()[0].startswith("ant")
        page.keyboard.press("2")
        page.locator("#reviewed", has_text="1 of 40 reviewed").wait_for()
        assert "bee" in page.locator("#tiles button").first.inner_text(), "what was chosen is on its tile"
        page.keyboard.press("1" if "ant" in page.inner_text("#labels") else "k")
        page.locator("#reviewed", has_text="2 of 40 reviewed").wait_for()

    def test_after_the_random_check_the_summary_no_longer_says_that_nothing_is_known(self, page: Any) -> None:
        assert "is unknown" in page.text_content("#unknown")
        go_to(page, "check", 40)
        for _ in range(40):
            page.keyboard.press("k")
        page.locator("#task", has_text="The check is complete. Download audit.csv. Next: mslg fit").wait_for()
        assert not page.is_visible("#save-csv"), "one file to download"
        page.click("#to-summary")
        assert not page.is_visible("#unknown")
        assert page.inner_text("#audit-summary").startswith("By your random check, 0 of 40 random labels are wrong")
        assert not page.is_visible(".go >> text=random samples")

    def test_each_list_keeps_its_own_filters_and_place(self, page: Any) -> None:
        assert page.inner_text("#to-review .pill") == "30"
        page.fill("#search", "s00")
        page.locator("#found", has_text="5 samples listed").wait_for()
        go_to(page, "check", 40)
        page.keyboard.press("ArrowRight")
        go_to(page, "next", 8)
        assert page.input_value("#which") == "all"
        go_to(page, "review", 5)
        page.reload()
        assert page.inner_text("#found") == "5 samples listed"
        assert page.inner_text("#card-title") == "Sample s000"
        page.click("#clear")
        page.select_option("#which", "flagged")
        assert page.inner_text("#found") == "30 samples listed", "as many as are flagged"

    def test_what_is_not_known_of_a_sample_has_no_heading(self, page: Any, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        rows = pq.read_table(folder / "next.parquet").to_pylist()
        bare = [{**row, "history_given": [], "history_predicted": [], "nearest": []} for row in rows]
        pq.write_table(pq.read_table(folder / "next.parquet").from_pylist(bare), folder / "next.parquet")
        page.goto(write_report(folder).as_uri() + "#worth")
        page.reload()
        assert page.is_visible("#probs")
        assert "epoch by epoch" not in page.inner_text("#card")
        assert "Most similar" not in page.inner_text("#card")

    def test_values_of_a_table_are_standardised_and_unusual_ones_marked(self, page: Any, tmp_path: Path) -> None:
        folder = run_folder(tmp_path / "table")
        random = np.random.default_rng(0)
        rows = pq.read_table(folder / "suspects.parquet").to_pylist()
        for place, row in enumerate(rows):
            values = [1000 + 10 * random.normal(), float(random.normal())]
            values[0] += 90 * (place == 0)
            row["view_kind"] = "values"
            row["view"] = json.dumps({"length": 2, "values": values, "names": ["price", "size"]}).encode()
        pq.write_table(pq.read_table(folder / "suspects.parquet").from_pylist(rows), folder / "suspects.parquet")
        page.goto(write_report(with_lists(folder)).as_uri() + "#review")
        assert page.locator("#view tr.unusual th").all_inner_texts() == ["price"]
        assert " sd" in page.inner_text("#view tr.unusual td")
        assert page.locator("#view rect.unusual").count() == 1
        page.keyboard.press("ArrowRight")
        page.locator("#card-title", has_text="s002").wait_for()
        assert page.locator("#view rect.unusual").count() == 0


def test_flagged_labels_are_on_the_page_before_others(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    shown = read_cards(folder, list(CLASSES), most=32).shown
    assert sum(card["flagged"] for card in shown) == 30
    assert [card["rank"] for card in shown] == sorted(card["rank"] for card in shown)
