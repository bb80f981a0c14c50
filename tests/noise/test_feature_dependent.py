"""Noise from a network's view: the fixed ranking, its students, and the published artefact."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mslg.noise.feature_dependent import feature_dependent
from mslg.noise.feature_dependent_released import feature_dependent_released, student_probabilities
from mslg.noise.teacher import Distillation, cached_probabilities, cross_fit

PLACE = os.environ.get("MSLG_TEST_DATA")
released = pytest.mark.skipif(PLACE is None, reason="MSLG_TEST_DATA names no folder with the released probabilities")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def example(seed: int, samples: int = 60, classes: int = 4) -> tuple[Tensor, np.ndarray[Any, Any]]:
    label = torch.as_tensor(rng(seed).integers(0, classes, samples))
    return label, rng(seed + 1).dirichlet(np.full(classes, 0.4), samples)


@given(seed=st.integers(0, 500), rate=st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_the_ranking_is_that_of_a_loop_over_samples(seed: int, rate: float) -> None:
    label, known = example(seed)
    scores = []
    for i, own in enumerate(label.tolist()):
        best = max((c for c in range(4) if c != own), key=lambda c: known[i, c])
        scores.append((np.log(known[i, best]) - np.log(known[i, own]), i, best))
    expected = label.clone()
    for _, i, best in sorted(scores, reverse=True)[: int(rate * 60 + 1e-9)]:
        expected[i] = best
    found = feature_dependent(label, rate, rng(), classes=4, probabilities=known)
    assert torch.equal(found.label, expected)
    top_two = torch.as_tensor(np.argsort(-known, axis=1)[:, :2].copy())
    moved = found.label != label
    assert bool((found.label[:, None] == top_two).any(1)[moved].all())


def test_mistaken_samples_go_first_and_to_the_class_they_are_taken_for() -> None:
    label = torch.tensor([0, 0, 0, 0])
    known = np.array([[0.1, 0.8, 0.1], [0.4, 0.15, 0.45], [0.5, 0.1, 0.4], [0.8, 0.15, 0.05]])
    expected = {0.25: [1, 0, 0, 0], 0.5: [1, 2, 0, 0], 0.75: [1, 2, 2, 0], 1.0: [1, 2, 2, 1]}
    for rate, given_labels in expected.items():
        for make in (feature_dependent, feature_dependent_released):
            assert make(label, rate, rng(), classes=3, probabilities=known).label.tolist() == given_labels


def test_a_margin_that_float32_cannot_see_still_ranks() -> None:
    label = torch.zeros(40, dtype=torch.int64)
    second = 1e-12 * (1 + np.arange(40))
    known = np.stack([1 - 3 * second, second, 2 * second], axis=1)
    found = feature_dependent(label, 0.5, rng(), classes=3, probabilities=known)
    assert (found.label != 0).tolist() == [False] * 20 + [True] * 20
    assert found.label.unique().tolist() == [0, 2]


def test_ties_are_broken_by_the_seed_and_to_all_classes_alike() -> None:
    label = torch.zeros(900, dtype=torch.int64)
    known = np.tile([0.7, 0.1, 0.1, 0.1], (900, 1))
    found = feature_dependent(label, 1.0, rng(), classes=4, probabilities=known)
    assert torch.bincount(found.label, minlength=4)[1:].tolist() == pytest.approx([300] * 3, abs=60)
    half = [feature_dependent(label, 0.5, rng(seed), classes=4, probabilities=known).label != 0 for seed in (0, 1)]
    assert not torch.equal(*half), "which of equal samples change is drawn too"
    published = feature_dependent_released(label, 1.0, rng(), classes=4, probabilities=known)
    assert published.label.unique().tolist() == [3], "the last of equals wins"
    last = feature_dependent_released(label, 0.5, rng(), classes=4, probabilities=known)
    assert (last.label != 0).tolist() == [False] * 450 + [True] * 450


def test_where_all_other_classes_are_impossible_any_of_them_may_come() -> None:
    label = torch.arange(3).repeat(200)
    for make in (feature_dependent, feature_dependent_released):
        found = make(label, 1.0, rng(), classes=3, probabilities=np.eye(3)[label])
        assert found.rate == 1
        off = found.realised[~torch.eye(3, dtype=torch.bool)]
        assert off.tolist() == pytest.approx([0.5] * 6, abs=0.12)


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        (np.zeros((3, 2)), r"have the shape \(3, 2\); these labels need \(4, 2\)"),
        (np.array([[0.5, 0.5], [3.0, -1.0], [1, 0], [1, 0]]), r"sample 1 have the sum 2 and the minimum -1 \(1 such"),
        (np.full((4, 2), np.inf), "NaN or infinite"),
        (np.array([["a", "b"]] * 4), "must be numeric"),
    ],
)
def test_what_is_no_probability_is_refused(probabilities: Any, message: str) -> None:
    for make in (feature_dependent, feature_dependent_released):
        with pytest.raises((ValueError, TypeError), match=message):
            make(torch.tensor([0, 1, 0, 1]), 0.5, rng(), classes=2, probabilities=probabilities)


def test_probabilities_and_training_together_are_refused() -> None:
    label, known = example(0)
    with pytest.raises(ValueError, match="no network is trained if probabilities are passed"):
        feature_dependent(label, 0.5, rng(), classes=4, probabilities=known, inputs=torch.zeros(60, 2))
    with pytest.raises(ValueError, match="no network is trained if probabilities are passed"):
        feature_dependent(label, 0.5, rng(), classes=4, probabilities=known, epochs=3)


class Memory(nn.Module):
    """Remembers which samples it was trained on, by their first number, and says so in its logits when asked."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)
        self.own: set[int] = set()
        self.asked: set[int] = set()
        MEMORIES.append(self)

    def forward(self, rows: Tensor) -> Tensor:
        (self.own if self.training else self.asked).update(rows[:, 0].int().tolist())
        logits: Tensor = self.head(rows / 100)
        return logits


