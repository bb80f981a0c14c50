"""Frozen features: the input of a backbone's head, computed once, kept by content, and trained on."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import Dataset
from typer.testing import CliRunner

from mslg.cli.app import app
from mslg.data.augmentation import Augment
from mslg.data.image_stores import frame_of
from mslg.data.images import read_with_checksum
from mslg.data.readers.folder import folder
from mslg.data.readers.options import Reading
from mslg.data.source import Source, make_source
from mslg.networks.features import backbone, cache_folder, extract, preparation
from mslg.runs.recipes import load_recipe
from tests.support.factories import told
from tests.support.libraries import torchvision_or_skip

PIXELS = np.random.default_rng(0).random((30, 1, 8, 8), dtype=np.float32)
LABELS = np.arange(30) % 3


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSLG_CACHE", str(tmp_path / "cache"))


def source(pixels: np.ndarray = PIXELS, labels: np.ndarray = LABELS) -> Source:
    return make_source(pixels, labels)


def network(seed: int = 0, classes: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    body = told(num_classes=7, in_channels=1)
    body[-1] = nn.Linear(16, classes)  # type: ignore[operator]
    return body


def rows(found: Source) -> torch.Tensor:
    return torch.cat(list(found.store.batches([torch.arange(len(found))])))


def files() -> list[Path]:
    return sorted((cache_folder() / "features").glob("*.rows"))


def test_features_are_what_goes_into_the_head() -> None:
    body = network().train()
    found = extract(source(), body, batch_size=7)
    with torch.no_grad():
        slow = torch.stack([body[:-1](torch.as_tensor(image)[None])[0] for image in PIXELS])  # type: ignore[index]
    assert torch.allclose(rows(found), slow, atol=1e-6)
    assert found.ids == source().ids
    assert torch.equal(found.label, source().label)
    assert body.training, "left in the mode it was in"
    assert not body[-1]._forward_pre_hooks  # type: ignore[index]


def test_images_are_prepared_first() -> None:
    plain, changed = extract(source(), network()), extract(source(), network(), prepare=Augment.parse("normalise-0.5"))
    assert torch.equal(rows(changed), rows(extract(source(2 * PIXELS - 1), network())))
    assert not torch.equal(rows(changed), rows(plain))


class Counting(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body, self.calls = body, 0

    def forward(self, images: torch.Tensor) -> Any:
        self.calls += 1
        return self.body(images)


def test_the_same_content_is_computed_once_whatever_the_labels_and_the_head() -> None:
    first, second = Counting(network()), Counting(network())
    second.body[-1] = nn.Linear(16, 5)  # type: ignore[index,operator]
    expected = rows(extract(source(), first))
    assert torch.equal(rows(extract(source(labels=LABELS[::-1].copy()), second)), expected)
    assert (first.calls, second.calls) == (2, 0), "two batches of 16 at most"
    assert len(files()) == 1


@pytest.mark.parametrize(("change", "calls"), [("weights", 2), ("pixels", 1), ("preparation", 2), ("samples", 0)])
def test_anything_that_changes_the_features_is_computed_anew(change: str, calls: int) -> None:
    extract(source(), Counting(network()), name="Sequential")
    other = PIXELS.copy()
    other[29, 0, 7, 7] += 0.01
    body = Counting(network(seed=1 if change == "weights" else 0))
    data = {"pixels": source(other), "samples": source(PIXELS[:20], LABELS[:20])}.get(change, source())
    prepare = Augment.parse("normalise-0.5" if change == "preparation" else None)
    extract(data, body, prepare=prepare, name="Sequential")
    assert body.calls == calls
    assert len(files()) == (2 if change in ("weights", "preparation") else 1)


def test_equal_pictures_are_computed_once_and_order_does_not_matter() -> None:
    expected = rows(extract(source(), Counting(network())))
    order = np.array([5, 3, 3, 29])
    body = Counting(network())
    assert torch.equal(rows(extract(source(PIXELS[order], LABELS[order]), body)), expected[torch.from_numpy(order)])
    assert body.calls == 0


class Lazy(Dataset[tuple[torch.Tensor, int]]):
    targets = LABELS.tolist()

    def __init__(self, pixels: np.ndarray) -> None:
        self.pixels = torch.as_tensor(pixels)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, position: int) -> tuple[torch.Tensor, int]:
        return self.pixels[position], self.targets[position]


def test_lazily_read_data_is_known_again_too() -> None:
    first, second, third = (Counting(network()) for _ in range(3))
    expected = rows(extract(source(), Counting(network())))
    assert torch.equal(rows(extract(make_source(Lazy(PIXELS)), first)), expected)
    assert torch.equal(rows(extract(make_source(Lazy(PIXELS)), second)), expected)
    extract(make_source(Lazy(PIXELS + 1)), third)
    assert (first.calls, second.calls, third.calls) == (0, 0, 2), "the arrays had the same content"


def test_a_file_that_changed_is_noticed(tmp_path: Path) -> None:
    class FileStore:
        """Like a store of images in files."""

        def __init__(self) -> None:
            self.inner = source().store

        def __len__(self) -> int:
            return len(self.inner)

        def path(self, position: int) -> Path:
            return tmp_path / f"{position}.bin"

        def batches(self, indices: Any) -> Any:
            return self.inner.batches(indices)

    for position in range(30):
        (tmp_path / f"{position}.bin").write_bytes(b"x%d" % position)
    bodies = [Counting(network()) for _ in range(3)]
    extract(replace(source(), store=FileStore()), bodies[0])
    extract(replace(source(), store=FileStore()), bodies[1])
    (tmp_path / "17.bin").write_bytes(b"another")
    extract(replace(source(), store=FileStore()), bodies[2])
    assert [body.calls for body in bodies] == [2, 0, 1]


class Dies(nn.Module):
    def __init__(self, at: int) -> None:
        super().__init__()
        self.body, self.calls, self.at = network(), 0, at

    def forward(self, images: torch.Tensor) -> Any:
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return self.body(images)


def test_an_interrupted_extraction_continues_where_it_was(caplog: pytest.LogCaptureFixture) -> None:
    expected = rows(extract(source(), network(), cache=cache_folder() / "other"))
    with pytest.raises(KeyboardInterrupt):
        extract(source(), Dies(at=3), batch_size=10, name="a")
    second = Dies(at=9)
    with caplog.at_level(logging.INFO, logger="mslg"):
        assert torch.equal(rows(extract(source(), second, batch_size=10, name="a")), expected)
    assert second.calls == 1
    assert "20 of 30 samples are cached already" in caplog.text


def test_a_row_that_was_cut_off_or_damaged_is_computed_anew(caplog: pytest.LogCaptureFixture) -> None:
    expected = rows(extract(source(), Counting(network()))).clone()
    (file,) = files()
    content = bytearray(file.read_bytes())
    content[40] ^= 255  # in the first row
    file.write_bytes(content[:-3])
    body = Counting(network())
    assert torch.equal(rows(extract(source(), body)), expected)
    assert body.calls == 1, "one batch of two rows"
    assert "1 rows of" in caplog.text
    file.write_bytes(b"nonsense")
    assert torch.equal(rows(extract(source(), body)), expected)
    assert "is damaged and is computed again" in caplog.text


@pytest.mark.parametrize("in_memory", [True, False])
def test_large_photos_are_decoded_at_twice_the_side_of_the_backbone(
    in_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(2):
            small = Image.fromarray(random.integers(0, 255, (9, 12, 3), dtype=np.uint8))
            photo = small.resize((480, 640), Image.Resampling.BICUBIC)
            exif = photo.getexif()
            exif[0x0112] = 6  # a telephone held upright: 640 × 480 when seen
            photo.save(tmp_path / name / f"{number}.jpg", quality=90, exif=exif)
    if not in_memory:
        monkeypatch.setattr("mslg.data.readers.image_files.IN_MEMORY", 0)
    photos = folder(tmp_path, reading=Reading(workers=0)).train
    assert frame_of(photos.store) == (480, 640, 1.0)
    prepare, body = Augment.parse("resize-32 centre-32"), nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 3))
    decoded = []
    monkeypatch.setattr(
        "mslg.data.image_stores.read_with_checksum",
        lambda *given: decoded.append(given[1]) or read_with_checksum(*given),
    )
    found = extract(photos, body, prepare=prepare)
    assert set(decoded) == {(64, 85, 1.0)}
    assert frame_of(found.store.files) == (480, 640, 1.0)  # type: ignore[attr-defined]
    whole = prepare.measuring(next(iter(photos.store.batches([torch.arange(4)]))))
    assert (rows(found) - whole.flatten(1)).abs().mean() < 0.01


def test_random_changes_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    found = preparation("mlp", source(), Augment.parse("flip crop-4 normalise-0.5"))
    assert found.words == ["normalise-0.5"]
    assert "random augmentation is left out: flip crop-4" in caplog.text


def test_networks_of_libraries_get_the_images_they_were_trained_on() -> None:
    assert preparation("torchvision:resnet50", source()).words == [
        *("rgb", "resize-224", "centre-224", "normalise-imagenet")
    ]
    assert preparation("timm:x", source(), Augment.parse("resize-64")).words == ["resize-64"]


def test_a_backbone_does_not_depend_on_the_run_and_untrained_ones_are_told(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(1)
    first = backbone("cnn8", source()).state_dict()
    torch.manual_seed(2)
    second = backbone("cnn8", source()).state_dict()
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert "the backbone cnn8 is untrained, so its features are of little use" in caplog.text


def test_progress_is_told_in_lines_where_there_is_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="mslg"):
        extract(source(), network(), batch_size=3)
    lines = [record.message for record in caplog.records if "of 30 samples" in record.message]
    starts = [f"features (Sequential): {count} of 30 samples" for count in (6, 12, 18, 24, 30)]
    assert [line.partition(",")[0] for line in lines] == starts
    assert lines[0].endswith(", about 0 s left")
    assert lines[-1] == starts[-1]


def test_torchvision_as_a_backbone(tmp_path: Path) -> None:
    torchvision_or_skip()
    from torchvision import models

    torch.manual_seed(0)
    save_file(models.resnet18().state_dict(), tmp_path / "w.safetensors")
    name, data = "torchvision:resnet18", source(PIXELS[:4], LABELS[:4])
    prepare = Augment.parse("rgb resize-32")
    body = backbone(name, data, prepare=prepare, weights=str(tmp_path / "w.safetensors"))
    assert rows(extract(data, body, prepare=prepare)).shape == (4, 512)


def test_features_from_the_command_line_are_computed_once_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "body.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "def make(inputs):\n"
        "    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 48), nn.ReLU(), nn.Linear(48, 10))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    caplog.set_level(logging.INFO, logger="mslg")

    def run(*words: str) -> str:
        caplog.clear()
        done = CliRunner().invoke(app, ["fit", *words])
        assert done.exit_code == 0, done.output + repr(done.exception)
        return caplog.text

    words = [
        "digits",
        "--noise",
        "uniform",
        "--rate",
        "0.4",
        "--clean",
        "100",
        "--features",
        "body:make",
        "--epochs",
        "6",
    ]
    assert "features (body:make): 1300 of 1300 samples" in run(*words, "-o", "a", "--augment", "normalise-0.5")
    config = load_recipe("a/config.toml")
    assert config["data"]["features"] == "body:make"
    assert config["data"]["features_prepare"] == ["normalise-0.5"]
    assert config["train"]["augment"] == []
    assert config["network"]["name"] == "mlp"
    before = Path("a/metrics.jsonl").read_bytes()
    Path("a/done").unlink()
    assert "using the cached features of 1300 samples (body:make)" in run("-o", "a", "--resume", "--trust-code")
    assert Path("a/metrics.jsonl").read_bytes() == before
    assert "using the cached features" in run(*words, "-o", "b", "--augment", "normalise-0.5", "--rate", "0.2")
