"""What is done with image files if nothing was asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mslg.data.open import open_named
from mslg.data.readers.options import Reading
from mslg.data.source import Source, make_source
from mslg.networks.build import network_factory
from mslg.networks.packaged import packaged_backbone
from mslg.runs import image_default, run_data
from mslg.runs.image_default import with_image_default
from mslg.runs.settings import Data, Named, Settings, Train
from tests.support import trees

INSTALLED = "packaged:efficientnet-lite0"


@pytest.fixture
def photos(tmp_path: Path) -> Source:
    trees.image_folder(tmp_path / "photos", each=2)
    return open_named(str(tmp_path / "photos"), reading=Reading(size=64)).train


@pytest.fixture(params=[True, False])
def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(image_default, "packaged_backbone", lambda: INSTALLED if request.param else None)
    return bool(request.param)


def test_photos_are_judged_by_frozen_features_or_a_small_network(
    photos: Source, installed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = with_image_default(Settings(), photos, "cpu")
    if installed:
        head = Named("mlp", arguments={"dropout": 0.5})  # which memorises less
        assert chosen == Settings(data=Data(features=INSTALLED), network=head, train=Train(weight_decay=1e-2))
        assert not caplog.text
    else:
        assert chosen.network == Named("cnn8", arguments={"width": 16})
        assert (chosen.data.size, chosen.train.epochs) == (48, 12)
        assert "no pretrained backbone is installed" in caplog.text
        assert "pip install 'mslg[backbone]'" in caplog.text


def test_pixels_can_be_asked_for(photos: Source, installed: bool, caplog: pytest.LogCaptureFixture) -> None:
    chosen = with_image_default(Settings(data=Data(features="none")), photos, "cpu")
    assert chosen.data.features is None
    assert chosen.network.name == "cnn8"
    assert not caplog.text


def test_pixels_can_be_asked_for_with_a_network(photos: Source, installed: bool) -> None:
    settings = Settings(data=Data(features="none"), network=Named("mlp"))
    assert with_image_default(settings, photos, "cpu") == Settings(network=Named("mlp"))


def test_with_a_gpu_the_backbone_is_fine_tuned(photos: Source, installed: bool) -> None:
    chosen = with_image_default(Settings(), photos, "cuda")
    if installed:
        assert chosen.network == Named(INSTALLED, arguments={"weights": "DEFAULT"})
        assert chosen.train.augment == ["flip", "resize-128", "centre-128", "normalise-0.5"]
        assert chosen.train.learning_rate == 0.01


@pytest.mark.parametrize(
    "asked",
    [
        Settings(network=Named("mlp")),
        Settings(network=Named(None, arguments={"width": 4})),
        Settings(data=Data(features="cnn8")),
        Settings(train=Train(augment=["flip"])),
        Settings(train=Train(from_run="runs/first")),
    ],
)
def test_what_was_asked_for_is_not_changed(photos: Source, installed: bool, asked: Settings) -> None:
    assert with_image_default(asked, photos, "cpu") == asked


def test_other_data_is_not_changed(installed: bool) -> None:
    arrays = make_source(torch.rand(4, 3, 32, 32).numpy(), [0, 1, 0, 1])
    assert with_image_default(Settings(), arrays, "cpu") == Settings()


@pytest.mark.skipif(packaged_backbone() is None, reason="the packaged backbone is not installed")
def test_the_packaged_backbone_has_its_weights_and_a_head_for_the_classes(photos: Source) -> None:
    torch.manual_seed(0)
    trained = network_factory(INSTALLED, photos, weights="DEFAULT")().eval()
    untrained = network_factory(INSTALLED, photos)().eval()
    images = next(iter(photos.store.batches([torch.arange(2)])))
    assert trained(images).shape == (2, len(photos.classes))
    stem = "_conv_stem.weight"
    assert not torch.equal(trained.state_dict()[stem], untrained.state_dict()[stem])
    again = network_factory(INSTALLED, photos, weights="DEFAULT")()
    assert torch.equal(trained.state_dict()[stem], again.state_dict()[stem])
    with pytest.raises(ValueError, match="packaged has no network 'efficientnet-lite9'"):
        network_factory("packaged:efficientnet-lite9", photos)
    with pytest.raises(ValueError, match="has no weights 'best'"):
        network_factory(INSTALLED, replace(photos), weights="best")()


def test_missing_clean_samples_are_said_before_features_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees.image_folder(tmp_path / "photos", each=2)
    monkeypatch.setattr(run_data, "extract", lambda *_, **__: pytest.fail("features were computed"))
    settings = Settings(data=Data(source=str(tmp_path / "photos"), features="mlp"))
    with pytest.raises(ValueError, match=r"needs clean samples and there are none; .*mslg start DATA"):
        run_data.open_run_data(settings)
