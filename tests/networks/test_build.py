"""Networks by name: sizes and heads fitted to the data, weights from files, libraries that may not be there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

from mslg.cli.app import app
from mslg.data.augmentation import Augment
from mslg.data.source import Source, make_source
from mslg.networks.build import default_network, network_factory
from mslg.networks.head import find_head, fit_head
from mslg.networks.weights import read_weights
from mslg.runs.recipes import load_recipe
from tests.support.libraries import timm_or_skip, torchvision_or_skip

HERE = "tests.support.factories"


def images(channels: int = 1, side: int = 8, classes: int = 2, count: int = 6) -> Source:
    pixels = np.random.default_rng(0).random((count, channels, side, side), dtype=np.float32)
    return make_source(pixels, np.arange(count) % classes, classes=[str(c) for c in range(classes)])


def outputs(factory: Callable[[], nn.Module], source: Source) -> int:
    network = factory().eval()
    return int(network(next(iter(source.store.batches([torch.arange(2)])))).shape[1])


@pytest.mark.parametrize("name", ["mlp", f"{HERE}:told", f"{HERE}:thousand", f"{HERE}:ExtraLinear"])
def test_every_kind_of_name_gives_a_network_for_the_classes(name: str) -> None:
    assert outputs(network_factory(name, images()), images()) == 2


def test_settings_go_to_the_factory_and_sizes_come_from_the_data() -> None:
    network = network_factory(f"{HERE}:told", images(channels=3, classes=5), width=7)()
    assert network[0].weight.shape == (7, 3, 3, 3)
    assert find_head(network)[1].out_features == 5


def test_sizes_are_those_after_preparation() -> None:
    factory = network_factory("mlp", images(side=9), augment=Augment.parse("rgb centre-4"))
    assert next(factory().parameters()).shape[1] == 3 * 16
    assert default_network(images()) == "mlp"
    assert default_network(images(), Augment.parse("resize-16")) == "cnn8"


def test_a_head_that_fits_is_left_alone_even_if_another_linear_comes_later() -> None:
    network = network_factory(f"{HERE}:ExtraLinear", images())()
    assert network.projection.out_features == 5  # type: ignore[union-attr]


def test_heads_deep_inside_are_replaced_with_or_without_bias() -> None:
    network = nn.Sequential(
        nn.Linear(4, 4), nn.ModuleDict({"top": nn.Sequential(nn.ReLU(), nn.Linear(4, 9, bias=False))})
    )
    fit_head(network, 3)
    name, head = find_head(network)
    assert name == "1.top.1"
    assert head.weight.shape == (3, 4)
    assert head.bias is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "cnn9",
            r"unknown network 'cnn9'. Did you mean 'cnn8'\? Allowed: mlp, text-mlp, cnn8, resnet18, or torchvision",
        ),
        ("nowhere.at_all:net", "there is no module nowhere.at_all for the network nowhere.at_all:net; write package"),
        (f"{HERE}:tolt", f"has no class or function 'tolt' .* Did you mean '{HERE}:told'"),
        (f"{HERE}:NOT_A_FACTORY", "has no class or function 'NOT_A_FACTORY' for the network"),
        (f"{HERE}:no_network", "returned a int; it must return a torch.nn.Module"),
        (f"{HERE}:no_linear", "Sequential has no Linear layer that could be its head; name the layer with head="),
    ],
)
def test_a_name_that_leads_nowhere_says_what_to_write(name: str, message: str) -> None:
    with pytest.raises((ValueError, TypeError, ImportError), match=message):
        network_factory(name, images())()


def test_a_network_that_does_not_fit_the_inputs_says_so() -> None:
    rows = make_source(np.zeros((4, 5), np.float32), [0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"cnn8 takes images, the inputs have shape \(5,\); take another network"):
        network_factory("cnn8", rows)
    with pytest.raises(ValueError, match=r"ExtraLinear cannot take inputs of shape \(1, 9, 9\)"):
        network_factory(f"{HERE}:ExtraLinear", images(side=9))()
    with pytest.raises(TypeError, match=r"told cannot be called with num_classes=2, in_channels=1, depth=3"):
        network_factory(f"{HERE}:told", images(), depth=3)()


@pytest.mark.parametrize("library", ["torchvision", "timm"])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("operator torchvision::nms does not exist"), r"is installed but does not work \(operator torch"),
        (None, "is not installed; install a build for your torch with: pip install 'mslg"),
    ],
)
def test_a_library_that_fails_at_import_is_as_good_as_not_installed(
    library: str, error: Exception | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(name: str) -> Any:
        raise error or ModuleNotFoundError(f"No module named '{name}'", name=name)

    monkeypatch.setattr("mslg.networks.libraries.import_module", fails)
    with pytest.raises(ImportError, match=f"{library} {message}"):
        network_factory(f"{library}:resnet50", images(channels=3))


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_local_weights_are_loaded_and_a_head_of_another_size_is_drawn_anew(
    ending: str, wrapped: bool, tmp_path: Path
) -> None:
    trained = network_factory(f"{HERE}:told", images(classes=9))()
    state = trained.state_dict()
    path = tmp_path / f"w.{ending}"
    if ending == "safetensors":
        save_file(state, path)
    else:
        parallel = {f"module.{name}": value for name, value in state.items()}
        torch.save({"state_dict": parallel, "epoch": 3} if wrapped else state, path)
    network = network_factory(f"{HERE}:told", images(), weights=str(path))()
    assert torch.equal(network[0].weight, trained[0].weight)  # type: ignore[arg-type]
    assert find_head(network)[1].out_features == 2
    same = network_factory(f"{HERE}:told", images(classes=9), weights=str(path))()
    assert all(torch.equal(value, state[name]) for name, value in same.state_dict().items())


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    save_file(network_factory(f"{HERE}:told", images(), width=5)().state_dict(), tmp_path / "wide.safetensors")
    with pytest.raises(ValueError, match=r"does not fit Sequential: 2 tensors are of another shape \(0.bias"):
        network_factory(f"{HERE}:told", images(), weights=str(tmp_path / "wide.safetensors"))()
    save_file({"0.weight": torch.zeros(4, 1, 3, 3)}, tmp_path / "part.safetensors")
    with pytest.raises(ValueError, match=r"1 tensors are missing \(0.bias\); pass weights that were saved from this"):
        network_factory(f"{HERE}:told", images(), weights=str(tmp_path / "part.safetensors"))()
    with pytest.raises(FileNotFoundError, match=r"there is no file of weights nothing.pt"):
        network_factory("mlp", images(), weights="nothing.pt")


def test_a_pickled_model_is_refused(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"whole pickled models are refused, as reading them would run code"):
        read_weights(tmp_path / "model.pt")
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(ValueError, match="is not a file of plain weights"):
        read_weights(tmp_path / "text.safetensors")


def test_a_factory_in_the_current_folder_fits_and_resumes_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mynet.py").write_text(
        "from torch import nn\n\n"
        "def make(inputs, hidden=8):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 3))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])  # as for the installed command

    def run(*words: str) -> None:
        done = CliRunner().invoke(app, ["fit", "-o", "run", *words])
        assert done.exit_code == 0, done.output + repr(done.exception)

    run(
        *("digits", "--noise", "uniform", "--rate", "0.4", "--clean", "60", "--epochs", "3", "--network", "mynet:make"),
        *("--set", "network.hidden=16", "--augment", "flip crop-1"),
    )
    config = load_recipe("run/config.toml")
    assert config["network"] == {"name": "mynet:make", "hidden": 16}
    assert config["train"]["augment"] == ["flip", "crop-1"]
    before = Path("run/metrics.jsonl").read_bytes()
    Path("run/done").unlink()
    run("--resume", "--trust-code")
    assert Path("run/metrics.jsonl").read_bytes() == before


def test_torchvision_networks_get_a_new_head(tmp_path: Path) -> None:
    torchvision_or_skip()
    source = images(channels=3, side=64, classes=5)
    for name in ("resnet18", "mobilenet_v3_small", "squeezenet1_0"):
        if name == "squeezenet1_0":
            with pytest.raises(ValueError, match="has no Linear layer that could be its head"):
                network_factory(f"torchvision:{name}", source)()
        else:
            assert outputs(network_factory(f"torchvision:{name}", source), source) == 5
    from torchvision import models

    torch.manual_seed(1)
    trained = models.resnet18()
    torch.save(trained.state_dict(), tmp_path / "resnet18.pth")
    network = network_factory("torchvision:resnet18", source, weights=str(tmp_path / "resnet18.pth"))()
    assert torch.equal(network.layer4[1].conv2.weight, trained.layer4[1].conv2.weight)  # type: ignore[index,union-attr]
    with pytest.raises(ValueError, match=r"torchvision has no network 'resnet19'. Did you mean torchvision:resnet1"):
        network_factory("torchvision:resnet19", source)
    with pytest.raises(ValueError, match="has no weights 'IMAGENET'; it has IMAGENET1K_V1 and DEFAULT, or give a file"):
        network_factory("torchvision:resnet18", source, weights="IMAGENET")
    with pytest.raises(ValueError, match=r"takes images of 3 channels, these have 1; .*--augment rgb"):
        network_factory("torchvision:resnet18", images())


def test_timm_networks_fit_classes_and_channels() -> None:
    timm_or_skip()
    source = images(channels=1, side=64, classes=5)
    assert outputs(network_factory("timm:resnet18", source), source) == 5
    with pytest.raises(ValueError, match="timm has no network 'resnet19'"):
        network_factory("timm:resnet19", source)
    with pytest.raises(ValueError, match="give DEFAULT, a local file, or the tag in the name"):
        network_factory("timm:resnet18", source, weights="IMAGENET")
