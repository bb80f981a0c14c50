"""Damaged and hostile files of every kind that is read end with a message that names the file."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mslg.data.open_clean import decided_samples
from mslg.data.open_labels import open_labels, open_verified
from mslg.data.readers import array_files, tables
from mslg.data.readers.probabilities import read_probabilities
from mslg.data.readers.tables import read_csv, read_excel, read_parquet
from mslg.data.relabel import relabelled
from mslg.data.source import make_source
from mslg.data.votes import open_votes
from mslg.networks.weights import read_weights


def test_a_text_that_stands_for_many_rows_is_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (array_files, tables):
        monkeypatch.setattr(module, "FREE", 1000)
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"text": ["x" * 10_000] * 4000, "label": [0, 1] * 2000}), path)
    with pytest.raises(ValueError, match=r"data\.parquet cannot be read as Parquet \(it holds 40,000,000 bytes"):
        read_parquet(path)
    pq.write_table(pa.table({"text": [f"text {number}" for number in range(4000)], "label": [0, 1] * 2000}), path)
    assert read_parquet(path)["text"].iloc[7] == "text 7"


def test_a_workbook_that_expands_without_end_is_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "FREE", 1000)
    with zipfile.ZipFile(tmp_path / "data.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", bytes(3_000_000))
    with pytest.raises(ValueError, match="it holds 3,000,000 bytes of data"):
        read_excel(tmp_path / "data.xlsx")


def test_parquet_with_a_damaged_description_of_its_index(tmp_path: Path) -> None:
    table = pa.Table.from_pandas(pd.DataFrame({"a": [1.0, 2.0]}))
    about = json.loads(table.schema.metadata[b"pandas"])
    del about["index_columns"][0]["start"]
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(about)}), tmp_path / "data.parquet")
    with pytest.raises(ValueError, match=r"data\.parquet cannot be read as Parquet"):
        read_parquet(tmp_path / "data.parquet")


@pytest.mark.parametrize(
    "content",
    [b"\x80\x02e.", b"\x80\x02]q\x00", b"", b"PK\x03\x04", bytes(range(100))],
    ids=["truncated", "open list", "empty", "archive", "noise"],
)
def test_damaged_weights(tmp_path: Path, content: bytes) -> None:
    for name in ("w.pt", "w.safetensors"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name} is not a file of plain weights"):
            read_weights(tmp_path / name)


def test_true_labels_of_two_columns() -> None:
    with pytest.raises(ValueError, match=r"the true labels of the data have the shape \(4, 2\)"):
        make_source(np.ones((4, 2)), [0, 1, 0, 1], true_labels=np.zeros((4, 2), dtype=int))


SOURCE = make_source(np.ones((4, 2)), [0, 1, 0, 1], ids=["a", "b", "c", "d"])
READERS: dict[str, Callable[[Path], Any]] = {
    "votes": open_votes,
    "probabilities": read_probabilities,
    "labels": open_labels,
    "verified": lambda path: open_verified(path, SOURCE),
    "new labels": lambda path: relabelled(SOURCE, path),
    "weights": read_weights,
}


@pytest.mark.parametrize("kind", [".csv", ".parquet", ".npy"])
@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, reader: str, kind: str) -> None:
    os.mkfifo(tmp_path / f"x{kind}")
    with pytest.raises(ValueError, match=rf"x{kind}"):
        READERS[reader](tmp_path / f"x{kind}")


@pytest.mark.parametrize("reader", ["votes", "probabilities", "labels", "verified", "new labels"])
def test_a_damaged_table_is_named(tmp_path: Path, reader: str) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1" + os.urandom(200) + b"PAR1")
    with pytest.raises(ValueError, match=r"x\.parquet"):
        READERS[reader](tmp_path / "x.parquet")
    (tmp_path / "x.csv").write_bytes(b'a,b\n"' + os.urandom(200) + b"\xff\xfe")
    with pytest.raises(ValueError, match=r"x\.csv"):
        READERS[reader](tmp_path / "x.csv")


def test_damaged_decisions_as_clean_samples(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(b'a,b\n"\xff\xfe')
    with pytest.raises(ValueError, match=r"d\.csv cannot be read as a table"):
        read_csv(tmp_path / "d.csv")
    (tmp_path / "d.csv").write_text("id,decision,label\na,keep,0\n")
    found = decided_samples(tmp_path / "d.csv", SOURCE)
    assert found is not None
    assert found.ids == ("a",)
