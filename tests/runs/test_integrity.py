"""Nothing damaged passes: every file that a run writes is compared with its checksum when it is read."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import mslg
from mslg.cli.app import app
from mslg.data.readers import array_files, tables
from mslg.data.source import make_source
from mslg.review.cleaned.write import write_cleaned
from mslg.review.report import write_report
from mslg.runs import record
from mslg.runs.checkpoint import load_state, save_state
from mslg.runs.folder import Run
from mslg.runs.verify import verify
from mslg.runtime.checksums import DamagedFile
from mslg.runtime.locks import FolderInUse, writing
from tests.support.blobs import blobs, small_network


def fit(folder: Path, **settings: Any) -> mslg.Result:
    data = blobs()
    given = {"method": "cross-entropy", "epochs": 3, "output": folder, "progress": False, "compare": False, **settings}
    noisy = given.pop("noisy", (data.x, data.given))
    return mslg.fit(small_network, noisy, (data.clean_x, data.clean_y), **given)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("integrity") / "run"
    fit(folder)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished run."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def flip(path: Path, place: float = 0.6) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 4
    path.write_bytes(content)


def export_csv(folder: Path) -> None:
    mslg.export(folder, to="csv", force=True)


def export_model(folder: Path) -> None:
    mslg.export(folder, to="safetensors", force=True)


def load(folder: Path) -> None:
    mslg.load_model(folder, small_network)


def apply(folder: Path) -> None:
    write_cleaned(Run.open(folder), folder / "cleaned.csv", "csv", force=True)


READERS: dict[Callable[[Path], Any], tuple[str, ...]] = {
    write_report: ("config.toml", "labels.parquet", "suspects.parquet", "summary.json", "classes.json"),
    export_csv: ("labels.parquet", "classes.json"),
    export_model: ("model.safetensors", "model.json", "classes.json", "summary.json", "config.toml"),
    load: ("model.safetensors", "model.json"),
    apply: ("labels.parquet", "division.parquet", "classes.json"),
}


@pytest.mark.parametrize(
    ("read", "name"),
    [(read, name) for read, names in READERS.items() for name in names],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_a_damaged_file_is_named_with_what_to_do(run: Path, read: Callable[[Path], Any], name: str) -> None:
    flip(run / name)
    with pytest.raises(DamagedFile, match=rf"{name} was changed or damaged .*mslg verify .* --accept {name}"):
        read(run)


def test_verify_finds_every_damaged_file_and_no_other(run: Path) -> None:
    checked = list(verify(run))
    assert all(each.problem is None for each in checked)
    names = {str(each.path.relative_to(run)) for each in checked}
    there = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert there - names == {"done", "checksums.json", ".lock"}, "every file has a checksum"
    for name in sorted(names):
        before = (run / name).read_bytes()
        flip(run / name)
        assert [str(each.path.relative_to(run)) for each in verify(run) if each.problem] == [name]
        (run / name).write_bytes(before)
    (run / "summary.json").unlink()
    result = CliRunner().invoke(app, ["verify", str(run)])
    assert result.exit_code == 1
    assert "summary.json: missing; delete" in result.output


def test_settings_edited_by_hand_are_refused_with_a_way_to_mean_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    fit(folder, time_budget=None)
    (folder / "done").unlink()
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("learning_rate = 0.05", "learning_rate = 0.06"))
    with pytest.raises(DamagedFile, match=r"config.toml was changed .* mslg fit --recipe .* --accept config.toml"):
        fit(folder, resume=True, learning_rate=0.06)
    assert CliRunner().invoke(app, ["verify", str(folder), "--accept", "config.toml"]).exit_code == 0
    fit(folder, resume=True, learning_rate=0.06)


def test_a_newer_format_is_refused(run: Path) -> None:
    path = run / "config.toml"
    path.write_text(path.read_text().replace("format_version = 1", "format_version = 99"))
    assert CliRunner().invoke(app, ["verify", str(run), "--accept"]).exit_code == 0
    with pytest.raises(ValueError, match=r"config.toml has format version 99, .* upgrade mslg"):
        write_report(run)


def test_other_versions_are_warned_of(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = run / "config.toml"
    torch = tomllib.loads(path.read_text())["versions"]["torch"]
    path.write_text(path.read_text().replace(f'torch = "{torch}"', 'torch = "1.0"'))
    CliRunner().invoke(app, ["verify", str(run), "--accept"])
    fit(run, resume=True)
    assert f"torch 1.0 → {torch}" in caplog.text


@pytest.mark.parametrize("place", [0.001, 0.05, 0.5, 0.999])
def test_a_damaged_checkpoint_names_the_one_before(tmp_path: Path, place: float) -> None:
    folder = tmp_path / "run"
    fit(folder)
    (folder / "done").unlink()
    last = folder / "checkpoint" / "state.safetensors"
    state = load_state(last)
    save_state(folder / "checkpoint" / "previous.safetensors", state)
    before = (folder / "model.safetensors").read_bytes()
    flip(last, place)
    with pytest.raises(DamagedFile, match=r"state.safetensors .*delete this one, and the run resumes from epoch 4"):
        fit(folder, resume=True)
    last.unlink()
    fit(folder, resume=True)
    assert (folder / "model.safetensors").read_bytes() == before


def test_a_deleted_checkpoint_is_said(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = (run / "model.safetensors").read_bytes()
    (run / "done").unlink()
    shutil.rmtree(run / "checkpoint")
    fit(run, resume=True)
    assert "has no checkpoint, although it has trained: it starts from the beginning" in caplog.text
    assert (run / "model.safetensors").read_bytes() == before


def test_damaged_weights_in_a_folder_without_checksums(run: Path) -> None:
    (run / "checksums.json").unlink()
    whole = (run / "model.safetensors").read_bytes()
    for content in (whole[:100], b"", whole[:-8], b"\xff" * 8 + whole[8:]):
        (run / "model.safetensors").write_bytes(content)
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            load(run)


@pytest.mark.parametrize("name", ["labels.parquet", "suspects.parquet"])
def test_a_table_of_a_stranger_does_not_fill_the_memory(run: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "checksums.json").unlink()
    for module in (array_files, tables):
        monkeypatch.setattr(module, "FREE", 1000)
    table = pq.read_table(run / name)
    rows = table.take([0] * 4000).set_column(0, "id", pa.array(["x" * 10_000] * 4000))
    pq.write_table(rows, run / name)
    with pytest.raises(ValueError, match=rf"{name} .*it holds 40,\d+,\d+ bytes of data"):
        write_report(run)


def test_the_previous_checkpoint_is_kept_until_the_run_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "SPACING", 0.0)
    kept = []

    class Watch:
        def begin(self, *_: Any) -> None: ...
        def advance(self, *_: Any) -> None: ...
        def close(self) -> None: ...
        def epoch(self, record: Any) -> None:
            kept.append(sorted(path.name for path in (tmp_path / "run" / "checkpoint").glob("*")))

    fit(tmp_path / "run", progress=Watch())
    assert kept == [[], ["state.safetensors"], ["previous.safetensors", "state.safetensors"]]
    assert [path.name for path in (tmp_path / "run" / "checkpoint").iterdir()] == ["state.safetensors"]


@pytest.mark.parametrize("damage", ["deleted", "cut", "garbage"])
def test_a_damaged_record_of_metrics_does_not_block_a_resume(run: Path, damage: str) -> None:
    path, before = run / "metrics.jsonl", (run / "metrics.jsonl").read_bytes()
    (run / "done").unlink()
    path.unlink() if damage == "deleted" else path.write_bytes(before[:90] if damage == "cut" else b"\xff\x00{[")
    fit(run, resume=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("row", [0, 100, -1])
def test_one_changed_value_anywhere_is_noticed(run: Path, row: int) -> None:
    data = blobs()
    data.x[row, -1] += 1e-6
    (run / "done").unlink()
    with pytest.raises(ValueError, match=r"was started with data\.fingerprint"):
        fit(run, resume=True, noisy=(data.x, data.given))


def test_swapped_rows_and_other_types_have_other_fingerprints() -> None:
    random = np.random.default_rng(0)
    for x in (random.random((50, 7), dtype=np.float32), random.integers(0, 255, (40, 3, 5, 5)).astype(np.uint8)):
        label = np.zeros(len(x), dtype=int)
        whole = make_source(x, label).fingerprint()
        swapped = x.copy()
        swapped[[3, 4]] = x[[4, 3]]
        assert make_source(swapped, label).fingerprint() != whole
        other = x.astype(np.float32 if x.dtype == np.uint8 else np.int64)
        assert make_source(other, label).fingerprint() != whole
        assert make_source(x.copy(), label).fingerprint() == whole


def test_two_runs_into_one_folder(run: Path) -> None:
    with writing(run), pytest.raises(FolderInUse, match="is being written by"):
        fit(run, resume=True)
    mslg.export(run, to="csv")
    with writing(run):  # reading needs no lock
        write_report(run)
        mslg.export(run, to="csv", force=True)


def test_a_folder_that_is_not_a_run_gets_no_lock(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(FileExistsError, match="is an existing folder"):
        fit(tmp_path)
    with pytest.raises(FileExistsError, match="is not a run's folder"):
        fit(tmp_path, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("left", [(".incomplete",), (".incomplete", "division.parquet", "labels.parquet")])
def test_a_run_killed_while_it_is_created_or_replaced_is_in_nobodys_way(tmp_path: Path, left: tuple[str, ...]) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in left:
        (folder / name).touch()
    fit(folder)
    assert (folder / "done").exists()
    assert not (folder / ".incomplete").exists()


def test_an_exported_model_has_checksums_of_its_own(run: Path) -> None:
    folder = mslg.export(run, to="safetensors")
    assert not any(each.problem for each in verify(folder))
    flip(folder / "model.safetensors")
    with pytest.raises(DamagedFile, match="get the folder anew from where it came from"):
        mslg.load_model(folder, small_network)
    mslg.export(run, to="safetensors", force=True)


@pytest.mark.parametrize(
    "change",
    [
        {"classes": 5},
        {"classes": []},
        {"inputs": {"shape": [10**9, 10**9], "dtype": "float32"}},
        {"inputs": {"shape": [2], "dtype": "load"}},
        {"inputs": {"shape": [-1], "dtype": "float32"}},
        {"members": 10**9},
        {"network": []},
        {"prepare": [{}]},
        {"format_version": 99},
    ],
    ids=str,
)
def test_a_model_description_by_a_stranger_is_checked(run: Path, change: dict[str, Any]) -> None:
    path = run / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    (run / "checksums.json").unlink()
    with pytest.raises(ValueError, match=r"model\.json (is damaged|has format version)"):
        mslg.load_model(run, small_network)
