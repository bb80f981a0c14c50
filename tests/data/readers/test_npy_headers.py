"""Damaged .npy files: a message, whatever reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mslg.data.open_labels import open_labels
from mslg.data.readers.array_files import read_npy
from mslg.data.readers.probabilities import read_probabilities
from mslg.data.votes import open_votes

READERS: list[Callable[[Path], Any]] = [read_npy, read_probabilities, open_labels, open_votes]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_a_header_that_ends_inside_a_bracket(read: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((4, 3)))
    path.write_bytes(path.read_bytes().replace(b"(4, 3), }", b"(4, 3,   "))
    with pytest.raises(ValueError, match=r"x.npy .*header"):
        read(path)


def test_a_mapped_array_is_the_one_in_memory(tmp_path: Path) -> None:
    for number, array in enumerate((np.arange(12.0).reshape(4, 3), np.asfortranarray(np.eye(3)), np.zeros((0, 3)))):
        np.save(path := tmp_path / f"{number}.npy", array)
        mapped = read_npy(path, mapped=True)
        assert mapped.dtype == array.dtype
        np.testing.assert_array_equal(mapped, array)
    path.write_bytes((tmp_path / "0.npy").read_bytes()[:-8])
    with pytest.raises(ValueError, match="cut short"):
        read_npy(path, mapped=True)
