"""The recipes that come with the package say what the paper and its code say, and lead to runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from mslg.data.augmentation import Augment
from mslg.data.make_splits import clean_from_test, make_splits
from mslg.data.readers import DATASETS
from mslg.data.source import make_source
from mslg.data.splits import Splits
from mslg.fitting.fit import fit_settings
from mslg.fitting.prepare import build_method
from mslg.methods.mslg.paper import paper_settings, published_beta
from mslg.networks import NETWORKS
from mslg.noise import NOISES
from mslg.runs.recipes import load_recipe, merged, recipes, sweeps
from mslg.runs.run_data import open_run_data
from mslg.runs.settings import Named, Settings
from mslg.training.method import Task
from mslg.training.optimizers import OPTIMIZERS, optimizer_factory
from mslg.training.schedules import schedule


class Told(NamedTuple):
    """What the paper or its code says. `rates` are learning rates from an epoch on, at both sides of each change."""

    alpha: float
    beta: float
    reduction: Literal["batch", "element"]
    classes: int
    clean: int | str
    warm_up: int = 1
    test: int | None = None
    epochs: int = 10
    batch_size: int = 32
    augment: tuple[str, ...] = ("normalise-imagenet",)
    rates: Mapping[int, float] = MappingProxyType({0: 1e-3, 4: 1e-3, 5: 1e-4, 9: 1e-4})


CIFAR10: dict[str, Any] = {"classes": 10, "warm_up": 44, "test": 5000, "epochs": 120, "batch_size": 128}
FLIPS = ("flip", "vertical-flip", "crop-4")
TOLD = {
    "cifar10-published": Told(
        *(0.5, 4000, "batch"),
        clean=5000,
        augment=FLIPS,
        rates={0: 1e-2, 39: 1e-2, 40: 1e-3, 79: 1e-3, 80: 1e-4, 119: 1e-4},
        **CIFAR10,
    ),
    "cifar10-released": Told(
        *(0.5, 4000, "element"),
        clean=4000,
        augment=(*FLIPS, "normalise-0.5"),
        rates={0: 1e-2, 40: 1e-2, 41: 1e-3, 80: 1e-3, 81: 1e-4, 119: 1e-4},
        **CIFAR10,
    ),
    "clothing1m-published": Told(0.1, 100, "batch", 14, "clean-val"),
    "clothing1m-released": Told(0.5, 1500, "element", 14, "clean-val"),
    "food101n-published": Told(0.5, 1500, "batch", 101, 15000),
    "food101n-released": Told(0.5, 1500, "element", 101, 10000),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_recipe_holds_the_papers_numbers(name: str) -> None:
    recipe, told = load_recipe(name), TOLD[name]
    train, method = recipe["train"], recipe["method"]
    assert (train["epochs"], train["batch_size"], tuple(train["augment"])) == (
        told.epochs,
        told.batch_size,
        told.augment,
    )
    assert (train["optimizer"], train["weight_decay"], train["hold_out"]) == ("sgd", 1e-4, False)
    assert recipe["data"]["source"] == name.rpartition("-")[0]
    assert (recipe["data"]["clean"], recipe["data"].get("test")) == (told.clean, told.test)
    size = told.batch_size
    scaled = paper_settings(told.alpha, told.beta, batch_size=size, classes=told.classes, reduction=told.reduction)
    assert {key: method[key] for key in scaled} == pytest.approx(scaled, rel=1e-12)
    for epoch, rate in told.rates.items():
        factor = schedule(train["schedule"])(epoch / train["epochs"])
        assert train["learning_rate"] * factor == pytest.approx(rate), epoch
    form = {"prior": "given", "start": 10.0, "entropy_weight": 1.0, "loss": "reverse-kl"}
    others = {"name": "mslg", "warm_up": told.warm_up, **form}
    assert {key: value for key, value in method.items() if key not in scaled} == others


@pytest.mark.parametrize("name", sorted(set(recipes()) - set(sweeps())))
def test_every_recipe_leads_to_a_method(name: str) -> None:
    recipe = load_recipe(name)
    train, method = recipe["train"], dict(recipe["method"])
    assert recipe["data"]["source"] in DATASETS
    assert recipe["data"].get("noise", "uniform") in NOISES
    assert recipe["network"]["name"].partition(":")[0] in [*NETWORKS, "torchvision"]
    assert train.get("optimizer", "sgd") in OPTIMIZERS
    Augment.parse(train.get("augment"))
    task = Task(torch.tensor([0, 1]), 2, lambda: nn.Linear(2, 2), train["epochs"], train["batch_size"])
    data = make_splits(make_source(np.eye(2), [0, 1]), make_source(np.eye(2) + 5, [0, 1]))
    learner: Any = build_method(Named.of(method), task, data)
    if "warm_up" in method:
        assert learner.first_label_epoch == method["warm_up"]
    optimizer = optimizer_factory("sgd", learning_rate=1.0, weight_decay=1e-4)(nn.Linear(2, 2).parameters())
    assert optimizer.defaults["momentum"] == 0.9


def test_the_published_beta_depends_on_the_noise() -> None:
    expected = {20: 4000, 40: 4000, 60: 2000, 80: 400}
    assert {rate: published_beta("uniform", rate / 100) for rate in expected} == expected
    for kind in ("feature-dependent", "feature-dependent-released"):
        assert [published_beta(kind, rate) for rate in (0.2, 0.4, 0.6, 0.8)] == [4000] * 4
    with pytest.raises(ValueError, match=r"no β is published for uniform noise at a rate of 0.5; there is one for 0.2"):
        published_beta("uniform", 0.5)
    with pytest.raises(ValueError, match=r"unknown noise with a published β 'unifrom'. Did you mean 'uniform'"):
        published_beta("unifrom", 0.4)


def test_a_clean_set_cut_from_the_test_set_leaves_the_rest_for_the_test() -> None:
    test = make_source(np.arange(100.0)[:, None], np.arange(100) % 4, ids=[f"t{i}" for i in range(100)])
    clean, rest = clean_from_test(test, 40, None, seed=3)
    assert (len(clean), len(rest)) == (40, 60)
    assert set(clean.ids) | set(rest.ids) == set(test.ids)
    assert torch.bincount(clean.label).tolist() == [10] * 4
    (inputs,) = clean.store.batches([torch.arange(40)])
    assert [f"t{int(value)}" for value in inputs.flatten()] == list(clean.ids)
    clean, rest = clean_from_test(test, 40, 20, seed=3)
    assert len(rest) == 20
    assert not set(clean.ids) & set(rest.ids)
    with pytest.raises(ValueError, match="80 clean and 30 test samples were requested from a test set of 100"):
        clean_from_test(test, 80, 30, seed=0)


def test_the_papers_protocol_runs_from_settings(tmp_path: Path) -> None:
    settings: dict[str, dict[str, Any]] = {
        "data": {"source": "digits", "noise": "uniform", "rate": 0.4, "clean": 200, "clean_from": "test", "test": 250},
        "network": {"name": "mlp", "hidden": [16]},
        "method": {"name": "mslg", "warm_up": 1},
        "train": {"epochs": 2, "batch_size": 128, "hold_out": False, "augment": ["crop-1", "normalise-0.5"]},
    }
    result = fit_settings(settings, output=tmp_path / "run", progress=False)
    assert result.summary["training_samples"] == 1300
    assert result.summary["clean_samples"] == {"meta": 200, "select": 0, "report": 0}
    again = load_recipe(str(tmp_path / "run" / "config.toml"))
    assert again["data"] == {**settings["data"], "reveal_noise": True}
    resumed = fit_settings(again, output=tmp_path / "run", progress=False, resume=True)
    assert resumed.summary["last"] == result.summary["last"]
    wrong = {**settings, "data": {**settings["data"], "clean": "auto"}}
    with pytest.raises(ValueError, match="needs a number of clean samples and data with a test set"):
        fit_settings(wrong, progress=False)


def settings_of_a_choice(**data: Any) -> dict[str, dict[str, Any]]:
    common = {"source": "digits", "noise": "uniform", "rate": 0.4, "clean": 200}
    return {
        "data": {**common, "test_from": "train", "test": 250, **data},
        "network": {"name": "mlp", "hidden": [16]},
        "method": {"name": "cross-entropy"},
        "train": {"epochs": 2, "batch_size": 128, "seed": 7},
    }


def test_settings_can_be_chosen_on_a_part_of_the_training_set(tmp_path: Path) -> None:
    chosen = open_run_data(Settings.of(settings_of_a_choice()))[1]
    real = open_run_data(Settings.of(settings_of_a_choice(test_from=None, test=None)))[1].train
    assert chosen.test is not None
    assert real.true_label is not None
    assert (len(chosen.train), len(chosen.test)) == (len(real) - 250, 250)
    assert torch.bincount(chosen.test.label).tolist() == [25] * 10
    assert set(chosen.test.ids) <= set(real.ids), "none of the real test set"
    assert not set(chosen.test.ids) & set(chosen.train.ids)
    place = torch.tensor([real.ids.index(name) for name in chosen.test.ids])
    assert torch.equal(chosen.test.label, real.true_label[place]), "noise is in the training labels only"
    result = fit_settings(settings_of_a_choice(), output=tmp_path / "run", progress=False)
    assert result.summary["training_samples"] == len(real) - 250 - 200
    again = load_recipe(str(tmp_path / "run" / "config.toml"))
    assert again["data"] == {**settings_of_a_choice()["data"], "reveal_noise": True}


def test_a_part_of_the_test_set_is_the_same_for_every_seed(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "data.npz",
        X=np.arange(120.0)[:, None],
        y=np.arange(120) % 3,
        X_test=np.arange(200.0, 260.0)[:, None],
        y_test=np.arange(60) % 3,
    )
    data = {"source": str(tmp_path / "data.npz"), "test_from": "test", "test": 12}
    parts = [open_run_data(Settings.of({"data": data, "train": {"seed": seed}}))[1].test for seed in (0, 1)]
    assert parts[0] is not None
    assert parts[1] is not None
    assert parts[0].ids == parts[1].ids
    assert torch.bincount(parts[0].label).tolist() == [4] * 3
    (inputs,) = parts[0].store.batches([torch.arange(12)])
    assert int(inputs.min()) >= 200


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"test_from": "trian"}, r"unknown place to take test samples from 'trian'\. Did you mean 'train'"),
        ({"test": None}, 'test_from = "train" needs the number of test samples; give test = N'),
        ({"test": 100_000}, "100000 test samples were requested; from 1 to"),
        ({"clean_from": "test"}, "test_from and clean_from both say where the test samples come from"),
    ],
)
def test_a_mistake_in_where_test_samples_come_from_is_told(data: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        fit_settings(settings_of_a_choice(**data), progress=False)


def shares(clean: list[int], noisy: list[int]) -> Splits:
    def make(counts: list[int], start: float) -> Any:
        labels = np.repeat(np.arange(len(counts)), counts)
        classes = [str(c) for c in range(len(counts))]
        return make_source(start + np.arange(len(labels), dtype=np.float32)[:, None], labels, classes=classes)

    return make_splits(make(noisy, 0), make(clean, 10_000))


def test_a_clean_set_with_other_class_shares_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    shares([50, 50, 50], [800, 100, 100])
    assert "class shares differ from the noisy set's by 47 % (most of all '0': 33 % of the clean, 80 %" in caplog.text
    assert "look at the macro accuracy" in caplog.text


@pytest.mark.parametrize(
    ("clean", "noisy"),
    [([40, 30, 30], [300, 300, 400]), ([3, 1, 2, 0, 1, 3, 1, 1, 0, 0], [100] * 10)],
    ids=["nearly the same", "as chance draws few samples"],
)
def test_class_shares_that_chance_explains_are_no_warning(
    clean: list[int], noisy: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    shares(clean, noisy)
    assert "class shares" not in caplog.text


@pytest.mark.parametrize("noise", ["uniform", "feature-dependent"])
@pytest.mark.parametrize("rate", [0.2, 0.4, 0.6, 0.8])
def test_the_published_label_rate_follows_the_noise(noise: str, rate: float) -> None:
    method = load_recipe("cifar10-published", noise=noise, rate=rate)["method"]
    expected = paper_settings(0.5, published_beta(noise, rate), batch_size=128, classes=10)
    assert method["label_rate"] == pytest.approx(expected["label_rate"])
    assert method["look_ahead"] == expected["look_ahead"]


def test_a_name_that_changes_nothing_keeps_the_settings_before_it() -> None:
    rate = {"method": {"label_rate": 1.0}}
    assert merged(rate, {"method": {"name": "cross-fitted"}})["method"] == {"name": "cross-fitted", "label_rate": 1.0}
    assert merged(rate, {"method": {"name": "elr"}})["method"] == {"name": "elr"}
    sizes = {"network": {"hidden": [8]}}
    named: dict[str, dict[str, Any]] = {"network": {"name": "mlp"}}
    assert merged(sizes, named)["network"] == {"name": "mlp", "hidden": [8]}
    assert merged(sizes, named, named)["network"] == {"name": "mlp", "hidden": [8]}
    assert merged(sizes, named, {"network": {"name": "cnn"}})["network"] == {"name": "cnn"}


def test_a_number_of_test_samples_alone_is_an_error() -> None:
    settings = merged({"data": {"source": "digits", "clean": 100, "test": 50}})
    with pytest.raises(ValueError, match=r"test = 50 says how many.*clean_from = \"test\".*test_from = \"train\""):
        fit_settings(settings, progress=False)
