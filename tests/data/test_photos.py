"""Real photos and tables: EXIF, transparency, HEIC, and manifests with their own column names."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from mslg.data import images
from mslg.data.images import Frame, look, read
from mslg.data.open import open_named, reading_of
from mslg.data.source import make_source
from mslg.issues.previews import preview_of


def turned_photo(path: Path) -> None:
    """A camera on its side: the file is wide with red on the left; upright it is tall with red on top."""
    pixels = np.full((40, 80, 3), 255, dtype=np.uint8)
    pixels[:, :40] = (255, 0, 0)
    photo = Image.fromarray(pixels)
    tags = photo.getexif()
    tags[0x0112] = 6  # turn clockwise to see it upright
    photo.save(path, exif=tags, quality=95)


def test_orientation_is_applied_once_in_training_and_on_the_page(tmp_path: Path) -> None:
    turned_photo(tmp_path / "a.jpg")
    assert look(tmp_path / "a.jpg") == (40, 80)
    pixels = read(tmp_path / "a.jpg", None, 3)
    assert isinstance(pixels, np.ndarray)
    assert pixels.shape == (3, 80, 40)
    assert pixels[1, 5].mean() < 30, "red on top"
    assert pixels[1, 75].mean() > 225, "white below"
    small = read(tmp_path / "a.jpg", Frame(20, 10), 3)
    assert isinstance(small, np.ndarray)
    assert small.shape == (3, 20, 10)
    assert small[1, 2].mean() < 60
    assert small[1, 17].mean() > 200

    class Files:
        def __len__(self) -> int:
            return 2

        def path(self, position: int) -> Path:
            return tmp_path / "a.jpg"

    source = make_source(np.zeros((2, 3), dtype=np.float32), [0, 1])
    object.__setattr__(source, "store", Files())
    shown = np.asarray(Image.open(BytesIO(preview_of(source, 0, side=224).content)).convert("RGB"))
    assert shown.shape == (80, 40, 3)
    assert shown[5, :, 1].mean() < 30


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_is_transparent_is_white(tmp_path: Path, mode: str) -> None:
    picture = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    picture.putpixel((0, 0), (0, 0, 0, 255))
    picture.convert(mode).save(tmp_path / "a.png")
    pixels = read(tmp_path / "a.png", None, 3)
    assert isinstance(pixels, np.ndarray)
    assert (pixels[:, 4, 4] == 255).all()


def test_jfif_is_read_and_heic_where_there_is_a_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8), "red").save(tmp_path / name / "1.jfif", "JPEG")
        (tmp_path / name / "2.HEIC").write_bytes(b"not really")
        (tmp_path / name / "4.avif").write_bytes(b"not really")
        (tmp_path / name / "3.cr2").write_bytes(b"of a camera")
        (tmp_path / name / "notes.txt").write_text("no image")
    monkeypatch.setattr(images, "reads_heic", lambda: False)
    monkeypatch.setattr(images, "reads_avif", lambda: False)
    assert len(open_named(str(tmp_path)).train) == 2
    assert "2 HEIC photos are left out; to read them: pip install 'mslg[heic]'" in caplog.text
    assert "2 AVIF photos are left out; to read them: pip install 'pillow>=11.3'" in caplog.text
    assert "2 files left out, of a format that is not read (ant/3.cr2); convert to JPEG" in caplog.text
    assert "pip install 'mslg[heic]'" in str(look(tmp_path / "ant" / "2.HEIC"))


@pytest.mark.skipif(not images.reads_avif(), reason="this Pillow reads no AVIF")
def test_an_avif_photo_is_read_from_a_folder(tmp_path: Path) -> None:
    for name, colour in (("ant", "red"), ("bee", "blue")):
        (tmp_path / name).mkdir()
        Image.new("RGB", (16, 16), colour).save(tmp_path / name / "a.avif")
    train = open_named(str(tmp_path)).train
    assert list(train.ids) == ["ant/a.avif", "bee/a.avif"]


def test_a_heic_photo_is_read(tmp_path: Path) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    assert images.reads_heic()
    pillow_heif.from_pillow(Image.new("RGB", (16, 16), "red")).save(tmp_path / "a.heic")
    pixels = read(tmp_path / "a.heic", None, 3)
    assert isinstance(pixels, np.ndarray)
    assert pixels[0].mean() > 200


ROWS = pd.DataFrame(
    {"review": ["good one", "bad one", "good two"], "stars": ["007", "NA", "007"], "key": ["a", "b", "c"]}
)
COLUMNS = {"label_column": "stars", "text_column": "review", "id_column": "key"}


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".xlsx", ".parquet"])
def test_a_table_with_its_own_column_names(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"data{ending}"
    if ending == ".xlsx":
        pytest.importorskip("openpyxl")
        ROWS.to_excel(path, index=False)
    elif ending == ".parquet":
        ROWS.to_parquet(path)
    else:
        ROWS.to_csv(path, index=False, sep="," if ending == ".csv" else "\t")
    train = open_named(str(path), reading=reading_of(COLUMNS)).train
    assert train.classes == ("007", "NA")
    assert train.ids == ("a", "b", "c")


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    ROWS.to_csv(tmp_path / "data.csv", index=False)
    with pytest.raises(ValueError, match=r"no column 'star' \(--label-column\); it has: review.*Did you mean 'stars'"):
        open_named(str(tmp_path / "data.csv"), reading=reading_of({**COLUMNS, "label_column": "star"}))
    with pytest.raises(ValueError, match="no column 'label'"):
        open_named(str(tmp_path / "data.csv"))
