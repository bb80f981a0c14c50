"""A model as ONNX and as a torch.export archive gives what the network gives, for batches of any size."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import mslg
from mslg.data.batch import call
from mslg.data.texts import Vocabulary
from mslg.fitting.fit import fit_settings
from mslg.runs.export import onnx as onnx_format
from mslg.runs.export.graph import in_order
from mslg.runs.load_model import load_model
from mslg.runs.recipes import merged
from tests.support.blobs import blobs, small_network
from tests.support.short_runs import CLEAN, DIGITS, FAST, NOISY, Parts
from tests.support.text_tables import reviews
from tests.support.trees import image_folder

DATA = blobs()
SIZES = (1, 2, 7)
load = torch.export.load


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on images that are resized, cut and normalised."""
    path = tmp_path_factory.mktemp("digits") / "run"
    fit_settings(merged(DIGITS), output=path, progress=False)
    return path


def needs_onnx() -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed")


def by_onnx(path: Path, inputs: Any) -> Tensor:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    if isinstance(inputs, dict):
        assert names == list(inputs)
    parts = [part.numpy() for part in in_order(inputs)]
    (logits,) = session.run(["logits"], dict(zip(names, parts, strict=True)))
    return torch.from_numpy(logits)


def by_pt2(path: Path, inputs: Any) -> Tensor:
    found: Tensor = torch.export.load(path).module()(*in_order(inputs))
    return found


READERS = {"onnx": by_onnx, "pt2": by_pt2}


@pytest.fixture(scope="module")
def onnx_file(digits: Path) -> Path:
    needs_onnx()
    return mslg.export(digits, to="onnx")


@pytest.fixture(scope="module")
def pt2_file(digits: Path) -> Path:
    return mslg.export(digits, to="pt2")


