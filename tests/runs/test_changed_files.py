"""Image files that are read lazily: one that changes is noticed when it is read, also after a resume."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from mslg.cli.app import app
from mslg.data.image_stores import ImageStore
from mslg.data.images import Frame
from mslg.data.readers import image_files
from mslg.runs import record
from mslg.runs.checkpoint import load_state

FIT = ["fit", "photos", "-o", "run", "--method", "cross-entropy", "--epochs", "4", "--network", "mlp", "-q"]
FIT += ["--no-report", "--no-compare", "--features", "none", "--workers", "0", "--batch-size", "8"]


def write(path: Path, number: int) -> None:
    """A file whose size does not depend on its content."""
    pixels = np.random.default_rng(number).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(image_files, "IN_MEMORY", 0)
    for kind, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(12):
            write(tmp_path / "photos" / name / f"{number}.bmp", 100 * kind + number)
    return tmp_path / "photos"


def change(path: Path) -> bytes:
    """Another content of the same size and time."""
    before, about = path.read_bytes(), path.stat()
    write(path, 1000)
    assert path.stat().st_size == about.st_size
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    return before


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_changes_between_two_readings(photos: Path, workers: int) -> None:
    store = ImageStore([f"cat/{number}.bmp" for number in range(12)], photos, Frame(8, 8), workers=workers)
    part = store.at(np.array([7, 3, 1]))
    for _ in range(2):
        assert sum(len(pixels) for pixels in part.batches(_pairs(3))) == 3
    change(photos / "cat" / "3.bmp")
    change(photos / "cat" / "5.bmp")  # not read yet
    with pytest.raises(ValueError, match=r"cat/3\.bmp is not what it was when this run first read it"):
        list(store.batches(_pairs(12)))


def _pairs(count: int) -> list[torch.Tensor]:
    return list(torch.arange(count).split(2))


def interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of three steps per epoch that is asked to end in the third."""
    asked = iter([0, 0, signal.SIGTERM])
    with monkeypatch.context() as patch:
        patch.setattr(record, "_agreed", lambda pending: next(asked))
        assert CliRunner().invoke(app, FIT).exit_code == 143


def test_a_resumed_run_notices_any_changed_file(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CliRunner().invoke(app, [*FIT, "-o", "whole"]).exit_code == 0
    interrupt(monkeypatch)
    (read,) = load_state(Path("run/checkpoint/state.safetensors"))["files"]
    assert len(read) == 24
    assert int(read.min()) >= 0
    before = change(photos / "dog" / "7.bmp")
    resumed = CliRunner().invoke(app, [*FIT, "--resume"])
    assert "dog/7.bmp is not what it was when this run first read it" in str(resumed.exception)
    (photos / "dog" / "7.bmp").write_bytes(before)
    assert CliRunner().invoke(app, [*FIT, "--resume"]).exit_code == 0
    for name in ("metrics.jsonl", "model.safetensors", "labels.parquet"):
        assert Path("run", name).read_bytes() == Path("whole", name).read_bytes()


def test_another_size_is_noticed_before_anything_is_read(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(monkeypatch)
    with (photos / "dog" / "7.bmp").open("ab") as file:
        file.write(b"\0")
    resumed = CliRunner().invoke(app, [*FIT, "--resume"])
    assert "was started with data.fingerprint" in str(resumed.exception)


def test_a_file_that_would_fill_the_memory_is_not_read(photos: Path) -> None:
    with (photos / "cat" / "1.bmp").open("r+b") as file:
        file.truncate(2**40)  # sparse: it takes no space
    store = ImageStore(["cat/1.bmp"], photos, Frame(8, 8))
    with pytest.raises(ValueError, match=r"at most 1,073,741,824 are read"):
        list(store.batches(_pairs(1)))
