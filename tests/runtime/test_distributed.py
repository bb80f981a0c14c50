"""Two processes on half a batch each do what one does on the whole."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError, safe_open

from mslg.data.make_splits import make_splits
from mslg.data.sample_table import SampleTable
from mslg.data.source import make_source
from mslg.methods import METHODS
from mslg.runtime import distributed
from mslg.runtime.sharding import PerRank, PerSample
from tests.support.blobs import blobs

ROOT = Path(__file__).parents[2]
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


def launched(ranks: int, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    arguments = [*LAUNCHER, str(ranks), *command]
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=500, **options)


def check_equal(names: list[str]) -> None:
    done = launched(2, "-m", "tests.support.two_ranks", *names)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == names
    assert {name: by for name, by in found.items() if not by["trained"] < 1e-10} == {}
    assert {name: by for name, by in found.items() if not by["told"] < 1e-6} == {}


def test_two_ranks_equal_one_process_also_with_batch_norm_over_both() -> None:
    check_equal(["mslg", "+mslg", "cross-fitted by regression"])


@pytest.mark.slow
def test_two_ranks_equal_one_process_for_every_method() -> None:
    check_equal([*METHODS, "+meta-weight-net", "+elr"])


@pytest.mark.slow
def test_so_they_do_when_samples_are_drawn_by_class_or_weight() -> None:
    check_equal(["mslg by class", "mslg by weight", "cross-fitted by weight"])


def test_the_ranks_deal_all_samples_among_themselves() -> None:
    data = blobs(samples=101)
    noisy = make_source(data.x, data.given)
    parts = make_splits(noisy, make_source(data.clean_x, data.clean_y), batch_size=24, clean_batch_size=9, seed=1)
    ranks = [replace(parts, rank=rank, ranks=3) for rank in range(3)]
    assert sorted(torch.cat([part.own() for part in ranks]).tolist()) == list(range(101))
    left_out = []
    for epoch in range(4):
        batches = [list(part.batches(epoch)) for part in ranks]
        assert {len(found) for found in batches} == {parts.steps()}
        for together in zip(*batches, strict=True):
            assert len({len(batch.index) for batch in together}) == 1, "equally many, so that means may be averaged"
        for rank, found in enumerate(batches):
            index = torch.cat([batch.index for batch in found])
            assert (index % 3 == rank).all()
            assert len(index.unique()) == len(index) == 33
        seen = {int(i) for found in batches for batch in found for i in batch.index}
        left_out.append(frozenset(set(range(101)) - seen))
    assert all(len(few) == 2 for few in left_out)
    assert len(set(left_out)) > 1, "others each time"
    whole = [next(parts.clean_batches(0)).index.tolist()]
    assert [index for part in ranks for index in next(part.clean_batches(0)).index.tolist()] == whole[0]


def test_ranks_draw_random_numbers_of_their_own_and_the_first_those_of_one_process() -> None:
    assert distributed.rank_key() == ()
    assert distributed.ranks() == 1


def test_a_clean_batch_that_is_too_small_for_the_ranks_is_refused() -> None:
    data = blobs(samples=60)
    parts = make_splits(make_source(data.x, data.given), make_source(data.clean_x, data.clean_y), clean_batch_size=2)
    batches = replace(parts, rank=0, ranks=3).clean_batches(0)
    with pytest.raises(ValueError, match="a clean batch of 2 samples cannot be divided among 3 processes"):
        next(batches)


def test_the_page_shows_the_example_as_it_is() -> None:
    assert (ROOT / "examples" / "ray_train.py").read_text().rstrip() in (ROOT / "docs" / "distributed.md").read_text()


@pytest.mark.parametrize("before", [1, 2, 3, 5])
def test_rows_are_dealt_anew_to_another_number_of_ranks(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = torch.arange(22.0).view(11, 2)
    parts = [whole[rank::before] for rank in range(before)]
    for ranks in (1, 2, 4):
        monkeypatch.setattr(distributed, "ranks", lambda ranks=ranks: ranks)
        for rank in range(ranks):
            monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
            assert torch.equal(PerSample.share(parts), whole[rank::ranks])
            amounts = [torch.tensor(6.0)] * before
            assert float(PerRank.share(amounts)) == pytest.approx(6 * before / ranks)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3)])
def test_tables_in_files_are_dealt_anew(
    before: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = torch.randn(10, 4)

    def as_rank(rank: int, ranks: int) -> None:
        monkeypatch.setattr(distributed, "ranks", lambda: ranks)
        monkeypatch.setattr(distributed, "rank", lambda: rank)
        monkeypatch.setattr(distributed, "barrier", lambda: None)

    for rank in range(before):
        as_rank(rank, before)
        rows = SampleTable(10, 4, path=tmp_path / "table")
        own = torch.arange(rank, 10, before)
        rows[own] = whole[own]
        rows.begin_checkpoint()
        state = rows.state_dict()
        rows[own] = torch.zeros(len(own), 4)  # after the checkpoint: to be rolled back
    for rank in range(after):
        as_rank(rank, after)
        rows = SampleTable(10, 4, path=tmp_path / "table")
        rows.load_state_dict(state)
        own = torch.arange(rank, 10, after)
        assert torch.equal(rows[own], whole[own])
        if rank == 0:
            first = rows
    as_rank(0, after)
    first.begin_checkpoint()
    first.end_checkpoint()
    kept = {path.name for path in tmp_path.iterdir() if "journal" not in path.name}
    assert kept == ({"table"} if after == 1 else {f"table.{rank}-of-{after}" for rank in range(after)})


FIT = ["-m", "mslg", "fit", "digits", "--noise", "uniform", "--rate", "0.3", "--clean", "200", "--epochs", "4"]


def results(folder: Path) -> tuple[str, dict[str, Any]]:
    summary = json.loads((folder / "summary.json").read_text())
    return (folder / "metrics.jsonl").read_text(), summary


@pytest.mark.slow
def test_a_run_of_two_processes_from_the_command_line(tmp_path: Path) -> None:
    done = launched(2, *FIT, "-o", str(tmp_path / "run"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    metrics, summary = results(tmp_path / "run")
    assert len(metrics.splitlines()) == 5
    assert summary["state"] == "done"
    assert summary["comparison"]["verdict"]
    assert summary["label_issues"] > 100
    for name in ("done", "labels.parquet", "report.html", "model.safetensors", "suspects.parquet"):
        assert (tmp_path / "run" / name).exists()
    assert done.stderr.count("labels look wrong") == 1, "one of them speaks"
    alone = subprocess.run(
        [sys.executable, *FIT, "-o", str(tmp_path / "one")], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert alone.returncode == 0
    one = results(tmp_path / "one")[1]
    for key in ("test/accuracy", "predictions/accuracy"):
        assert summary["last"][key] == pytest.approx(one["last"][key], abs=0.05)


RESULT = """
import numpy as np, pandas as pd, torch
import mslg
from mslg.runtime import distributed

