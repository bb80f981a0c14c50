"""A model out of its folder: the same network, with its preparation, whoever made it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import mslg
from mslg.data.batch import call
from mslg.fitting.fit import fit_settings
from mslg.runs.load_model import load_model
from mslg.runs.recipes import merged
from tests.support.blobs import small_network
from tests.support.short_runs import CLEAN, DATA, DIGITS, FAST, NOISY, Parts


def test_a_network_by_name_is_built_again_and_prepares_its_images_itself(tmp_path: Path) -> None:
    result = fit_settings(merged(DIGITS), output=tmp_path, progress=False)
    model = load_model(tmp_path)
    assert model.about["inputs"] == {"shape": [1, 8, 8], "dtype": "float32"}
    assert model.about["prepare"] == ["resize-12", "centre-10", "normalise-0.5"], "what is random is for training"
    assert model.classes == tuple("0123456789")
    assert not model.training
    images = torch.rand(5, 1, 8, 8)
    with torch.no_grad():
        logits = model(images)
        torch.testing.assert_close(logits.log_softmax(1), result.method.predict(as_the_run_does(images)))


def as_the_run_does(images: Tensor) -> Tensor:
    larger = nn.functional.interpolate(images, (12, 12), mode="bilinear", antialias=True)[:, :, 1:11, 1:11]
    return (larger - 0.5) / 0.5


@pytest.mark.parametrize("network", [small_network, small_network()], ids=["a function", "a module"])
def test_an_own_network_is_given_again(network: Any, tmp_path: Path) -> None:
    result = mslg.fit(small_network, NOISY, CLEAN, output=tmp_path, **FAST)
    model = mslg.load_model(tmp_path, network)
    inputs = torch.as_tensor(DATA.test_x)
    with torch.no_grad():
        assert torch.equal(model(inputs), result.model(inputs))


@pytest.mark.parametrize("kind", [tuple, dict])
def test_inputs_of_several_parts(kind: type, tmp_path: Path) -> None:
    def parts(x: np.ndarray) -> Any:
        both = {"left": x[:, :1], "right": x[:, 1:]}
        return both if kind is dict else tuple(both.values())

    result = mslg.fit(Parts, (parts(DATA.x), DATA.given), (parts(DATA.clean_x), DATA.clean_y), output=tmp_path, **FAST)
    model = load_model(tmp_path, Parts)
    example = model.example(3)
    assert type(example) is kind
    with torch.no_grad():
        assert torch.equal(call(model, example), call(result.model, example))


def test_two_networks_that_predict_together(tmp_path: Path) -> None:
    settings = {**FAST, "method": "co-teaching", "noise_rate": 0.3, "ensemble": True}
    result = mslg.fit(small_network, NOISY, CLEAN, output=tmp_path, **settings)
    inputs = torch.as_tensor(DATA.test_x)
    with torch.no_grad():
        assert torch.equal(load_model(tmp_path, small_network)(inputs), result.model(inputs))


def test_functions_that_prepare_images_must_be_told_again(tmp_path: Path) -> None:
    class Normalize:
        def __call__(self, image: Tensor) -> Tensor:
            return (image - 0.5) / 0.5

    def network() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(4, 4))

    images = DATA.x.repeat(2, axis=1).reshape(-1, 1, 2, 2)
    result = mslg.fit(network, (images, DATA.given), augment=[Normalize()], output=tmp_path, **FAST)
    with pytest.raises(
        ValueError, match=r"prepared by functions that its folder cannot hold \(Normalize\); pass prepare"
    ):
        load_model(tmp_path, network)
    example = torch.rand(3, 1, 2, 2)
    with torch.no_grad():
        wanted = result.model((example - 0.5) / 0.5)
        torch.testing.assert_close(load_model(tmp_path, network, prepare="normalise-0.5")(example), wanted)


def test_mistakes(tmp_path: Path) -> None:
    mslg.fit(small_network, NOISY, CLEAN, output=tmp_path / "run", **FAST)
    with pytest.raises(ValueError, match=r"is a Sequential that was made in Python.*pass network="):
        load_model(tmp_path / "run")
    with pytest.raises(ValueError, match=r"the model of .* is a Sequential, and its weights do not fit a Parts"):
        load_model(tmp_path / "run", Parts)
    with pytest.raises(FileNotFoundError, match=r"has no model.safetensors; name the folder of a finished run"):
        load_model(tmp_path)
