"""The report in a real browser: nothing is fetched, nothing out of the data runs, the keyboard is enough."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mslg.review.report import write_report
from tests.support.run_folders import CLASSES, HOSTILE, STATEMENTS, run_folder

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("MSLG_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install it, or name it in MSLG_CHROMIUM"),
]

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM)
        yield found
        found.close()


@contextmanager
def watched(browser: Any, **options: Any) -> Iterator[Any]:
    """A window that must stay offline and without a complaint."""
    context = browser.new_context(accept_downloads=True, **options)
    window = context.new_page()
    trouble: list[str] = []
    window.on("console", lambda message: trouble.append(message.text))
    window.on("pageerror", lambda error: trouble.append(str(error)))
    window.on(
        "request",
        lambda request: None if request.url.startswith(("file:", "data:", "blob:")) else trouble.append(request.url),
    )
    yield window
    assert not trouble
    context.close()


@pytest.fixture
def report(tmp_path: Path) -> str:
    return write_report(run_folder(tmp_path / "run", summary=STATEMENTS)).as_uri()


@pytest.fixture
def page(browser: Any, report: str) -> Iterator[Any]:
    with watched(browser, viewport={"width": 1280, "height": 900}) as window:
        window.goto(f"{report}#review")
        yield window


def shown(page: Any) -> str:
    return str(page.inner_text("#card-title")).removeprefix("Sample ")


def tiles(page: Any) -> list[str]:
    return [tile.get_attribute("aria-label") for tile in page.query_selector_all("#tiles button")]


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def saved(page: Any, button: str) -> str:
    with page.expect_download() as download:
        page.click(button)
    return Path(download.value.path()).read_bytes().decode()


def decisions(page: Any) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(saved(page, "#save-json"))["decisions"]
    return found


def test_it_opens_with_its_numbers_and_its_cards(browser: Any, report: str) -> None:
    with watched(browser) as window:
        window.goto(report)
        assert window.is_visible("text=About 20 of 60 labels are wrong")
        assert not window.is_visible("#card")
        window.click("text=Review the suspects")
        assert window.is_visible("#card")
        assert not window.is_visible("#summary")
        assert shown(window) == "s000"
        assert window.inner_text("#labels").split() == ["Given", "ant", "Suggested", "bee", "Quality", "0.0010"]
        assert len(window.query_selector_all("#probs li")) == 3
        assert len(window.query_selector_all("#history rect")) == 6
        assert window.inner_text("#nearest").split() == ["verified", "as", "ant", "verified", "as", "cat"]
        assert window.evaluate("document.querySelector('#view img').naturalWidth") == 8
        window.go_back()
        assert window.is_visible("#summary")


def test_the_policy_is_in_force(browser: Any, report: str) -> None:
    context = browser.new_context()
    window = context.new_page()
    refused: list[str] = []
    window.on("console", lambda message: refused.append(message.text))
    window.goto(report)
    window.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.pwned = 1";
            document.body.append(script);
            document.body.insertAdjacentHTML("beforeend", '<img src="https://x.example" onerror="window.pwned = 1">');
        }"""
    )
    window.wait_for_timeout(300)
    assert window.evaluate("window.pwned") is None
    assert len([text for text in refused if "Content Security Policy" in text]) >= 2
    context.close()


def test_filters_and_orders(page: Any) -> None:
    assert page.inner_text("#found") == "30 samples listed"
    assert len(tiles(page)) == 24
    page.select_option("#given", label="ant (20)")
    assert page.inner_text("#found") == "10 samples listed"
    page.select_option("#suggested", "0")
    assert page.is_visible("text=No samples match these filters.")
    page.select_option("#which", "all")
    assert tiles(page)
    assert all("given ant, not flagged" in tile for tile in tiles(page))
    page.click("#clear")
    assert page.inner_text("#found") == "30 samples listed", "as long as the tab says"
    page.select_option("#which", "all")
    assert page.inner_text("#found") == "60 samples listed"
    page.select_option("#depth", "25")
    assert page.inner_text("#found") == "25 samples listed"
    page.select_option("#order", "quality")
    page.click("#page-before")
    assert "s024" in tiles(page)[0]
    page.select_option("#order", "pair")
    assert [word for word in ("ant", "bee", "cat") if f"given {word}" in tiles(page)[0]] == ["ant"]
    page.fill("#search", "S01")
    assert page.inner_text("#found") == "10 samples listed"


