"""States on disk: the same structure back, and never half a file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError

from mslg.runs.checkpoint import load_state, own_memory, save_state
from mslg.runtime import toml
from mslg.runtime.files import write_atomically
from tests.support.blobs import same_state


def test_a_nested_state_comes_back_as_it_was(tmp_path: Path) -> None:
    shared = torch.arange(6.0).view(2, 3)
    state = {
        "tensors": [shared, shared.t(), torch.tensor(3, dtype=torch.int16), torch.empty(0, 4)],
        "optimizer": {"state": {0: {"step": 3, "buffer": shared[0]}}, "groups": [{"lr": 1e-3, "foreach": None}]},
        "text": "ä/ö",
    }
    save_state(tmp_path / "state", state)
    assert same_state(load_state(tmp_path / "state"), state)


def test_things_that_are_not_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"a function \('/here'\) cannot be part of a checkpoint"):
        save_state(tmp_path / "state", {"here": test_a_nested_state_comes_back_as_it_was})


def test_a_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"state is not a checkpoint or is damaged"):
        load_state(tmp_path / "state")


def test_a_failed_write_leaves_the_old_file_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(
        OSError, match=r"No space left on device.*free some space or choose another folder, then resume"
    ):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_several_writers_do_not_mix_their_contents(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([number]) * 300_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write_atomically(path, content), contents))
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


VALUES = st.one_of(st.booleans(), st.integers(-(2**40), 2**40), st.floats(allow_nan=False), st.text())


@given(
    st.dictionaries(st.text(min_size=1), st.one_of(VALUES, st.lists(st.integers()), st.dictionaries(st.text(), VALUES)))
)
def test_toml_text_reads_back_as_the_same_values(values: dict[str, object]) -> None:
    import tomllib

    assert tomllib.loads(toml.dumps(values)) == values


def test_only_what_shares_memory_is_copied() -> None:
    base, own = torch.zeros(4, 4), torch.ones(3)
    found = own_memory({"base": base, "row": base[1], "again": base, "own": own})
    assert found["base"] is base
    assert found["own"] is own
    assert len({tensor.untyped_storage().data_ptr() for tensor in found.values()}) == 4
    assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in found.values())


def test_a_checkpoint_that_finds_no_room_says_what_to_do_and_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_state(tmp_path / "state", {"value": torch.ones(2)})

    def full(*_: object) -> None:
        raise SafetensorError("Error while serializing: No space left on device")

    monkeypatch.setattr("mslg.runs.checkpoint.save_file", full)
    with pytest.raises(OSError, match=r"No space left on device.*free some space or choose another folder"):
        save_state(tmp_path / "state", {"value": torch.zeros(2)})
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert load_state(tmp_path / "state")["value"].tolist() == [1, 1]
