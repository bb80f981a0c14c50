"""The page as a file: what is in it, what can never be in it, and how large it may grow."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import resource
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mslg.review.report import write_report
from mslg.review.report.embedded_json import embed_json
from mslg.review.report.findings import flag_words, flagged_verb, headline
from mslg.review.report.render import render
from mslg.review.report.report_data import read_report_data
from tests.support.run_folders import CLASSES, HOSTILE, STATEMENTS, picture, run_folder


class Page(HTMLParser):
    """The elements, the texts and the data of a page, as a browser would find them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.inside = ""
        self.blocks: dict[str, str] = {}
        self.feed(path.read_text())
        self.data = json.loads(self.blocks["application/json"])
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = dict(attrs).get("type") or tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.blocks[self.inside] = self.blocks.get(self.inside, "") + data
        else:
            self.texts.append(data)

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]


def page_of(folder: Path, **options: int) -> Page:
    return Page(write_report(folder, **options))


def test_every_statement_of_a_run_is_told_in_words(tmp_path: Path) -> None:
    page = page_of(run_folder(tmp_path / "run", summary=STATEMENTS))
    assert "About 20 of 60 labels are wrong" in page.text
    rule = "those for which another class is likelier than the given one"
    assert f"90 % interval: 17 to 24. 30 are flagged: {rule}." in page.text
    assert "Of the first 20 on the list, about 90 % (80 to 95) are wrong." in page.text
    assert "Of all 30 flagged, about 66 % (60 to 70) are wrong." in page.text
    assert "Estimated on 40 clean samples with given and verified labels." in page.text
    assert "It helped a great deal." in page.text
    assert "+10.0 −2.0 to +20.0" in page.text
    assert "Which class is labelled as which" in page.text
    assert "this run estimated no" not in page.text
    assert page.data["precision"][0] == {"depth": 10, "estimate": 0.99, "low": 0.97, "high": 1.0}


def test_what_a_run_cannot_tell_is_said(tmp_path: Path) -> None:
    page = page_of(
        run_folder(
            tmp_path / "run",
            summary={"comparison": {"verdict": "not compared: too few", "controls": []}, "memorised_unknown": "it is"},
        )
    )
    assert "whether the network has memorised wrong labels: it is" in page.text
    assert "30 of 60 labels look wrong" in page.text
    assert "how many labels are wrong in total: that takes clean samples with given and verified labels" in page.text
    assert "whether simpler training would have done as well: too few" in page.text
    assert "Did it help?" not in page.text


def test_precision_is_stated_only_where_the_number_of_wrong_labels_is(tmp_path: Path) -> None:
    errors = {**STATEMENTS["label_errors"], "basis": "injected"}
    page = page_of(run_folder(tmp_path / "run", summary={**STATEMENTS, "label_errors": errors}))
    assert "Labels on the list that are wrong" not in page.text
    assert page.data["precision"] == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "look wrong: those for which another class is likelier than the given one"),
        (
            {"flag": "fdr=0.1"},
            "look wrong: those with a likelier class, at an estimated false discovery rate below 0.1",
        ),
        ({"fdr": 0.2}, "look wrong: those with a likelier class, at an estimated false discovery rate below 0.2"),
        ({"flag": "expected"}, "are flagged: as many as are estimated to be wrong"),
        ({"flag": 500}, "are flagged: as many as you asked for"),
    ],
)
def test_a_number_that_was_asked_for_does_not_look_wrong(settings: dict[str, Any], words: str) -> None:
    assert f"{flagged_verb(settings)}: {flag_words(settings)}" == words
    assert ("rough estimate" in flag_words(settings, "injected")) == ("estimated" in words)


@pytest.mark.parametrize("basis", ["pairs", "injected"])
def test_why_nothing_is_flagged_at_a_false_discovery_rate(basis: str) -> None:
    errors = {**STATEMENTS["label_errors"], "basis": basis, "fdr": 0.1, "flagged": {"depth": 0, "why": "no label is"}}
    run: Any = SimpleNamespace(
        summary={"label_errors": errors},
        config={"train": {"fdr": 0.1}},
        labels=SimpleNamespace(flagged=0, samples=60),
        cards=SimpleNamespace(audit=[]),
    )
    told = " ".join(headline(run).sentences)
    assert "No label is." in told
    assert "None are flagged: those" not in told


def test_cards_hold_what_the_run_kept(tmp_path: Path) -> None:
    page = page_of(run_folder(tmp_path / "run"), cards=10)
    cards = page.data["cards"]
    assert [card["rank"] for card in cards] == list(range(0, 20, 2)), "the flagged ones"
    assert page.data["classes"] == list(CLASSES)
    first = cards[0]
    assert (first["id"], first["given"], first["suggested"]) == ("s000", 0, 1)
    assert first["history"] == pytest.approx([0.5, 0.25, 0.1667, 0.125, 0.1, 0.0833])
    assert page.data["epochs"] == [1, 2, 3, 4, 5, 6]
    assert sum(share for _, share in first["probs"]) == pytest.approx(1, abs=1e-3)
    assert dict(first["probs"])[first["given"]] == first["quality"]
    assert [page.data["clean"][place]["label"] for place in first["nearest"]] == [0, 2]
    assert base64.b64decode(first["view"]["data"].partition(",")[2]) == picture(0)