@pytest.mark.parametrize("to", READERS)
def test_images_are_prepared_in_the_graph(to: str, digits: Path, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(f"{to}_file")
    model = load_model(digits)
    for size in SIZES:
        images = torch.rand(size, 1, 8, 8)
        with torch.no_grad():
            torch.testing.assert_close(READERS[to](path, images), model(images), rtol=0, atol=1e-5)


@pytest.mark.parametrize("to", READERS)
@pytest.mark.parametrize("kind", [tuple, dict])
def test_own_networks_with_inputs_of_several_parts(to: str, kind: type, tmp_path: Path) -> None:
    if to == "onnx":
        needs_onnx()

    def parts(x: Any) -> Any:
        both = {"left": x[:, :1], "right": x[:, 1:]}
        return both if kind is dict else tuple(both.values())

    clean = (parts(DATA.clean_x), DATA.clean_y)
    result = mslg.fit(Parts, (parts(DATA.x), DATA.given), clean, output=tmp_path / "run", **FAST)
    path = mslg.export(result, to=to)
    assert path == tmp_path / "run" / f"model.{to}"
    for size in SIZES:
        inputs = parts(torch.as_tensor(DATA.test_x[:size]))
        with torch.no_grad():
            torch.testing.assert_close(READERS[to](path, inputs), call(result.model, inputs), rtol=0, atol=1e-5)


def test_two_networks_become_one_graph(tmp_path: Path) -> None:
    settings = {**FAST, "method": "co-teaching", "noise_rate": 0.3, "ensemble": True}
    result = mslg.fit(small_network, NOISY, CLEAN, output=tmp_path / "run", **settings)
    path = mslg.export(tmp_path / "run", to="pt2", network=small_network)
    inputs = torch.as_tensor(DATA.test_x)
    with torch.no_grad():
        torch.testing.assert_close(by_pt2(path, inputs), result.model(inputs), rtol=0, atol=1e-5)


def test_the_files_say_what_they_are(onnx_file: Path, pt2_file: Path) -> None:
    import onnx

    model = onnx.load(onnx_file)
    onnx.checker.check_model(model)
    told = {each.key: each.value for each in model.metadata_props}
    extra = dict.fromkeys(told, "")
    torch.export.load(pt2_file, extra_files=extra)
    assert extra == told
    assert json.loads(told["classes"]) == list("0123456789")
    words = ["resize-12", "centre-10", "normalise-0.5"]
    assert json.loads(told["prepare"]) == {"words": words, "in_graph": True}
    assert json.loads(told["inputs"]) == {"inputs": {"shape": [1, 8, 8], "dtype": "float32"}}
    (given,) = model.graph.input
    assert given.type.tensor_type.shape.dim[0].dim_param == "batch"


def test_a_graph_that_gives_other_outputs_is_not_written(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.export.load", lambda file: Shifted(load(file)))
    with pytest.raises(ArithmeticError, match="gives other outputs than MLP, so nothing was written"):
        mslg.export(digits, to="pt2", path=tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


class Shifted:
    """An exporter's mistake."""

    def __init__(self, program: Any) -> None:
        self.program = program

    def module(self) -> Any:
        return lambda *inputs: self.program.module()(*inputs) + 1e-2


def test_a_network_that_no_graph_can_hold(tmp_path: Path) -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(2, 4)

        def forward(self, rows: Tensor) -> Tensor:
            logits: Tensor = self.head(rows if float(rows.sum()) > 0 else -rows)
            return logits

    result = mslg.fit(Branching, NOISY, CLEAN, output=tmp_path / "run", **FAST)
    with pytest.raises(
        ValueError, match=r"Branching cannot be exported as a graph .*--to safetensors keeps the weights"
    ):
        mslg.export(result, to="pt2")


def test_features_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("MSLG_CACHE", str(tmp_path / "cache"))
    data = {**DIGITS["data"], "features": "mlp", "features_prepare": ["normalise-0.5"]}
    settings = merged({**DIGITS, "data": data, "train": {"epochs": 2}})
    fit_settings(settings, output=tmp_path / "run", progress=False)
    path = mslg.export(tmp_path / "run", to="pt2")
    assert "takes features of mlp, which is not part of the export" in caplog.text
    extra = {"features_of": ""}
    torch.export.load(path, extra_files=extra)
    assert json.loads(extra["features_of"]) == {"network": "mlp", "prepare": ["normalise-0.5"]}
    assert by_pt2(path, torch.from_numpy(np.zeros((3, 256), np.float32))).shape == (3, 10)


def test_missing_packages_are_told_with_the_line_that_installs_them(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    if "onnx" not in sys.modules:
        monkeypatch.setattr(
            onnx_format, "import_module", lambda name: __import__(name) if name == "onnxscript" else None
        )
    with pytest.raises(ImportError, match=r"onnxscript is not installed; install it with: pip install 'mslg\[onnx\]'"):
        mslg.export(digits, to="onnx", path=tmp_path / "model.onnx")


def test_a_model_of_texts_brings_its_words(tmp_path: Path) -> None:
    reviews().to_csv(tmp_path / "reviews.csv", index=False)
    settings = {**DIGITS, "data": {"source": str(tmp_path / "reviews.csv")}, "train": {"epochs": 2}}
    fit_settings(merged(settings), output=tmp_path / "run", progress=False)
    extra = {"vocabulary": ""}
    program = torch.export.load(mslg.export(tmp_path / "run", to="pt2"), extra_files=extra)
    folder = mslg.export(tmp_path / "run", to="safetensors")
    assert json.loads(extra["vocabulary"]) == json.loads((folder / "vocabulary.json").read_text())
    assert "vocabulary.json" in (folder / "README.md").read_text()
    rows = Vocabulary.read(folder / "vocabulary.json").encode(["boil the salt", "wind at the harbour", "nothing known"])
    torch.testing.assert_close(program.module()(rows), mslg.load_model(folder)(rows))


@pytest.mark.parametrize("to", READERS)
def test_backbone_and_head_are_one_graph(to: str, tmp_path: Path) -> None:
    if to == "onnx":
        needs_onnx()
    folder = image_folder(tmp_path / "photos", each=8)
    data = {"source": str(folder), "clean": str(image_folder(tmp_path / "clean", each=4, start=8))}
    features = {"features": "cnn8", "features_prepare": ["resize-16"]}
    fit_settings({"data": data | features, "train": {"epochs": 3}}, output=tmp_path / "run", progress=False)
    path = mslg.export(tmp_path / "run", to=to)
    model = load_model(tmp_path / "run")
    assert model.new_inputs is not None
    some = [torch.arange(5)]
    rows = next(iter(model.new_inputs.open(folder).store.batches(some)))  # features, as training computes them
    pictures = dataclasses.replace(model.new_inputs, features_of=None).open(folder)
    with torch.no_grad():
        found = READERS[to](path, next(iter(pictures.store.batches(some))))
        torch.testing.assert_close(found, model(rows), rtol=0, atol=1e-4)
