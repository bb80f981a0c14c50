"""Everyday mistakes end with a message, and what is typed wrong is not taken for right."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import mslg
from mslg.cli import KNOWN, failure
from mslg.cli.app import app
from mslg.cli.failure import explain
from mslg.data.readers.array_files import read_npz
from mslg.data.readers.tables import read_parquet
from mslg.review.decisions import Decision, as_csv, read_checked_decisions
from mslg.runtime.cells import escaped, unescaped
from mslg.runtime.printable import printable
from tests.support.blobs import blobs, small_network


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(*words: str) -> str:
    """The message of a command that must fail."""
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code != 0
    assert isinstance(result.exception, (*KNOWN, SystemExit)), result.exception
    return result.output if isinstance(result.exception, SystemExit) else str(result.exception)


def save(**arrays: Any) -> None:
    random = np.random.default_rng(0)
    np.savez("data.npz", **{"X": random.normal(size=(40, 3)), "y": np.arange(40) % 2, **arrays})


FIT = ["fit", "data.npz", "-o", "run", "--epochs", "1", "--method", "cross-entropy", "-q", "--no-report"]


@pytest.mark.parametrize(
    "kind", [np.int64, np.int8, np.uint16, np.uint32, bool, np.float16, np.float64, np.longdouble, ">f4"]
)
def test_numbers_of_every_type_are_trained_on(kind: Any) -> None:
    save(X=np.random.default_rng(0).normal(0, 5, (40, 3)).astype(kind))
    result = CliRunner().invoke(app, FIT)
    assert result.exit_code == 0, result.exception


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"X": np.zeros(40)}, r"X has the shape (40,); it must be (samples, features)"),
        ({"X": np.zeros((40, 0))}, r"X has the shape (40, 0): there are no values"),
        ({"X_test": np.zeros((4, 2)), "y_test": [0, 1, 0, 1]}, r"X_test has samples of shape (2,), X of (3,)"),
        ({"classes": ["a", "a"]}, "classes has the name 'a' twice"),
        ({"classes": [["a", "b"]]}, "classes has the shape (1, 2); it must be a list of names"),
        ({"X": np.array([["a"] * 3] * 40)}, "X has the type <U1; inputs must be numbers"),
        ({"X": np.zeros((40, 3), complex)}, "X has the type complex128"),
        ({"y": np.array([1e300] * 40)}, "has the label 1e+300; class numbers are counted from 0"),
        (
            {"X": np.array([{}] * 40, dtype=object)},
            "the array X holds Python objects, and reading those",
        ),
        ({"y_test": [0, 1]}, "has y_test but no X_test"),
    ],
    ids=str,
)
def test_check_and_fit_refuse_the_same_arrays(arrays: dict[str, Any], words: str) -> None:
    save(**arrays)
    assert words in refused("check", "data.npz")
    assert words in refused(*FIT)


def test_a_cut_or_damaged_archive_is_named() -> None:
    save()
    whole = Path("data.npz").read_bytes()
    for content in (whole[:300], whole[:-40], whole.replace(whole[100:120], b"\0" * 20), b"", b"text"):
        Path("data.npz").write_bytes(content)
        assert "data.npz cannot be read as an .npz of plain arrays" in refused("check", "data.npz")


@pytest.mark.parametrize("shape", [(10**12, 3), (2**62,), (3_000_000_000,)])
def test_an_archive_that_claims_more_than_it_holds(shape: tuple[int, ...]) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile("data.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", header.getvalue() + bytes(1000))
    with pytest.raises(ValueError, match="the array X claims the shape"):
        read_npz(Path("data.npz"))


def test_bombs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslg.data.readers.array_files.FREE", 1000)
    np.savez_compressed("bomb.npz", X=np.zeros(2_000_000), y=np.zeros(10))
    with pytest.raises(ValueError, match="more than 200 times its size is taken for an attack on your memory"):
        read_npz(Path("bomb.npz"))
    pd.DataFrame({"a": np.zeros(2_000_000)}).to_parquet("bomb.parquet")
    with pytest.raises(ValueError, match=r"bomb.parquet cannot be read .* 200 times its size"):
        read_parquet(Path("bomb.parquet"))


def test_an_image_of_too_many_pixels_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslg.data.images.MOST_PIXELS", 50)
    for name in ("cat", "dog"):
        Path("photos", name).mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(f"photos/{name}/1.png")
    assert "8 × 8 pixels; at most 50 are read" in refused("check", "photos", "--workers", "0")


@pytest.mark.parametrize("kind", [".csv", ".npz", ".parquet"])
def test_pipes_are_refused_at_once(kind: str) -> None:
    import os

    os.mkfifo(f"data{kind}")
    assert f"data{kind} is a named pipe, not a regular file" in refused("check", f"data{kind}")


SETTINGS = {
    "hold_out": ["no", "off", "yes", "1", "nan", "[]"],
    "class_balance": ["2", "'true'"],
    "data.reveal_noise": ["off", "0"],
    "epochs": ["1e308", "nan", "0.5", "true", "-1", "0", str(10**30)],
    "batch_size": ["inf", "[]", "abc"],
    "learning_rate": ["nan", "inf", "-1", "0", "true", "abc"],
    "weight_decay": ["-inf", "[1]", "{}"],
    "seed": ["-1", "1.5"],
    "network.name": ["5", "[]", "true"],
    "network.dropout": ["abc", "nan"],
    "network.hidden": ["abc", "[0.5]", "-3"],
}


@pytest.mark.parametrize("setting", [f"{key}={value}" for key, values in SETTINGS.items() for value in values])
def test_a_setting_of_the_wrong_type_is_an_error(setting: str) -> None:
    save()
    assert refused(*FIT, "--set", setting)
    assert not Path("run").exists()


@pytest.mark.parametrize("text", ["false", "False"])
def test_false_is_false(text: str) -> None:
    save()
    assert CliRunner().invoke(app, [*FIT, "--set", f"hold_out={text}"]).exit_code == 0
    assert "hold_out = false" in Path("run/config.toml").read_text()


def test_a_device_that_is_not_there() -> None:
    save()
    assert "the device 'cuda:99' cannot be used here" in refused(*FIT, "--device", "cuda:99")
    assert "the device 'abacus' cannot be used here" in refused(*FIT, "--device", "abacus")
    if not torch.cuda.is_available():
        assert "the device 'cuda' cannot be used here" in refused(*FIT, "--device", "cuda")


@pytest.mark.parametrize("name", ["r.toml", "d.json"])
def test_deeply_nested_files(name: str, tmp_path: Path) -> None:
    Path(name).write_text(("x = " if name == "r.toml" else "") + "[" * 100_000)
    if name == "r.toml":
        assert "r.toml is not valid TOML: nested too deeply" in refused("fit", "--recipe", name, "-o", "run")
    else:
        with pytest.raises(ValueError, match=r"d\.json is not JSON"):
            read_checked_decisions(Path(name), classes=["a"])


def test_many_classes_are_refused_before_training_with_the_number_needed() -> None:
    save(y=np.array([20_000] + [0, 1, 2] * 13))
    words = refused(*FIT)
    assert "there are 20,001 classes, for which judging the labels needs 4 matrices" in words
    assert "11.9 GiB" in words
    assert "only 4 of them occur" in words
    pd.DataFrame({"a": [0.5, 1], "label": [0, 100_001]}).to_csv("data.csv", index=False)
    assert "at most 100000 classes are supported" in refused("check", "data.csv")


TEXTS = ["=1+1", "+cmd", "-cmd|x", "@SUM(A1)", "\t=1", "'=1", "''=x", "-1", "+5e3", "plain", "", "'quoted'", "a=b"]


@pytest.mark.parametrize("text", TEXTS)
def test_cells_are_escaped_and_read_back(text: str) -> None:
    cell = escaped(text)
    assert cell is not None
    assert unescaped(cell) == text
    assert not cell.startswith(("=", "@", "\t")) or text in ("-1", "+5e3")
    decision = Decision("=id" + text, "relabel", text or "x", "given", "")
    Path("d.csv").write_bytes(as_csv({decision.id: decision}))
    assert "\n=" not in Path("d.csv").read_text()
    assert read_checked_decisions(Path("d.csv"), classes=[text or "x"]) == {decision.id: decision}


def test_cleaned_tables_and_exports_hold_no_formula_and_are_data_again() -> None:
    data = blobs()
    names = np.array(["=cmd()", "@b", "c", "-d"])[data.given % 4]
    ids = [f"=id{number}" for number in range(len(names))]
    np.savez("data.npz", X=data.x, y=names, id=ids)
    assert CliRunner().invoke(app, FIT).exit_code == 0
    for words in (["apply", "run", "-o", "out.csv"], ["export", "run", "--to", "csv", "-o", "labels.csv"]):
        assert CliRunner().invoke(app, words).exit_code == 0
        text = Path(words[-1]).read_text()
        assert "'=cmd()" in text
        assert not any(cell.strip('"').startswith(("=", "@")) for line in text.splitlines() for cell in line.split(","))
    again = [*FIT, "--labels", "out.csv"]
    again[again.index("run")] = "again"
    result = CliRunner().invoke(app, again)
    assert result.exit_code == 0, result.exception


def test_names_from_data_do_not_reach_the_terminal_as_they_are() -> None:
    save(y=np.array(["\x1b[2Jevil", "b\x07"] * 20))
    result = CliRunner().invoke(app, ["check", "data.npz"])
    assert "\x1b" not in result.output
    assert "⟪U+001B⟫[2Jevil" in result.output
    assert printable("a\x1b]0;x\x07\n\tb\udc80") == "a⟪U+001B⟫]0;x⟪U+0007⟫\n\tb?"


def test_an_unexpected_error_is_one_line_and_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure.tempfile, "tempdir", str(tmp_path))
    try:
        raise KeyError("gone\x1b")
    except KeyError as error:
        words = explain(error, foreseen=False)
    first, second = words.splitlines()
    assert first == "unexpected: KeyError: 'gone\\x1b'"
    file = Path(second.split(" in ")[1].split(";")[0])
    assert "Traceback" in file.read_text()
    assert "report" in second


def test_system_errors_are_told_without_their_number() -> None:
    assert explain(OSError(11, "run is being written"), foreseen=True) == "run is being written"
    assert explain(FileNotFoundError(2, "No such file", "a.npz"), foreseen=True) == "a.npz: No such file"


def test_resuming_a_finished_run_does_nothing_and_needs_no_data() -> None:
    save()
    assert CliRunner().invoke(app, FIT).exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in Path("run").rglob("*")}
    Path("data.npz").unlink()
    result = CliRunner().invoke(app, ["fit", "-o", "run", "--resume"])
    assert result.exit_code == 0, result.exception
    assert "run is finished: there is nothing to resume" in result.output
    assert {path: path.stat().st_mtime_ns for path in Path("run").rglob("*")} == before
    shown = CliRunner().invoke(app, ["fit", "-o", "run", "--resume", "--json"])
    assert json.loads(shown.stdout)["state"] == "done"


def test_only_images_near_by_are_copied(tmp_path: Path) -> None:
    place = tmp_path / "work"
    for name in ("cat", "dog"):
        (place / "photos" / name).mkdir(parents=True)
        for number in range(4):
            pixels = np.full((8, 8, 3), 9 * number, np.uint8)
            Image.fromarray(pixels).save(place / "photos" / name / f"{number}.png")
    words = ["fit", str(place / "photos"), "-o", str(place / "run"), "--epochs", "1", "--method", "cross-entropy", "-q"]
    words += ["--network", "mlp", "--no-report", "--workers", "0"]
    assert CliRunner().invoke(app, words).exit_code == 0
    (tmp_path / "elsewhere").mkdir()
    secrets = {"png": tmp_path / "elsewhere" / "secret.png", "txt": place / "passwords.txt"}
    for secret in secrets.values():
        secret.write_text("secret")
    labels = pd.read_parquet(place / "run" / "labels.parquet")
    (place / "run" / "checksums.json").unlink()
    (place / "empty").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place / "empty")
        for secret, message in zip(secrets.values(), ("is outside of", "is not an image file"), strict=True):
            labels["path"] = str(secret)
            labels.to_parquet(place / "run" / "labels.parquet")
            for command in (["apply"], ["export", "--link"]):
                words = [command[0], str(place / "run"), "--to", "imagefolder", "-o", "out", *command[1:]]
                assert message in refused(*words)
                assert not Path("out").exists()
        labels["path"] = str(secrets["png"])
        labels.to_parquet(place / "run" / "labels.parquet")
        words = ["apply", str(place / "run"), "--to", "imagefolder", "-o", "out", "--data", str(tmp_path / "elsewhere")]
        assert CliRunner().invoke(app, words).exit_code == 0


def test_python_checks_types_too() -> None:
    data = blobs()
    for setting in ({"epochs": 1e308}, {"learning_rate": float("nan")}, {"hold_out": "no"}, {"batch_size": True}):
        with pytest.raises(ValueError, match="it must be"):
            mslg.fit(small_network, (data.x, data.given), method="cross-entropy", progress=False, **setting)
