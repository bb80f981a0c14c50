"""Noise that looks at the inputs: clusters with one label each, and flip rates of each sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mslg.noise.instance_dependent import instance_dependent, transition_rows
from mslg.noise.locally_concentrated import clusters_of, locally_concentrated


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(rate=st.floats(0, 1), seed=st.integers(0, 99), clusters=st.integers(1, 25))
@settings(max_examples=20, deadline=None)
def test_each_cluster_of_a_class_has_one_label(rate: float, seed: int, clusters: int) -> None:
    label = rng(seed).integers(0, 3, 80)
    points = rng(seed + 1).normal(size=(80, 4)).astype(np.float32)
    # The clusters are the first thing drawn, so the same seed shows them.
    cluster = clusters_of(points, label, 3, clusters, rng(seed))
    found = locally_concentrated(
        torch.as_tensor(label), rate, rng(seed), classes=3, inputs=torch.as_tensor(points), clusters=clusters
    ).label.numpy()
    for own in range(3):
        mine = label == own
        sizes = []
        for number in np.unique(cluster[mine]):
            inside = mine & (cluster == number)
            assert len(set(found[inside])) == 1
            sizes.append(inside.sum())
        moved, budget = int((found[mine] != own).sum()), round(rate * mine.sum())
        assert moved <= budget or moved == min(sizes)
        assert (moved == 0) == (budget == 0)


def test_locally_concentrated_noise_comes_close_to_the_rate() -> None:
    label = torch.arange(4).repeat(1000)
    points = torch.as_tensor(rng().normal(size=(4000, 8)).astype(np.float32))
    found = locally_concentrated(label, 0.35, rng(), classes=4, features=points)
    assert 0.34 < found.rate <= 0.35
    assert torch.equal(
        found.label,
        locally_concentrated(label, 0.35, rng(), classes=4, inputs={"a": points[:, :3], "b": points[:, 3:]}).label,
    ), "the parts of the inputs count side by side"


def test_clustering_takes_inputs_or_features_and_says_so() -> None:
    points = torch.zeros(4, 2)
    with pytest.raises(ValueError, match="got neither: pass inputs, or features"):
        locally_concentrated(torch.arange(4), 0.5, rng(), classes=4)
    with pytest.raises(ValueError, match="got both: pass inputs, or features"):
        locally_concentrated(torch.arange(4), 0.5, rng(), classes=4, inputs=points, features=points)
    with pytest.raises(ValueError, match="the features have 3 rows for 4 labels"):
        locally_concentrated(torch.arange(4), 0.5, rng(), classes=4, features=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="clusters=0 is not possible"):
        locally_concentrated(torch.arange(4), 0.5, rng(), classes=4, inputs=points, clusters=0)


def example(samples: int) -> dict[str, Any]:
    return {"label": torch.arange(5).repeat(samples // 5), "points": rng(3).random((samples, 6)).astype(np.float32)}


def test_the_rows_of_samples_are_those_of_a_loop() -> None:
    label, points = example(50).values()
    rows = transition_rows(points, label.numpy(), 0.3, rng(), classes=5, input_scale=2.0, spread=0.1)
    again = rng()
    flip = again.normal(0.3, 0.1, 50)
    assert flip.min() > 0, "nothing was truncated in this example"
    views = [again.standard_normal((6, 5), dtype=np.float32) for _ in range(5)]
    for i, own in enumerate(label.tolist()):
        scores = [2.0 * sum(points[i, k] * views[own][k, c] for k in range(6)) for c in range(5)]
        total = sum(np.exp(score) for c, score in enumerate(scores) if c != own)
        for c in range(5):
            expected = 1 - flip[i] if c == own else flip[i] * np.exp(scores[c]) / total
            assert rows[i, c] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("rate", [0.2, 0.3, 0.5])
def test_instance_dependent_noise_has_the_rate_on_average(rate: float) -> None:
    label, points = example(100_000).values()
    found = instance_dependent(label, rate, rng(), classes=5, inputs=torch.as_tensor(points))
    assert found.rate == pytest.approx(rate, abs=0.01)
    assert float(1 - found.nominal.diagonal().mean()) == pytest.approx(rate, abs=0.01)
    assert torch.allclose(found.nominal, found.realised, atol=0.02)


def test_raw_pixels_all_but_decide_the_class_and_small_inputs_do_not() -> None:
    label, points = example(500).values()
    options: dict[str, Any] = {"classes": 5, "spread": 0.0}
    hard = transition_rows(points, label.numpy(), 0.4, rng(), input_scale=255.0, **options)
    soft = transition_rows(points, label.numpy(), 0.4, rng(), input_scale=0.01, **options)
    hard[np.arange(500), label], soft[np.arange(500), label] = 0, 0
    assert np.mean(hard.max(1) > 0.399) > 0.95
    assert soft.max() < 0.11


def test_a_negative_spread_is_refused() -> None:
    with pytest.raises(ValueError, match=r"spread=-0.1 is not possible"):
        instance_dependent(torch.arange(4), 0.5, rng(), classes=4, inputs=torch.zeros(4, 2), spread=-0.1)
