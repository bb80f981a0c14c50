"""Kinds of problem other than a wrong label, on planted ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mslg.fitting.find_label_issues import find_label_issues
from mslg.issues import neighbors
from mslg.issues.kinds import ProblemKinds, distance_ratio, problem_kinds
from mslg.issues.neighbors import directions, nearest_neighbors

Array = npt.NDArray[Any]


def blobs(samples: int = 300) -> tuple[Array, Array, Array]:
    """Three classes in ten dimensions: features, labels, probabilities."""
    random = np.random.default_rng(0)
    label = random.integers(0, 3, samples)
    features = random.normal(size=(samples, 10)) + 6 * np.eye(10)[label]
    return features, label, 0.9 * np.eye(3)[label] + 0.1 / 3


def test_neighbors_equal_a_slow_version(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = directions(blobs(60)[0])
    expected = [sorted((1 - float(rows[i] @ rows[j]), j) for j in range(60) if j != i)[:4] for i in range(60)]
    found = nearest_neighbors(rows, 4)
    assert found is not None
    assert found.position.tolist() == [[j for _, j in row] for row in expected]
    assert np.allclose(found.distance, [[d for d, _ in row] for row in expected], atol=1e-5)
    pytest.importorskip("faiss", reason="faiss is not installed")
    monkeypatch.setattr(neighbors, "EXACT", 10)
    near = nearest_neighbors(rows, 4)
    assert near is not None
    assert (near.position == found.position).mean() > 0.95


def test_without_faiss_a_large_set_is_told_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(neighbors, "EXACT", 10)
    monkeypatch.setattr(neighbors, "MOST_EXACT", 20)
    monkeypatch.setattr(neighbors, "find_spec", lambda name: None)
    assert nearest_neighbors(directions(blobs(60)[0]), 4) is None
    assert "this takes faiss (pip install mslg[neighbors])" in caplog.text


def test_planted_problems_are_found_and_named() -> None:
    features, label, probs = blobs()
    features[3] = features[200] + 1e-3  # near duplicates with different labels
    label[3] = (label[200] + 1) % 3
    features[5] = -20  # a stranger
    known = np.where((np.arange(300) >= 100) & (np.arange(300) < 200), label, -1)
    found = find_label_issues(label, probs, verified=known, features=features)
    rows = found.labels
    assert rows["kind"][5] == "no class"
    assert rows["no_class"][5] > 1
    assert rows["kind"][3] == rows["kind"][200] == "near duplicate"
    assert rows["duplicate_of"][3] == "200"
    assert rows["duplicate_of"][200] == "3"
    assert found.summary["kinds"]["near duplicate"] == 2
    assert found.summary["kinds"]["near duplicate with another label"] == 2
    assert (rows["kind"].fillna("") == "").sum() > 280


def test_what_cannot_be_judged_is_off() -> None:
    features, label, probs = blobs()
    assert not {"no_class", "duplicate_of"} & set(find_label_issues(label, probs).labels)
    few = find_label_issues(label, probs, verified=np.where(np.arange(300) < 50, label, -1), features=features)
    assert "no_class" not in few.labels
    assert "duplicate_of" in few.labels


def test_classes_that_cannot_be_told_apart() -> None:
    two = np.array([[0, 1], [1, 0], [0, 1], [2, 1]])
    mass = np.array([[0.5, 0.48], [0.54, 0.45], [0.97, 0.02], [0.9, 0.1]])
    found = problem_kinds(two, mass, 3, None, np.array([], dtype=int))
    assert found.pairs == ((0, 1, 2 / 3),)
    assert found.ambiguous is None


def test_a_mixture_of_two_classes_is_ambiguous_and_hardly_any_verified_sample() -> None:
    features, label, probs = blobs()
    features[:5] = (features[label == 0][10:15] + features[label == 1][10:15]) / 2
    label[:5], probs[:5] = 0, [0.9, 0.05, 0.05]
    known = np.where(np.arange(300) >= 150, label, -1)
    found = find_label_issues(label, probs, verified=known, features=features, flag="likelier")
    rows = found.labels
    assert (rows["kind"][:5] == "ambiguous").all()
    assert (rows["ambiguous"][:5] > 1).all()
    assert (rows["kind"][5:150] == "ambiguous").sum() <= 8
    assert found.kinds.is_ambiguous is not None
    assert found.kinds.is_ambiguous[150:].sum() <= 0.02 * 150 + 1


def test_the_distance_ratio_equals_a_slow_version() -> None:
    features, label, _ = blobs(40)
    rows = directions(features)
    expected = []
    for i in range(40):
        means = []
        for number in range(3):
            near = sorted(
                max(0.0, 1 - float(rows[i] @ rows[j])) ** 0.5 for j in range(40) if j != i and label[j] == number
            )
            means.append(sum(near[:3]) / 3)
        first, second, _ = sorted(means)
        expected.append(first / second)
    assert distance_ratio(rows, label, 3) == pytest.approx(np.array(expected), abs=1e-4)


def test_ambiguous_is_off_where_classes_overlap() -> None:
    features, label, probs = blobs()
    known = np.where(np.arange(300) >= 150, label, -1)
    assert "ambiguous" in find_label_issues(label, probs, verified=known, features=features).labels
    overlapping = features - 5.5 * np.eye(10)[label]
    found = find_label_issues(label, probs, verified=known, features=overlapping)
    assert "ambiguous" not in found.labels
    assert "ambiguous" not in found.summary["kinds"]
    assert "no_class" in found.labels


def test_the_distance_ratio_of_mixtures_leaves_out_what_they_are_made_of() -> None:
    features, label, _ = blobs(40)
    rows = directions(features)
    pair = np.array([[int(np.flatnonzero(label == 0)[0]), int(np.flatnonzero(label == 1)[0])]])
    mixed = directions(rows[pair].sum(1))
    rest = np.setdiff1d(np.arange(40), pair[0])
    near = [sorted((1 - rows[j] @ mixed[0]) ** 0.5 for j in rest if label[j] == number)[:3] for number in range(3)]
    first, second, _ = sorted(sum(each) / 3 for each in near)
    assert distance_ratio(rows, label, 3, mixed, pair) == pytest.approx(np.array([first / second]), abs=1e-4)


def test_a_stranger_is_not_ambiguous() -> None:
    kinds = ProblemKinds(ambiguous=np.array([2.0, 2.0, 0.5]), no_class=np.array([2.0, 0.5, 0.5]))
    assert kinds.names(np.zeros(3, dtype=bool)).tolist() == ["no class", "ambiguous", ""]
    assert kinds.counts(np.zeros(3, dtype=int)) == {"ambiguous": 1, "no class": 1}
