"""What a person is shown of a sample, whatever kind of data it is."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from mslg.data.open import open_named
from mslg.data.source import Source, make_source
from mslg.issues.previews import LONGEST_TEXT, Preview, preview_of, rows_as_json
from mslg.networks.cnn import CNN8
from mslg.networks.features import extract


def source_of(inputs: Any) -> Source:
    first = (
        next(iter(inputs.values())) if isinstance(inputs, dict) else inputs[0] if isinstance(inputs, tuple) else inputs
    )
    return make_source(inputs, [0, 1] * (len(first) // 2))


def opened(view: Preview) -> Image.Image:
    assert view.kind == "image"
    return Image.open(io.BytesIO(view.content))


class Items(Dataset[Any]):
    """Whatever it is given, with labels."""

    def __init__(self, items: list[Any]) -> None:
        self.items, self.targets = items, [place % 2 for place in range(len(items))]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, place: int) -> tuple[Any, int]:
        return self.items[place], self.targets[place]


def test_a_small_picture_keeps_every_pixel() -> None:
    pixels = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    image = opened(preview_of(source_of(pixels), 1, side=224))
    assert image.format == "PNG"
    assert np.array_equal(np.asarray(image), pixels[1].permute(1, 2, 0).numpy())


@pytest.mark.parametrize(("shape", "size"), [((8, 8), (8, 8)), ((1, 28, 20), (20, 28)), ((4, 300, 600), (100, 50))])
def test_tensors_that_are_pictures(shape: tuple[int, ...], size: tuple[int, int]) -> None:
    image = opened(preview_of(source_of(torch.rand(2, *shape)), 0, side=100))
    assert image.size == size
    assert image.mode == ("L" if len(shape) == 2 or shape[0] == 1 else "RGB")


def test_values_outside_of_0_and_1_are_scaled_by_the_sample() -> None:
    grey = torch.tensor([[-3.0, 0.0], [1.0, 5.0]]).repeat(2, 1, 1)
    pixels = np.asarray(opened(preview_of(source_of(grey), 0, side=64)).convert("L"))
    assert pixels.tolist() == [[0, 96], [128, 255]]


def test_a_thin_picture_is_stretched_so_that_something_can_be_seen() -> None:
    image = opened(preview_of(source_of(torch.rand(2, 1, 40, 2000)), 0, side=224))
    assert image.size == (224, 37)


def test_a_file_becomes_a_thumbnail_the_right_way_up(tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        exif = Image.Exif()
        exif[0x0112] = 6  # to be turned by a quarter
        Image.new("RGB", (400, 200), "red").save(tmp_path / name / "1.jpg", exif=exif)
    image = opened(preview_of(open_named(str(tmp_path)).train, 0, side=100))
    assert image.size == (50, 100)
    assert image.format == "WEBP"


def test_a_damaged_file_becomes_a_text_that_says_so(tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (30, 30)).save(tmp_path / name / "1.png")
    source = open_named(str(tmp_path)).train
    (tmp_path / "ant" / "1.png").write_bytes(b"no picture")
    view = preview_of(source, 0, side=100)
    assert view.kind == "text"
    assert view.content.startswith(b"This sample cannot be shown: cannot identify image file")
    assert preview_of(source, 1, side=100).kind == "image"


def test_features_of_pictures_are_shown_as_the_pictures(tmp_path: Path) -> None:
    images = source_of(torch.rand(4, 3, 8, 8))
    found = extract(images, CNN8(2, width=4), name="cnn8", cache=tmp_path, progress=False)
    assert preview_of(found, 2, side=64) == preview_of(images, 2, side=64)
    assert preview_of(found.at(torch.tensor([3, 2])), 1, side=64) == preview_of(images, 2, side=64)


class Tokens(Items):
    """Encoded texts that still know their words."""

    def text(self, place: int) -> str:
        return f"words of {place}"


TEXTS = {
    "the item is a text": (Items(["first", "second"]), "second"),
    "a part of it is": (Items([{"text": "first", "length": 1}, {"text": "second", "length": 2}]), "second"),
    "the Dataset says it": (Tokens([torch.tensor([1, 2]), torch.tensor([3, 4])]), "words of 1"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str) -> None:
    dataset, expected = TEXTS[name]
    source = make_source(dataset)
    assert preview_of(source, 1, side=64) == Preview("text", expected.encode())
    assert preview_of(source.at(torch.tensor([1, 0])), 0, side=64).content == expected.encode()


def test_a_long_text_is_cut() -> None:
    view = preview_of(make_source(Items([9_000 * "x", "y"])), 0, side=64)
    assert view.content.decode() == LONGEST_TEXT * "x" + "… (9000 characters in all)"


def test_a_row_of_a_table_keeps_the_names_of_its_columns(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("id,length,width,label\na,5.123456,3.5,ant\nb,4,3,bee\nc,1,2,ant\n")
    source = open_named(str(tmp_path / "table.csv")).train.at(torch.tensor([2, 0]))
    view = preview_of(source, 1, side=64)
    assert view.kind == "values"
    assert json.loads(view.content) == {"length": 2, "values": [5.123, 3.5], "names": ["length", "width"]}


def test_a_signal_is_told_by_its_outline() -> None:
    signal = torch.arange(10_000.0).repeat(2, 1, 1)
    found = json.loads(preview_of(source_of(signal), 0, side=64).content)
    assert found["length"] == 10_000
    assert len(found["low"]) == len(found["high"]) == 128
    assert found["low"][0] == 0
    assert found["high"][-1] == 9999
    assert found["low"] == sorted(found["low"])


def test_rows_as_json_have_four_digits() -> None:
    random = np.random.default_rng(0)
    rows = (random.standard_normal((300, 40)) * 10.0 ** random.integers(-30, 30, (300, 40))).astype(np.float32)
    rows[:3, 0], rows[0, 1:4] = (0.0, -0.0, 99_995.0), (1.2e-38, -1e-7, 123_456.0)
    assert [json.loads(row) for row in rows_as_json(rows)] == [[float(f"{x:.4g}") for x in row] for row in rows]


def test_the_largest_numbers_do_not_round_to_infinity() -> None:
    largest = torch.finfo(torch.float32).max
    found = json.loads(preview_of(source_of(torch.tensor([[largest, -largest]] * 2)), 0, side=64).content)
    assert found["values"] == [3.402e38, -3.402e38]


def test_of_several_inputs_the_one_that_can_be_seen_is_shown() -> None:
    inputs = {"table": torch.rand(2, 5), "image": torch.rand(2, 3, 8, 8)}
    assert preview_of(source_of(inputs), 0, side=64).kind == "image"
    assert preview_of(source_of((torch.rand(2, 7, 7, 7, 7), torch.rand(2, 5))), 0, side=64).kind == "values"
    view = preview_of(source_of(torch.rand(2, 7, 6, 5)), 0, side=64)
    assert view == Preview("text", "Inputs of this shape have no preview: 7×6×5".encode())


def test_a_dataset_that_changes_its_items_leaves_the_random_state_alone() -> None:
    class Random(Items):
        def __getitem__(self, place: int) -> tuple[Tensor, int]:
            return torch.rand(5), 0

    source = make_source(Random([0, 1]))
    before = torch.random.get_rng_state()
    assert preview_of(source, 0, side=64) == preview_of(source, 0, side=64)
    assert torch.equal(torch.random.get_rng_state(), before)
