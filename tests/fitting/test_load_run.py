"""A run from its folder is the result that fit returned, and predicts new inputs of every kind as it would have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner, Result

import mslg
from mslg.cli.app import app
from mslg.fitting.fit import fit_settings
from tests.support.blobs import blobs, small_network

DATA = blobs()
QUICK: dict[str, Any] = {"method": "cross-entropy", "epochs": 2, "batch_size": 32, "progress": False, "device": "cpu"}


def command(*words: str) -> Result:
    """The command in this process: another one would wait for torch."""
    return CliRunner().invoke(app, list(words))


def quick(source: str) -> dict[str, dict[str, Any]]:
    """Settings of a short run."""
    train = {"epochs": 2, "batch_size": 16}
    return {"data": {"source": source}, "method": {"name": "cross-entropy"}, "train": train}


def test_a_loaded_run_is_what_fit_returned(tmp_path: Path) -> None:
    fitted = mslg.fit(
        small_network,
        (DATA.x, DATA.given),
        (DATA.clean_x, DATA.clean_y),
        **{**QUICK, "method": "mslg"},
        output=tmp_path,
    )
    loaded = mslg.load_run(tmp_path, small_network)
    pd.testing.assert_frame_equal(loaded.labels, pd.read_parquet(tmp_path / "labels.parquet"))
    pd.testing.assert_frame_equal(loaded.labels, fitted.labels, check_dtype=False)
    assert (loaded.soft_labels == fitted.soft_labels).all()
    pd.testing.assert_frame_equal(loaded.history, fitted.history)
    assert loaded.summary == json.loads(json.dumps(fitted.summary))
    assert loaded.classes == fitted.classes
    assert (loaded.predict_proba(DATA.test_x) == fitted.predict_proba(DATA.test_x)).all()  # to the bit
    assert (loaded.predict(DATA.test_x) == fitted.predict(DATA.test_x)).all()
    assert np.mean(loaded.predict(DATA.test_x) == DATA.test_y.astype(str)) > 0.6


def test_labels_of_a_loaded_run_need_no_network(tmp_path: Path) -> None:
    mslg.fit(small_network, (DATA.x, DATA.given), **QUICK, output=tmp_path)
    loaded = mslg.load_run(tmp_path)
    assert len(loaded.labels) == len(DATA.x)
    with pytest.raises(ValueError, match=r"was made in Python.*pass network="):
        loaded.predict(DATA.test_x)
    with pytest.raises(ValueError, match="not the method in memory; use the result that fit returned"):
        _ = loaded.method


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = small_network()

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.body(torch.stack([left, right], 1))
        return logits


def test_a_model_that_was_fed_dicts_takes_dicts(tmp_path: Path) -> None:
    def parts(x: np.ndarray) -> dict[str, np.ndarray]:
        return {"left": x[:, 0].copy(), "right": x[:, 1].copy()}

    fitted = mslg.fit(TwoInputs, (parts(DATA.x), DATA.given), **QUICK, output=tmp_path)
    loaded = mslg.load_run(tmp_path, TwoInputs)
    assert (loaded.predict_proba(parts(DATA.test_x)) == fitted.predict_proba(parts(DATA.test_x))).all()
    model = mslg.load_model(tmp_path, TwoInputs)
    inputs = {name: torch.as_tensor(part) for name, part in parts(DATA.test_x).items()}
    with torch.no_grad():
        assert torch.equal(model(inputs), model(**inputs))
        assert torch.equal(model(tuple(inputs.values())), model(*inputs.values()))


def test_a_dataset_is_predicted_with_and_without_its_labels() -> None:
    x = torch.as_tensor(DATA.x)
    fitted = mslg.fit(small_network, TensorDataset(x, torch.as_tensor(DATA.given)), **QUICK)
    expected = fitted.predict_proba(DATA.x)
    assert (fitted.predict_proba(TensorDataset(x, torch.as_tensor(DATA.given))) == expected).all()
    assert (fitted.predict_proba(TensorDataset(x)) == expected).all()


def words(tmp_path: Path) -> Iterator[tuple[str, str, str]]:
    """What fit is given, what predict is given, and the class that it starts with; one kind of data after the other."""
    random = np.random.default_rng(0)
    label = np.arange(40) % 2
    names = np.array(["cat", "dog"])
    np.savez(tmp_path / "rows.npz", X=random.normal(size=(40, 3)) + 4 * label[:, None], y=names[label])
    np.savez(tmp_path / "new.npz", X=np.array([[0.0, 0, 0], [4, 4, 4]]), id=np.array(["a", "b"]))
    yield "rows.npz", "new.npz", "ab"
    np.save(tmp_path / "new.npy", np.array([[0.0, 0, 0], [4, 4, 4]]))
    yield "rows.npz", "new.npy", "01"
    table = pd.DataFrame({"height": 4.0 * label + random.normal(size=40), "width": -4.0 * label, "label": names[label]})
    table.to_csv(tmp_path / "table.csv", index=False)
    pd.DataFrame({"extra": ["x", "y"], "width": [0.0, -4], "height": [0.0, 4]}).to_parquet(tmp_path / "new.parquet")
    yield "table.csv", "new.parquet", "01"
    texts = [
        f"{'purring whiskers' if kind == 0 else 'barking bone'} number {place}" for place, kind in enumerate(label)
    ]
    pd.DataFrame({"text": texts, "label": names[label]}).to_csv(tmp_path / "texts.csv", index=False)
    pd.DataFrame({"text": ["the whiskers were purring", "a bone barking"]}).to_csv(tmp_path / "new.csv", index=False)
    yield "texts.csv", "new.csv", "01"
    for place, kind in enumerate(label):
        folder = tmp_path / "photos" / names[kind]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 60, (8, 8, 3), dtype=np.uint8) + np.uint8(180 * kind)
        Image.fromarray(pixels).save(folder / f"{place}.png")
    (tmp_path / "new").mkdir()
    for name, value in {"a.png": 20, "b.png": 200}.items():
        Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(tmp_path / "new" / name)
    yield "photos", "new", "ab"


@pytest.mark.parametrize("kind", range(5), ids=["npz", "npy", "table", "texts", "images"])
def test_mslg_predict_on_a_run_of_each_kind(tmp_path: Path, kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data, new, ids = list(words(tmp_path))[kind]
    tables: dict[str, dict[str, Any]] = {
        "data": {"source": data},
        "method": {"name": "cross-entropy"},
        "train": {"epochs": 12, "batch_size": 8, "learning_rate": 0.02},
        "network": {"name": "text-mlp" if "texts" in data else "mlp"},
    }
    run = fit_settings(tables, output="run", progress=False, device="cpu")
    done = command("predict", "run", new, "-o", "out.parquet")
    assert done.exit_code == 0, done.output
    assert "2 predictions written: out.parquet" in done.stderr
    table = pd.read_parquet("out.parquet")
    assert [name.split(".")[0] for name in table["id"]] == list(ids)
    assert table["predicted_label"].tolist() == ["cat", "dog"]
    assert ("path" in table) == (data == "photos")
    own = run.predict_proba(new)
    assert (np.stack(table["probabilities"].to_list()) == own).all()  # to the bit
    assert (table["probability"].to_numpy() == own.max(1)).all()
    assert (mslg.load_run("run").predict_proba(new) == own).all()


def test_predictions_as_csv_and_on_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    list(words(tmp_path))
    tables = quick("rows.npz")
    fit_settings(tables, output="run", progress=False, device="cpu")
    assert command("predict", "run", "new.npz", "-o", "out.csv", "--json").stdout.startswith('{"format_version": 1')
    assert list(pd.read_csv("out.csv").columns) == ["id", "predicted_label", "probability", "p_cat", "p_dog"]
    again = command("predict", "run", "new.npz", "-o", "out.csv")
    assert "out.csv already exists; choose another name, or replace it with --force" in str(again.exception)
    assert command("predict", "run", "new.npz").stdout.splitlines()[0] == "id,predicted_label,probability"
    assert "there is no file or folder nothing" in str(command("predict", "run", "nothing").exception)
    mslg.export("run", to="safetensors", path="model")
    assert command("predict", "model", "new.npz").stdout == command("predict", "run", "new.npz").stdout


def test_what_does_not_fit_the_model_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    list(words(tmp_path))
    fit_settings(quick("rows.npz"), output="run", progress=False, device="cpu")
    width = np.load("new.npz")["X"].shape[1]
    np.save("wide.npy", np.zeros((3, width + 2), "f4"))
    done = command("predict", "run", "wide.npy")
    assert isinstance(done.exception, ValueError)
    assert f"inputs of shape ({width + 2},) do not fit the model" in str(done.exception)
    np.save("holes.npy", np.array([[0.0] * width, [np.nan] * width], "f4"))
    told = str(command("predict", "run", "holes.npy", "-o", "out.csv").exception)
    assert "the input at position 1 is not finite" in told
    assert not Path("out.csv").exists()


def test_no_spreadsheet_runs_the_ids_of_predictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    list(words(tmp_path))
    fit_settings(quick("rows.npz"), output="run", progress=False, device="cpu")
    np.savez("odd.npz", X=np.load("new.npz")["X"], id=["=1+1", "b"])
    assert command("predict", "run", "odd.npz", "-o", "out.csv").exit_code == 0
    assert pd.read_csv("out.csv")["id"].tolist() == ["'=1+1", "b"]
    assert command("predict", "run", "odd.npz").stdout.splitlines()[1].startswith("'=1+1,")
    assert command("predict", "run", "odd.npz", "-o", "out.parquet").exit_code == 0
    assert pd.read_parquet("out.parquet")["id"].tolist() == ["=1+1", "b"]


def test_a_table_without_the_columns_of_training_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    list(words(tmp_path))
    tables = quick("table.csv")
    run = fit_settings(tables, progress=False, device="cpu")
    pd.DataFrame({"width": [1.0]}).to_csv("less.csv", index=False)
    with pytest.raises(ValueError, match=r"less.csv has no column height; the model was trained on .* height, width"):
        run.predict("less.csv")