MEMORIES: list[Memory] = []


def test_no_sample_is_judged_by_a_network_that_trained_on_it() -> None:
    MEMORIES.clear()
    rows = torch.stack([torch.arange(31.0), torch.arange(31.0) % 2], 1)
    label = torch.arange(31) % 2
    found = cross_fit(Distillation(folds=3, epochs=2), Memory, rows, label, 2, torch.device("cpu"))
    assert found.sum(1).tolist() == pytest.approx([1] * 31)
    judged: set[int] = set()
    for teacher, student in zip(MEMORIES[::2], MEMORIES[1::2], strict=True):
        assert teacher.own == teacher.asked == student.own, "the teacher's view is learned on its own samples"
        assert not student.asked & (student.own | teacher.own)
        judged |= student.asked
    assert judged == set(range(31))


def blobs() -> tuple[Tensor, Tensor]:
    label = torch.arange(3).repeat(60)
    centres = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 9.0]])
    return centres[label] + torch.as_tensor(rng(5).normal(size=(180, 2)).astype(np.float32)), label


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 3))


def test_students_find_the_look_alikes_and_are_kept_in_a_file(tmp_path: Path) -> None:
    points, label = blobs()
    cache = tmp_path / "students.npz"
    options: dict[str, Any] = {"classes": 3, "inputs": points, "network": network, "epochs": 30, "learning_rate": 0.01}
    found = feature_dependent(label, 0.2, rng(), **options)
    assert int((found.label != label).sum()) == 36
    assert found.realised[0, 1] + found.realised[1, 0] > 4 * (found.realised[2].sum() - found.realised[2, 2])
    state = torch.get_rng_state()
    first = feature_dependent(label, 0.2, rng(), **options, cache=cache)
    assert torch.equal(state, torch.get_rng_state()), "nothing is drawn from the global generator"
    made = []
    options["network"] = lambda: made.append(1) or network()
    again = feature_dependent(label, 0.2, rng(), **options, cache=cache)
    assert len(made) == 1, "one network to compare with the file's, none to train"
    assert torch.equal(found.label, first.label)
    assert torch.equal(found.label, again.label)
    with np.load(cache) as file:
        assert file["probabilities"].shape == (180, 3)
        assert file["label"].tolist() == label.tolist()
    with pytest.raises(ValueError, match="was made with other values of temperature; delete it"):
        feature_dependent(label, 0.2, rng(), **options, cache=cache, temperature=2.0)
    with pytest.raises(ValueError, match="was made with other values of data; delete it"):
        feature_dependent(label.roll(1), 0.2, rng(), **options, cache=cache)
    (tmp_path / "other.npz").write_text("no archive")
    with pytest.raises(ValueError, match="is not a cache of student probabilities"):
        feature_dependent(label, 0.2, rng(), **options, cache=tmp_path / "other.npz")


def test_bad_settings_of_students_are_all_named() -> None:
    points, label = blobs()
    with pytest.raises(ValueError, match=r"folds=1.*temperature=0.*hard_share=2"):
        feature_dependent(
            label, 0.2, rng(), classes=3, inputs=points, network=network, folds=1, temperature=0, hard_share=2
        )
    with pytest.raises(ValueError, match=r"there are \[180\] inputs for 179 labels"):
        feature_dependent(label[1:], 0.2, rng(), classes=3, inputs=points, network=network)


def test_the_logarithm_undoes_a_second_softmax() -> None:
    known = rng().dirichlet(np.ones(5), 50)
    squeezed = np.exp(known) / np.exp(known).sum(1, keepdims=True)
    assert np.allclose(student_probabilities(squeezed), known, atol=1e-12)


@released
def test_the_released_probabilities_give_the_published_noise() -> None:
    folder = Path(str(PLACE))
    label = torch.as_tensor(np.load(folder / "cifar10_train_labels.npy").astype(np.int64))
    path = folder / "cifar10_student_probs.npy"
    kept = {}
    for rate in (0.2, 0.4, 0.6, 0.8):
        found = feature_dependent_released(label, rate, rng(), classes=10, probabilities=path)
        assert found.rate == rate
        kept[rate] = int((found.realised.argmax(1) == torch.arange(10)).sum())
        fixed = feature_dependent(label, rate, rng(), classes=10, probabilities=student_probabilities(np.load(path)))
        assert fixed.rate == rate
    assert kept == {0.2: 10, 0.4: 9, 0.6: 6, 0.8: 0}
    to = torch.bincount(found.label[found.label != label], minlength=10)
    assert to[9] == pytest.approx(20184, abs=50), "half of the wrong labels at 80 % are trucks"


def test_of_several_that_need_the_same_file_one_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points, label = blobs()
    trained = []

    def slow(*_: Any) -> np.ndarray[Any, Any]:
        trained.append(1)
        time.sleep(0.3)
        return np.full((180, 3), 1 / 3)

    monkeypatch.setattr("mslg.noise.teacher.cross_fit", slow)
    path = tmp_path / "new" / "students.npz"
    with ThreadPoolExecutor(3) as pool:
        waiting = [
            pool.submit(cached_probabilities, path, Distillation(), nn.Identity, points, label, 3, torch.device("cpu"))
            for _ in range(3)
        ]
        found = [each.result() for each in waiting]
    assert len(trained) == 1
    assert all((each == 1 / 3).all() for each in found)
