"""What every export has in common: names, places, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import mslg
from mslg.review.export import EXPORTS, NAMES
from mslg.runs.folder import Run
from tests.support.blobs import small_network
from tests.support.short_runs import CLEAN, FAST, NOISY


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "run"
    mslg.fit(small_network, NOISY, CLEAN, output=path, **FAST)
    return path


def test_every_format_leads_somewhere() -> None:
    assert set(NAMES) == set(EXPORTS)
    for name in EXPORTS:
        assert callable(EXPORTS.load(name))


def test_a_folder_to_hand_on(run: Path, tmp_path: Path) -> None:
    folder = mslg.export(run, to="safetensors", path=tmp_path / "deep" / "model")
    names = {"model.safetensors", "model.json", "classes.json", "README.md", "checksums.json"}
    assert {path.name for path in folder.iterdir()} == names
    weights = load_file(run / "model.safetensors")
    model = mslg.load_model(folder, small_network)
    assert all(torch.equal(weights[name], value) for name, value in model.network.state_dict().items())
    assert (folder / "README.md").read_text() == (run / "model_card.md").read_text()


def test_nothing_is_overwritten_unasked(run: Path, tmp_path: Path) -> None:
    model, table = tmp_path / "model", tmp_path / "labels.csv"
    for _ in range(2):
        mslg.export(run, to="safetensors", path=model, force=True)
        mslg.export(run, to="csv", path=table, force=True)
    with pytest.raises(FileExistsError, match="model is not empty; choose another folder, or replace it with --force"):
        mslg.export(run, to="safetensors", path=model)
    with pytest.raises(FileExistsError, match=r"labels.csv already exists; choose another name, or replace it"):
        mslg.export(run, to="csv", path=table)
    (model / "thesis.tex").write_text("years of work")
    with pytest.raises(
        FileExistsError, match=r"also contains other files, such as thesis.tex, and will not be deleted"
    ):
        mslg.export(run, to="safetensors", path=model, force=True)
    assert (model / "thesis.tex").exists()
    with pytest.raises(FileExistsError, match="will not be deleted"):
        mslg.export(run, to="safetensors", path=run, force=True)
    for to in ("csv", "pt2"):
        with pytest.raises(IsADirectoryError, match="model is a folder; name a file"):
            mslg.export(run, to=to, path=model, force=True)


def test_mistakes(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown format 'onx'. Did you mean 'onnx'\? Allowed: onnx, pt2"):
        mslg.export(run, to="onx")
    with pytest.raises(ValueError, match=r"unknown option of csv 'sof'. Did you mean 'soft'\?"):
        mslg.export(run, to="csv", sof=True)
    with pytest.raises(
        ValueError, match=r"the samples of this run are not files, so they cannot be written as imagefolder"
    ):
        mslg.export(run, to="imagefolder", path=tmp_path / "x")
    with pytest.raises(FileNotFoundError, match="is not a run's folder"):
        mslg.export(tmp_path, to="csv")
    Run.create(tmp_path / "begun", {})
    with pytest.raises(ValueError, match=r"begun is not finished .* finish it: mslg fit -o .*begun --resume"):
        mslg.export(tmp_path / "begun", to="csv")
    with pytest.raises(ValueError, match="this result has no folder to export from; fit with output="):
        mslg.export(mslg.fit(small_network, NOISY, CLEAN, **FAST), to="csv")
    assert not (tmp_path / "x").exists()
