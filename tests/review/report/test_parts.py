"""The parts of a report: counts of labels, names to look at, curves."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslg.review.report.charts import Chart, Series
from mslg.review.report.label_counts import count_labels
from mslg.review.report.safe_text import LONGEST, named, short
from mslg.runtime.printable import visible
from tests.support.run_folders import CLASSES, run_folder


def test_counts_equal_those_of_the_whole_table(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", samples=100)
    table = pq.read_table(folder / "labels.parquet").to_pandas()
    table.loc[5, "label_quality"] = np.nan
    table.to_parquet(folder / "labels.parquet")
    found = count_labels(folder, list(CLASSES))
    issues = table[table.is_label_issue]
    assert (found.samples, found.flagged) == (100, len(issues))
    for row in found.classes:
        own = table[table.given_label == CLASSES[row.number]]
        assert row.samples == len(own)
        assert row.flagged == own.is_label_issue.sum()
        assert row.quality == pytest.approx(own.label_quality.mean())
        assert row.suggestion is not None
        times = issues[issues.given_label == CLASSES[row.number]].suggested_label.value_counts()
        assert row.suggested == times.iloc[0] == times[CLASSES[row.suggestion]]
    pairs = pd.Series({(CLASSES[a], CLASSES[b]): times for a, b, times in found.pairs})
    assert pairs.to_dict() == issues.groupby(["given_label", "suggested_label"]).size().to_dict()
    assert found.pairs == sorted(found.pairs, key=lambda pair: -pair[2])


def test_a_class_without_samples_has_no_row(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", samples=4)
    found = count_labels(folder, [*CLASSES, "never given"])
    assert {row.number for row in found.classes} == {0, 1, 2}


@given(st.text(max_size=400), st.integers(10, 100))
def test_a_shown_name_is_short_and_hides_nothing(text: str, longest: int) -> None:
    shown = short(text, longest)
    assert len(shown) <= longest
    assert visible(shown) == shown
    if len(text) <= longest and visible(text) == text:
        assert shown == text


def test_a_name_is_escaped_and_set_apart() -> None:
    assert named("<b>") == '<bdi class="name">&lt;b&gt;</bdi>'
    assert named('a"\u202e' + 200 * "b").startswith('<bdi class="name" title="a&#34;⟪U+202E⟫bbb')
    assert len(named(10_000 * "<")) < 20 * LONGEST * 10


LINES = {
    "few points": Chart("A", "epoch", [Series("x", [(1, 0.5), (2, 0.7)])]),
    "all the same": Chart("A", "epoch", [Series("x", [(1, 0.0), (2, 0.0)])], percent=False),
    "one value far off": Chart(
        "A", "epoch", [Series("x", [(n, 1e9 if n == 3 else 1e-9) for n in range(1, 300)])], percent=False
    ),
    "depths": Chart("A", "depth", [Series("x", [(10, 0.9), (10_000, 0.1)], [(0.8, 1.0), (0.0, 0.3)])], log=True),
    "hostile": Chart("<script>", '"', [Series("<b>", [(1, 1.0), (2, 1.0)])]),
}


@pytest.mark.parametrize("name", LINES)
def test_a_curve_is_a_picture_with_a_text(name: str) -> None:
    chart = LINES[name]
    image = ElementTree.fromstring(str(chart.svg()))
    assert image.get("role") == "img"
    assert image.get("aria-label") == chart.summary()
    _, _, width, height = map(float, image.get("viewBox", "").split())
    for line in image.iter("polyline"):
        for point in line.get("points", "").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height
    assert 2 <= len([text for text in image.iter("text") if text.get("class") == "tick"]) <= 20
    assert len(chart.numbers()) == len(chart.series[0].points)


def test_labels_of_the_axes_are_inside() -> None:
    """At a phone's font, 16 units high and about 9 wide."""
    chart = Chart("list", "samples", [Series("a", [(10, 1.0), (100, 0.5), (50_000, 0.1)])], log=True)
    for text in ElementTree.fromstring(chart.svg()).iter("text"):
        length = 9 * len(text.text or "")
        left = {"end": 1.0, "middle": 0.5}[text.attrib["text-anchor"]] * length
        assert float(text.attrib["x"]) - left >= -1, text.text
        assert float(text.attrib["x"]) - left + length <= 560, text.text