def test_the_page_allows_its_own_script_and_style_and_nothing_else(tmp_path: Path) -> None:
    page = page_of(run_folder(tmp_path / "run"))
    (policy,) = [meta["content"] for meta in page.tags("meta") if meta.get("http-equiv")]
    assert policy is not None
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(page.blocks[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag, attributes in page.elements:
        assert not {"src", "style", "action"} & set(attributes), tag
        assert not [name for name in attributes if name.startswith("on")], tag
        assert (attributes.get("href") or "#").startswith("#")


@pytest.mark.parametrize("kind", ["text", "image"])
def test_names_and_texts_stay_text(tmp_path: Path, kind: str) -> None:
    ids = [f"{HOSTILE[place % 5]} {place}" for place in range(30)]
    view = ("text", HOSTILE[2].encode()) if kind == "text" else None
    matrix = np.full((5, 5), 0.2).tolist()
    statements = {"transition": matrix, "comparison": {**STATEMENTS["comparison"], "verdict": HOSTILE[0]}}
    folder = run_folder(
        tmp_path / "<img src=x>", classes=HOSTILE, samples=30, ids=ids, view=view, summary={**STATEMENTS, **statements}
    )
    page = page_of(folder)
    assert len(page.tags("script")) == 2
    assert not page.tags("img")
    assert page.data["classes"] == list(HOSTILE)
    assert [card["id"] for card in page.data["cards"]] == ids
    assert not any("\u202e" in text for text in page.texts)
    assert "⟪U+202E⟫desrever" in page.text
    assert max(len(text) for text in page.texts) < 2_000
    assert len((folder / "report.html").read_bytes()) < 1_500_000


def test_data_cannot_end_its_script() -> None:
    value = {"a": "</script><!-- & \u2028\u2029"}
    text = embed_json(value)
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == value


def test_a_page_that_grows_too_large_gets_smaller_pictures_then_fewer(tmp_path: Path) -> None:
    run = read_report_data(run_folder(tmp_path / "run", samples=12, side=160), cards=12)
    whole = render(run)
    smaller = render(run, budget=len(whole) * 2 // 3)
    assert len(smaller) <= len(whole) * 2 // 3
    assert smaller.count(b'"rank":') == 12, "pictures are given up before samples are"
    least = render(run, budget=100_000)
    assert 0 < least.count(b'"rank":') < 12
    assert len(least) <= 100_000
    assert b"of 6 flagged labels, the worst" in least


@pytest.mark.slow
def test_a_thousand_large_pictures_stay_below_20_megabytes(tmp_path: Path) -> None:
    content = picture(0, 224, "WEBP")
    folder = run_folder(tmp_path / "run", samples=1000, view=("image", content + bytes(30_000 - len(content) % 30_000)))
    assert write_report(folder, cards=1000).stat().st_size < 20_000_000


def test_a_run_from_before_there_were_suspects_has_a_page_without_cards(tmp_path: Path) -> None:
    page = page_of(run_folder(tmp_path / "run", suspects=0))
    assert "has no suspects.parquet" in page.text
    assert "Label quality by class" in page.text
    assert page.data["cards"] == []


def test_many_classes_are_folded_away(tmp_path: Path) -> None:
    classes = tuple(f"class {number}" for number in range(120))
    matrix = np.eye(120)
    matrix[3, 5] = 0.5
    page = page_of(run_folder(tmp_path / "run", classes=classes, samples=600, summary={"transition": matrix.tolist()}))
    assert "80 more classes" in page.text
    assert "class 3 class 5 50.0 %" in page.text
    assert "too many classes for the whole matrix" in page.text


def test_the_same_folder_gives_the_same_page(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    first = write_report(folder, tmp_path / "elsewhere" / "one.html")
    assert first.read_bytes() == write_report(folder, tmp_path / "two.html").read_bytes()
    assert not (folder / "report.html").exists()


WRONG = {
    "no run": (["classes.json", "config.toml"], "is not a run's folder: it has no config.toml"),
    "not finished": (
        ["labels.parquet"],
        "is not finished (it has no labels.parquet); finish it: mslg fit",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_folder_without_a_finished_run_is_refused(tmp_path: Path, name: str) -> None:
    lost, message = WRONG[name]
    folder = run_folder(tmp_path / "run")
    for file in lost:
        (folder / file).unlink()
    with pytest.raises((FileNotFoundError, ValueError), match=re.escape(message)):
        write_report(folder)


def test_a_failed_run_says_that_it_failed(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", summary={"state": "failed", "error": "the loss became nan"})
    (folder / "labels.parquet").unlink()
    with pytest.raises(ValueError, match="its training failed: the loss became nan"):
        write_report(folder)


def test_a_million_labels_take_seconds_and_little_memory(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    rows = 1_000_000
    given = pa.DictionaryArray.from_arrays(np.arange(rows) % 3, list(CLASSES)).cast(pa.string())
    suggested = pa.DictionaryArray.from_arrays((np.arange(rows) % 6) % 3, list(CLASSES)).cast(pa.string())
    table = {"given_label": given, "suggested_label": suggested, "is_label_issue": np.zeros(rows, dtype=bool)}
    pq.write_table(pa.table({**table, "label_quality": np.full(rows, 0.5, np.float32)}), folder / "labels.parquet")
    begun, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = write_report(folder)
    assert time.process_time() - begun < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "kilobytes"
    text = Page(path).text
    assert "How many of these 1,000,000 labels are wrong is unknown" in text
    assert "None is flagged, which does not mean that all are right." in text


def test_writing_a_report_does_not_wait_for_torch() -> None:
    code = "import sys, mslg.review.report; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