x = np.random.default_rng(0).normal(size=(80, 2)).astype(np.float32)
how = {"method": "cross-entropy", "epochs": 2, "batch_size": 16, "progress": False, "device": "cpu"}
with distributed.process_group(torch.device("cpu")):
    result = mslg.fit(lambda: torch.nn.Linear(2, 2), (x, (x[:, 0] > 0).astype(int)), output="run", **how)
    pd.testing.assert_frame_equal(result.labels, pd.read_parquet("run/labels.parquet"), check_dtype=False)
    print("rank", distributed.rank(), len(result.labels), result.soft_labels.shape, len(result.predict(x)))
"""


@pytest.mark.slow
def test_every_rank_has_the_result(tmp_path: Path) -> None:
    (tmp_path / "both.py").write_text(RESULT)
    done = launched(2, "both.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    told = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert told == [f"rank {rank} 80 (80, 2) 80" for rank in range(2)]


@pytest.mark.slow
def test_a_rank_that_is_killed_comes_back_and_the_run_ends_the_same(tmp_path: Path) -> None:
    options = ["--no-compare", "--no-report", "--set", "batch_size=16", "--checkpoint-minutes", "0.001"]
    whole = launched(2, *FIT, *options, "-o", str(tmp_path / "whole"), cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr[-3000:]
    killed = tmp_path / "killed"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*LAUNCHER[:-1], "--max-restarts", "2", *LAUNCHER[-1:], "2", *FIT, *options, "-o", str(killed)]
    process = in_second_epoch(
        command, killed, env=environment, cwd=tmp_path, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    workers = [int(pid) for pid in children(process.pid)]
    assert len(workers) == 2
    os.kill(workers[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-3000:]
    assert "resuming from epoch" in errors
    assert results(killed) == results(tmp_path / "whole")
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed"))
    assert first == second


def in_second_epoch(command: list[str], folder: Path, **options: Any) -> subprocess.Popen[str]:
    """A run that has written a checkpoint in the middle of its second epoch. On a busy machine it may pass unseen: then
    there is another try."""
    for _ in range(5):
        process: subprocess.Popen[str] = subprocess.Popen(command, **options)
        if seen_in_second_epoch(process, folder):
            return process
        process.communicate(timeout=60)
        shutil.rmtree(folder)
    raise AssertionError("no checkpoint in the second epoch")


def seen_in_second_epoch(process: subprocess.Popen[str], folder: Path) -> bool:
    """Whether there is such a checkpoint before the run ends."""
    until = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        try:
            if (folder / "checkpoint" / "shards.json").exists():
                skeleton = json.loads((folder / "checkpoint" / "shards.json").read_text())["skeleton"]
            else:
                with safe_open(folder / "checkpoint" / "state.safetensors", framework="pt") as file:
                    skeleton = json.loads(file.metadata()["skeleton"])
            position = dict(dict(skeleton["__dict__"])["position"]["__dict__"])
            if position["epoch"] == 1 and position["step"] > 0:
                return True
        except (OSError, ValueError, RuntimeError, SafetensorError):  # replaced while it is being read
            pass
        time.sleep(0.005)
    return False


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 3)])
def test_a_run_goes_on_with_another_number_of_processes(before: int, after: int, tmp_path: Path) -> None:
    options = ["--no-compare", "--no-report", "--set", "batch_size=18", "--checkpoint-minutes", "0.001"]
    folder = tmp_path / "run"
    command = [*LAUNCHER, str(before), *FIT, *options, "-o", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    silent: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = in_second_epoch(command, folder, env=environment, cwd=tmp_path, **silent)
    for worker in [process.pid, *map(int, children(process.pid))]:  # the launcher first, or it starts them again
        os.kill(worker, signal.SIGKILL)
    process.wait()
    again = launched(after, *FIT, *options, "-o", str(folder), "--resume", cwd=tmp_path)
    assert again.returncode == 0, again.stderr[-3000:]
    assert "resuming from epoch 2, step" in again.stderr
    metrics, summary = results(folder)
    assert [json.loads(line)["epoch"] for line in metrics.splitlines()[1:]] == [0, 1, 2, 3]
    assert summary["state"] == "done"
    assert summary["last"]["test/accuracy"] > 0.8
    assert summary["last"]["predictions/accuracy"] > 0.8
    left = {path.name for path in (folder / "checkpoint").iterdir()}
    assert ("state.safetensors" in left) == (after == 1)
    assert ("shards.json" in left) == (after > 1)


def test_a_process_that_waits_for_others_heeds_a_signal() -> None:
    """Python runs handlers between its own instructions only: a wait in C++ would hold them back."""
    never = threading.Event()

    def leave(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, leave)
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(KeyboardInterrupt):
            distributed._interruptible(lambda: libc_wait(never))
    finally:
        signal.signal(signal.SIGTERM, before)
        never.set()


def libc_wait(end: threading.Event) -> None:
    while not end.is_set():
        ctypes.CDLL(None).usleep(500_000)  # no Python meanwhile, as in a rendezvous


def test_errors_of_waiting_are_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        distributed._interruptible(lambda: print(1 / 0))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[/x/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1234"),
        RuntimeError("Broken pipe"),
        torch.distributed.DistNetworkError("failed to recv, got 0 bytes"),
    ],
)
def test_a_lost_process_is_said(error: RuntimeError) -> None:
    said = "another process of this run has ended; its own message says why"
    with pytest.raises(ConnectionError, match=said), distributed._noticing_lost_peers():
        raise error


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(RuntimeError, match=r"^mat1 and mat2"), distributed._noticing_lost_peers():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_waits_for_one_that_never_comes_ends_when_asked(tmp_path: Path, rank: int) -> None:
    data = blobs()
    np.savez(tmp_path / "data.npz", X=data.x, y=data.given)
    main = socket.create_server(("127.0.0.1", 0))  # stands in for the store of rank 0, which never answers
    address = main.getsockname()
    if rank == 0:
        main.close()
    about = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": address[0], "MASTER_PORT": str(address[1])}
    words = [sys.executable, "-m", "mslg", "fit", "data.npz", "-o", "run", "--method", "cross-entropy", "--epochs", "1"]
    environment = {**os.environ, **about, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    if rank == 0:
        while not connects(address):
            assert process.poll() is None
            time.sleep(0.1)
    else:
        main.settimeout(200)
        main.accept()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    main.close()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert rank == 1 or "interrupted by SIGTERM; the run had not begun" in said


def connects(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address).close()
    except OSError:
        return False
    return True
