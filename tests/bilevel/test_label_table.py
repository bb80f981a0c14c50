"""The label table: rows by index, in memory or in a file that finds its way back."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch

from mslg.bilevel.label_table import LabelTable

GIVEN = torch.tensor([0, 2, 1, 2])


def test_a_table_starts_at_k_times_one_hot() -> None:
    table = LabelTable(torch.tensor([3]), 10, start=10.0)
    soft = table.soft(torch.tensor([0]))[0].double()
    assert soft[3].item() == pytest.approx(0.9995915675, abs=1e-6)
    assert soft[0].item() == pytest.approx(4.5381387e-5, rel=1e-4)
    assert table.log_soft(torch.tensor([0]))[0, 0].item() == pytest.approx(-10.0004085, abs=1e-5)


def test_soft_labels_are_rows_that_sum_to_one() -> None:
    table = LabelTable(GIVEN, 3)
    table.add(torch.arange(4), torch.randn(4, 3))
    assert torch.allclose(table.soft(torch.arange(4)).sum(1), torch.ones(4))


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_only_the_rows_named_change(tmp_path: Path, in_file: bool, dtype: torch.dtype) -> None:
    table = LabelTable(GIVEN, 3, dtype=dtype, path=tmp_path / "table" if in_file else None)
    before = table.logits(torch.arange(4))
    change = torch.tensor([[1.0, -0.5, 0.25], [2.0, 0.0, -2.0]])
    table.add(torch.tensor([3, 1]), change)
    after = table.logits(torch.arange(4))
    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert torch.equal(after[[3, 1]], before[[3, 1]] + change)


def test_a_file_and_memory_give_the_same_labels(tmp_path: Path) -> None:
    torch.manual_seed(0)
    memory, file = LabelTable(GIVEN, 3), LabelTable(GIVEN, 3, path=tmp_path / "table")
    for _ in range(5):
        index, change = torch.randperm(4)[:2], torch.randn(2, 3)
        memory.add(index, change)
        file.add(index, change)
    assert torch.equal(memory.soft(torch.arange(4)), file.soft(torch.arange(4)))


def test_a_file_rolls_back_to_its_checkpoint(tmp_path: Path) -> None:
    table = LabelTable(GIVEN, 3, path=tmp_path / "table")
    table.add(torch.tensor([0, 1]), torch.ones(2, 3))
    table.displacement.begin_checkpoint()
    state = table.state_dict()
    table.displacement.end_checkpoint()
    at_checkpoint = table.logits(torch.arange(4)).clone()
    table.add(torch.tensor([1, 2]), torch.randn(2, 3))
    table.add(torch.tensor([1, 3]), torch.randn(2, 3))
    table.displacement.begin_checkpoint()  # a second one that never reaches the disk
    table.add(torch.tensor([2]), torch.randn(1, 3))
    again = LabelTable(GIVEN, 3, path=tmp_path / "table")
    again.load_state_dict(state)
    assert torch.equal(again.logits(torch.arange(4)), at_checkpoint)


def test_a_file_without_any_checkpoint_starts_over(tmp_path: Path) -> None:
    LabelTable(GIVEN, 3, path=tmp_path / "table").add(torch.tensor([0]), torch.ones(1, 3))
    again = LabelTable(GIVEN, 3, path=tmp_path / "table")
    assert torch.equal(again.logits(torch.arange(4)), LabelTable(GIVEN, 3).logits(torch.arange(4)))


def test_a_record_cut_short_by_a_kill_is_passed_over(tmp_path: Path) -> None:
    table = LabelTable(GIVEN, 3, path=tmp_path / "table")
    table.add(torch.tensor([0]), torch.ones(1, 3))
    with (tmp_path / "table.journal-0").open("ab") as journal:
        journal.write(b"\x01\x00\x00")
    again = LabelTable(GIVEN, 3, path=tmp_path / "table")
    assert torch.equal(again.logits(torch.arange(4)), LabelTable(GIVEN, 3).logits(torch.arange(4)))


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    LabelTable(GIVEN, 3, path=tmp_path / "table").soft(torch.tensor([0]))
    with pytest.raises(ValueError, match=r"has 48 bytes, a table of 4 × 5 needs 80; it belongs to other data"):
        LabelTable(GIVEN, 5, path=tmp_path / "table").soft(torch.tensor([0]))


def test_the_space_of_a_file_is_reserved_before_it_is_mapped(tmp_path: Path) -> None:
    """On a full disk, writing to a sparse file that is mapped would end the process by a signal."""
    table = LabelTable(torch.zeros(20_000, dtype=torch.int64), 100, dtype=torch.float16, path=tmp_path / "table")
    table.soft(torch.arange(1000))
    stat = (tmp_path / "table").stat()
    assert stat.st_size == 4_000_000
    assert stat.st_blocks * 512 >= 4_000_000


def test_a_disk_that_is_too_small_is_an_error_with_the_numbers(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        table = LabelTable(torch.zeros(20_000, dtype=torch.int64), 100, dtype=torch.float16, path=tmp_path / "table")
        with pytest.raises(OSError, match=r"a table of 4,000,000 bytes does not fit on the disk of .*free some space"):
            table.soft(torch.arange(10))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "table").exists()