def test_a_label_that_is_not_flagged_can_be_changed_to_its_likeliest_class(page: Any) -> None:
    """A card must not say that no other class is suggested beside a bar of another class that is the longest."""
    page.select_option("#which", "all")
    cards = page.evaluate("JSON.parse(document.getElementById('data').textContent).cards")
    card = next(card for card in cards if not card["flagged"] and card["probs"][0][0] != card["given"])
    likeliest = CLASSES[card["probs"][0][0]]
    page.fill("#search", card["id"])
    assert f"Likeliest\n{likeliest}" in page.inner_text("#labels")
    page.click("#accept")
    (made,) = decisions(page)
    assert (made["id"], made["decision"], made["label"]) == (card["id"], "relabel", likeliest)


def test_a_pair_of_the_summary_leads_to_its_samples(page: Any) -> None:
    page.goto(page.url.partition("#")[0])
    page.click("[data-pair='1,2']")
    assert page.is_visible("#card")
    assert all("given bee, suggested cat" in label for label in tiles(page))
    assert page.inner_text("#found") == "10 samples listed"


def test_a_key_per_kind_of_problem(browser: Any, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", summary=STATEMENTS)
    suspects = pq.read_table(folder / "suspects.parquet")
    kinds = ["wrong label", "ambiguous", "near duplicate", "no class"]
    kind = pa.array([kinds[place] if place < 4 else "" for place in range(len(suspects))])
    pq.write_table(suspects.append_column("kind", kind), folder / "suspects.parquet")
    with watched(browser, viewport={"width": 1280, "height": 900}) as window:
        window.goto(f"{write_report(folder).as_uri()}#review")
        for place, key in enumerate("wbdn"):
            press(window, key)
            assert window.input_value("#kind") == kinds[place]
            assert shown(window) == f"s00{place}"
            assert window.inner_text("#status") == f"{kinds[place]}: 1 sample listed."
        press(window, "n")
        assert window.inner_text("#found") == "30 samples listed"
        press(window, "?")
        assert window.is_visible("#help kbd:text-is('w')")


def test_the_keys_of_kinds_where_there_are_none(page: Any) -> None:
    press(page, "d")
    assert page.inner_text("#found") == "30 samples listed"
    assert "does not tell kinds" in page.inner_text("#status")


def test_a_review_by_keyboard(page: Any) -> None:
    press(page, "a", "k", "x", "s")
    assert page.inner_text("#reviewed") == "4 of 30 reviewed"
    assert "s006 skipped. Now s008" in page.inner_text("#status")
    assert shown(page) == "s008"
    press(page, "r")
    page.wait_for_selector("#chooser[open]")
    page.keyboard.type("an")
    press(page, "Enter")  # s008: given cat, suggested ant
    press(page, "r")
    page.keyboard.type("cat")
    press(page, "ArrowDown", "ArrowUp", "Enter")  # s010: given bee, suggested cat
    press(page, "r")
    page.keyboard.type("cat")
    press(page, "Enter")  # s012: given ant, suggested bee
    assert [(row["id"], row["decision"], row["label"]) for row in decisions(page)] == [
        ("s000", "accept", "bee"),
        ("s002", "keep", "cat"),
        ("s004", "remove", ""),
        ("s006", "skip", ""),
        ("s008", "accept", "ant"),
        ("s010", "accept", "cat"),
        ("s012", "relabel", "cat"),
    ]
    press(page, "u", "u")
    assert page.inner_text("#reviewed") == "5 of 30 reviewed"
    assert shown(page) == "s010"
    press(page, *7 * "u")
    assert page.inner_text("#reviewed") == "0 of 30 reviewed"
    assert "There is nothing to undo" in page.inner_text("#status")
    assert shown(page) == "s000"
    press(page, "j", "ArrowRight", "p", "j", "ArrowLeft")
    assert shown(page) == "s002"
    assert page.inner_text("#place") == "2 of 30"


def test_digits_choose_one_of_the_likeliest_classes(page: Any) -> None:
    names = page.eval_on_selector_all("#probs .name bdi", "nodes => nodes.map(node => node.textContent)")
    press(page, "3")
    assert decisions(page)[0]["label"] == names[2]
    press(page, "r")
    page.wait_for_selector("#chooser[open]")
    first = page.inner_text("#chooser-list li:first-child bdi")
    press(page, "1")
    assert decisions(page)[1]["label"] == first


def test_where_classes_are_digits_a_digit_is_typed(browser: Any, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", classes=tuple("0123456789"), samples=40)
    with watched(browser) as window:
        window.goto(f"{write_report(folder).as_uri()}#review")
        press(window, "7")
        window.wait_for_selector("#chooser[open]")
        assert window.input_value("#chooser-search") == "7"
        press(window, "Enter")
        assert decisions(window) == [
            {"id": "s000", "decision": "relabel", "label": "7", "given_label": "0", "suggested_label": "1"}
        ]


def test_with_a_filter_on_undecided_the_next_sample_moves_up(page: Any) -> None:
    page.select_option("#state", "undecided")
    press(page, "Tab")
    page.evaluate("document.activeElement.blur()")
    press(page, "j", "a", "a")
    assert shown(page) == "s006"
    assert page.inner_text("#found") == "28 samples listed"
    page.select_option("#state", "accept")
    assert page.inner_text("#found") == "2 samples listed"


def test_a_reload_keeps_everything(page: Any) -> None:
    page.select_option("#order", "pair")
    page.evaluate("document.activeElement.blur()")
    press(page, "a", "k", "j")
    before = shown(page), page.inner_text("#reviewed"), decisions(page)
    page.reload()
    assert (shown(page), page.inner_text("#reviewed"), decisions(page)) == before
    assert page.input_value("#order") == "pair"


def test_another_run_has_other_decisions(browser: Any, page: Any, tmp_path: Path) -> None:
    press(page, "a")
    page.goto(write_report(run_folder(tmp_path / "other", samples=50)).as_uri() + "#review")
    assert page.inner_text("#reviewed") == "0 of 25 reviewed"


def test_files_go_out_and_come_in_again(page: Any, tmp_path: Path) -> None:
    press(page, "a", "k", "x", "s", "2")
    text = saved(page, "#save-csv")
    assert text.startswith("id,decision,label,given_label,suggested_label\r\ns000,accept,bee,ant,bee\r\n")
    rows = list(csv.DictReader(StringIO(text, newline="")))
    assert rows == decisions(page)
    (tmp_path / "decisions.csv").write_bytes(text.encode())
    (tmp_path / "decisions.json").write_text(saved(page, "#save-json"))
    (tmp_path / "strangers.csv").write_text("id,decision\nnobody,keep\n")
    (tmp_path / "nonsense.json").write_text("{")
    for name in ("decisions.csv", "decisions.json"):
        press(page, *6 * "u")
        assert page.inner_text("#reviewed") == "0 of 30 reviewed"
        page.set_input_files("#file", tmp_path / name)
        page.locator("#status", has_text="5 of 5 decisions").wait_for()
        assert decisions(page) == rows
    page.set_input_files("#file", tmp_path / "strangers.csv")
    page.locator("#status", has_text="0 of 1 decisions").wait_for()
    page.set_input_files("#file", tmp_path / "nonsense.json")
    page.locator("#status", has_text="cannot be read as decisions").wait_for()
    assert decisions(page) == rows


def test_decisions_are_read_and_applied(page: Any, tmp_path: Path) -> None:
    from mslg.review.decisions import read_decisions

    press(page, "a", "k", "x", "s", "r")
    page.keyboard.type("bee")
    press(page, "Enter")
    path = tmp_path / "decisions.csv"
    path.write_bytes(saved(page, "#save-csv").encode())
    given = [CLASSES[place % 3] for place in range(60)]
    found = read_decisions(path, classes=CLASSES, samples=[([f"s{place:03d}" for place in range(60)], given)])
    assert [(each.decision, each.label) for each in found.values()] == [
        ("accept", "bee"),
        ("keep", "cat"),
        ("remove", ""),
        ("skip", ""),
        ("relabel", "bee"),
    ]


def test_the_precision_found_is_told_beside_the_one_stated(page: Any) -> None:
    press(page, *9 * "a", "k")
    told = page.inner_text("#precision")
    assert "Of the first 10, 9 of 10 reviewed were wrong: 90 % (65 % to 98 %)." in told
    assert "The run's estimate was 99 % (97 % to 100 %) for the first 10." in told


def test_without_storage_the_page_says_so_and_goes_on(browser: Any, report: str) -> None:
    with watched(browser) as window:
        window.add_init_script(
            "Object.defineProperty(window, 'localStorage', { get() { throw new Error('denied'); } })"
        )
        window.goto(f"{report}#review")
        assert window.is_visible("text=This browser does not store data for this page")
        press(window, "a")
        assert len(decisions(window)) == 1


@pytest.mark.parametrize("width", [1280, 820, 390, 340])
@pytest.mark.parametrize("classes", [["cat", "dog"], ["a class with a long name", "another with a name as long"]])
def test_the_buttons_are_in_one_row(browser: Any, tmp_path: Path, width: int, classes: list[str]) -> None:
    folder = run_folder(tmp_path / "run", classes=classes, summary={})
    with watched(browser, viewport={"width": width, "height": 800}) as window:
        window.goto(f"{write_report(folder).as_uri()}#review")
        boxes = [
            button.bounding_box() for button in window.query_selector_all(".actions button") if button.is_visible()
        ]
        assert len(boxes) == 6
        bar = window.query_selector(".actions").bounding_box()
        assert all(bar["x"] <= box["x"] and box["x"] + box["width"] <= bar["x"] + bar["width"] for box in boxes)
        if width < 500 or classes == ["cat", "dog"]:
            assert len({round(box["y"]) for box in boxes}) == 1
        for name in (f"Accept {classes[1]}"[:20], "Keep", "Other class…", "None of these", "Skip", "Undo"):
            assert window.locator(".actions").get_by_role("button", name=name).count() == 1


@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("kind", ["image", "text", "values"])
def test_hostile_data_neither_runs_nor_breaks_the_page(browser: Any, tmp_path: Path, width: int, kind: str) -> None:
    ids = [f'{HOSTILE[place % 5]} {place}, "quoted"\r\n' for place in range(30)]
    values = {"length": 2, "values": [1.5, -2], "names": [HOSTILE[0], HOSTILE[4]]}
    view = {
        "image": None,
        "text": ("text", "\n".join(HOSTILE).encode()),
        "values": ("values", json.dumps(values).encode()),
    }
    folder = run_folder(tmp_path / "run", classes=HOSTILE, samples=30, ids=ids, view=view[kind], summary={
        **STATEMENTS, "transition": [[0.2] * 5] * 5, "comparison": {**STATEMENTS["comparison"], "verdict": HOSTILE[0]}
    })  # fmt: skip
    with watched(browser, viewport={"width": width, "height": 900}) as window:
        window.goto(write_report(folder).as_uri())
        assert window.evaluate(OVERFLOW) <= 0
        window.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        assert window.evaluate(OVERFLOW) <= 0
        window.goto(window.url + "#review")
        for key in "aaaaakxs":
            press(window, key)
            assert window.evaluate(OVERFLOW) <= 0
        press(window, "r")
        window.wait_for_selector("#chooser[open]")
        window.keyboard.type("<scr")
        press(window, "Enter")
        assert window.evaluate(OVERFLOW) <= 0
        assert window.evaluate("window.pwned") is None
        assert window.evaluate("document.querySelectorAll('script').length") == 2
        rows = list(csv.DictReader(StringIO(saved(window, "#save-csv"), newline="")))
        assert [row["id"] for row in rows] == [ids[place] for place in range(0, 18, 2)]
        assert rows[-1]["label"] == HOSTILE[0]
        assert [row["label"] for row in rows[:5]] == [HOSTILE[(place + 1) % 5] for place in range(0, 10, 2)]
        assert rows == decisions(window)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_both_themes_are_legible_and_can_be_switched(browser: Any, report: str, theme: str) -> None:
    with watched(browser, color_scheme=theme) as window:
        window.goto(report)
        assert contrast(window, "#headline") > 7
        assert contrast(window, ".lead p") > 4.5
        before = window.evaluate("getComputedStyle(document.body).backgroundColor")
        window.click("#theme")
        assert window.evaluate("getComputedStyle(document.body).backgroundColor") != before
        assert contrast(window, ".lead p") > 4.5
        window.reload()
        assert window.evaluate("getComputedStyle(document.body).backgroundColor") != before
        window.goto(f"{report}#review")
        for place in ("#labels .given", "#labels .suggested", "#card-rank", "#accept"):
            assert contrast(window, place) > 4.5, place


def contrast(window: Any, selector: str) -> float:
    """The contrast of a text to what is behind it, as accessibility guidelines define it."""
    script = """selector => {
        const node = document.querySelector(selector);
        const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
        let behind = node;
        while (behind && numbers(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
        const light = (text) => {
            const [red, green, blue] = numbers(text).map((value) => {
                const share = value / 255;
                return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
        };
        const [one, two] = [light(getComputedStyle(node).color), light(getComputedStyle(behind).backgroundColor)];
        return Math.max(one, two) / Math.min(one, two);
    }"""
    return float(window.evaluate(script, selector))


def test_every_control_has_a_name_and_headings_are_in_order(page: Any) -> None:
    press(page, "a")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, a, progress, summary, [role]")]
            .filter((node) => node.checkVisibility() && node.role !== "status")
            .filter((node) => !(node.getAttribute("aria-label") || node.innerText?.trim() || node.labels?.length))
            .map((node) => node.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    for part in ("", "#review"):
        page.goto(page.url.partition("#")[0] + part)
        levels = page.evaluate(
            """() => [...document.querySelectorAll("h1, h2, h3, h4")].filter((node) => node.checkVisibility())
                .map((node) => Number(node.tagName[1]))"""
        )
        assert levels[0] == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.evaluate(
        "new Set([...document.querySelectorAll('[id]')].map((node) => node.id)).size"
    ) == page.evaluate("document.querySelectorAll('[id]').length")


def test_the_page_can_be_used_with_tab_and_enter_alone(page: Any) -> None:
    page.goto(page.url.partition("#")[0])
    press(page, "Tab")
    assert page.inner_text(":focus") == "Skip to the content"
    press(page, "Tab", "Tab", "Enter")
    page.wait_for_selector("#card")
    order = []
    for _ in range(60):
        press(page, "Tab")
        order.append(page.evaluate("document.activeElement.id"))
        if order[-1] == "accept":
            break
    wanted = [
        "load",
        "open-help",
        "given",
        "suggested",
        "depth",
        "which",
        "state",
        "order",
        "search",
        "clear",
        "accept",
    ]
    assert [name for name in order if name in wanted] == wanted
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press(page, "Enter")
    assert page.inner_text("#reviewed") == "1 of 30 reviewed"
    assert page.evaluate("document.activeElement.id") == "accept", "the place is kept"


def test_help_opens_and_single_keys_can_be_switched_off(page: Any) -> None:
    press(page, "?")
    page.wait_for_selector("#help[open]")
    press(page, "a")
    page.click("#shortcuts")
    press(page, "Escape")
    page.wait_for_selector("#help", state="hidden")
    press(page, "a")
    assert page.inner_text("#reviewed") == "0 of 30 reviewed"


def test_keys_typed_into_a_field_decide_nothing(page: Any) -> None:
    page.focus("#search")
    page.keyboard.type("sakx")
    assert page.inner_text("#reviewed") == "0 of 0 reviewed"
    press(page, "Control+a")
    page.fill("#search", "")
    assert page.inner_text("#reviewed") == "0 of 30 reviewed"


def test_a_thousand_cards_stay_fast(browser: Any, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", samples=1000)
    with watched(browser) as window:
        window.goto(f"{write_report(folder, cards=1000).as_uri()}#review")
        assert len(tiles(window)) == 24
        took = window.evaluate(
            """() => {
                const begun = performance.now();
                for (let times = 0; times < 50; times += 1) document.getElementById("accept").click();
                return (performance.now() - begun) / 50;
            }"""
        )
        assert took < 100, "milliseconds a decision"
        assert window.inner_text("#page") == "page 3 of 21"


def test_one_run_from_training_to_labels_that_a_person_decided(
    browser: Any, tmp_path: Path, run_mslg: Callable[..., Any]
) -> None:
    import numpy as np
    import pandas as pd

    from tests.support.blobs import blobs

    data = blobs()
    np.savez(tmp_path / "noisy.npz", X=data.x, y=data.given)
    np.savez(tmp_path / "clean.npz", X=data.clean_x, y=data.clean_y)
    run_mslg("fit", "noisy.npz", "--clean", "clean.npz", "-o", "run", "--epochs", "6")
    labels = pd.read_parquet(tmp_path / "run" / "labels.parquet").sort_values("rank")
    worst = labels[labels["is_label_issue"]].iloc[0]
    with watched(browser) as window:
        window.goto((tmp_path / "run" / "report.html").as_uri() + "#review")
        assert shown(window) == worst["id"]
        press(window, "a")
        (tmp_path / "decisions.csv").write_bytes(saved(window, "#save-csv").encode())
    run_mslg("apply", "run", "decisions.csv", "-o", "cleaned.csv")
    cleaned = pd.read_csv(tmp_path / "cleaned.csv", dtype=str).set_index("id")
    assert cleaned.loc[worst["id"], "label"] == worst["suggested_label"]


@pytest.fixture
def run_mslg(tmp_path: Path) -> Callable[..., Any]:
    import subprocess
    import sys

    def run(*words: str) -> None:
        done = subprocess.run([sys.executable, "-m", "mslg", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    return run
