"""What a recipe tells the methods of the noise that it makes, and a part of the training samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mslg.data.open import subset, subset_index
from mslg.fitting.fit import fit_settings
from mslg.runs.open_data import open_data


def settings(method: dict[str, Any], **data: Any) -> dict[str, dict[str, Any]]:
    return {
        "data": {"source": "digits", "noise": "uniform", "rate": 0.4, "clean": 200, **data},
        "noise": {"fill": True},
        "network": {"name": "mlp", "hidden": [16]},
        "method": method,
        "train": {"epochs": 3, "batch_size": 128},
    }


def run(method: dict[str, Any], **data: Any) -> Any:
    return fit_settings(settings(method, **data), progress=False)


def test_methods_are_told_the_noise_unless_the_recipe_says_otherwise() -> None:
    told = run({"name": "co-teaching"})
    assert told.method.forget_rate == told.method.task.noise_rate == pytest.approx(0.4, abs=0.01)
    assert told.method.task.transition is not None
    alone = run({"name": "co-teaching"}, reveal_noise=False)
    assert alone.method.task.noise_rate is None
    assert alone.method.task.transition is None
    given, verified = alone.method.task.pairs
    assert len(given) == 120  # of 200: what is held out for the evaluation stays unseen
    assert alone.method.forget_rate == pytest.approx(float((given != verified).float().mean()))
    assert 0.25 < alone.method.forget_rate < 0.55


def test_without_noise_and_without_being_told_the_rate_is_found_to_be_zero() -> None:
    assert run({"name": "co-teaching"}, reveal_noise=False, rate=0.0).method.forget_rate == 0


def test_who_is_told_nothing_counts_the_matrix() -> None:
    known = run({"name": "forward"}).method
    counted = run({"name": "forward", "matrix": "pairs"}, reveal_noise=False).method
    assert torch.equal(known.transition, known.task.transition)
    assert 0.01 < (counted.transition - known.transition).abs().max() < 0.1
    both = run({"name": "forward", "matrix": "pairs"}).method  # a matrix that is known is not used against the settings
    assert torch.equal(both.transition, counted.transition)
    with pytest.raises(ValueError, match="needs the noise's transition matrix and the task has none"):
        run({"name": "forward"}, reveal_noise=False)


def test_without_pairs_the_rate_has_to_be_told() -> None:
    with pytest.raises(ValueError, match=r"co-teaching needs the noise rate; pass noise_rate= \(--noise-rate\)"):
        run({"name": "co-teaching"}, reveal_noise=False, clean=None)
    with pytest.raises(ValueError, match="reveal_noise is 'no'; it must be true or false"):
        run({"name": "co-teaching"}, reveal_noise="no")


def test_a_part_of_the_training_samples_is_the_same_for_every_seed(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", X=np.arange(60.0)[:, None], y=np.arange(60) % 3)
    told = {"source": str(tmp_path / "data.npz"), "subset": 12, "noise": "uniform", "rate": 0.5}
    one, other = (open_data(told, seed=seed).train for seed in (0, 1))
    assert one.ids == other.ids
    assert not torch.equal(one.label, other.label)


def test_a_part_of_the_training_samples_is_taken_before_the_noise() -> None:
    one = open_data(settings({}, subset=300)["data"], seed=0)
    whole = open_data({"source": "digits"}, seed=0).train
    assert set(one.train.ids) < set(whole.ids)
    assert one.train.true_label is not None
    assert torch.bincount(one.train.true_label).tolist() == [30] * 10
    assert one.noise_rate == pytest.approx(0.3)  # 9 of 30 a class: rounded down in the part, not in the whole
    assert one.test is not None
    place = {name: position for position, name in enumerate(whole.ids)}
    (mine,) = one.train.store.batches([torch.arange(300)])
    (theirs,) = whole.store.batches([torch.tensor([place[name] for name in one.train.ids])])
    assert torch.equal(mine, theirs)
    assert subset(whole, 300).ids == one.train.ids


def test_noise_that_has_a_row_per_sample_has_those_of_the_part(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    probabilities = random.dirichlet(np.ones(3), size=60).astype(np.float32)
    np.savez(tmp_path / "data.npz", X=np.arange(60.0)[:, None], y=np.arange(60) % 3)
    np.save(tmp_path / "student.npy", probabilities)
    told = {"source": str(tmp_path / "data.npz"), "subset": 12, "noise": "feature-dependent-released", "rate": 0.5}
    whole = open_data(told, noise_settings={"probabilities": str(tmp_path / "student.npy")}).train
    kept = subset_index(open_data({"source": told["source"]}).train, 12).numpy()
    part = open_data(told, noise_settings={"probabilities": probabilities[kept]}).train
    assert torch.equal(whole.label, part.label)
    assert not torch.equal(whole.label, open_data({**told, "noise": None}).train.label)


@pytest.mark.parametrize("count", [1, 1301, 0.5])
def test_a_part_must_be_a_number_of_samples(count: Any) -> None:
    with pytest.raises(ValueError, match=f"subset is {count}; it must be a number of training samples, from 2 to 1300"):
        open_data({"source": "digits", "subset": count})


def test_a_run_on_a_part() -> None:
    result = run({"name": "mslg"}, subset=500)
    assert result.summary["training_samples"] == 300
