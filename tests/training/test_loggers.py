"""Loggers: every epoch once, under the same names, however the run goes."""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mslg
from mslg.training.loggers import LOGGERS, Logger, Logging, Metrics, Started
from tests.support.blobs import blobs, small_network

DATA = blobs()
EPOCHS = 4


def fit(**settings: Any) -> mslg.Result:
    fast = {"epochs": EPOCHS, "batch_size": 60, "method": "cross-entropy", "progress": False}
    return mslg.fit(small_network, (DATA.x, DATA.given), (DATA.clean_x, DATA.clean_y), **{**fast, **settings})


class Noted:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self.epochs: list[tuple[int, Metrics]] = []
        self.closed = 0

    def begin(self, started: Started) -> None:
        self.started = started

    def log(self, epoch: int, metrics: Metrics) -> None:
        self.epochs.append((epoch, metrics))

    def close(self) -> None:
        self.closed += 1


class Kill(Noted):
    """Ends the run in the middle, before loggers that come after it have heard of the epoch."""

    def log(self, epoch: int, metrics: Metrics) -> None:
        if epoch == 1:
            raise KeyboardInterrupt


def test_a_logger_is_told_what_metrics_jsonl_says(tmp_path: Path) -> None:
    noted, alone = Noted(), Noted()
    assert isinstance(noted, Logger)
    fit(loggers=alone)
    assert len(alone.epochs) == EPOCHS
    fit(output=tmp_path / "run", loggers=[noted])
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[1:]]
    wanted = [
        (line.pop("epoch"), {key: value for key, value in line.items() if math.isfinite(value)}) for line in lines
    ]
    assert noted.epochs == wanted
    assert noted.started is not None
    assert noted.started.folder == tmp_path / "run"
    assert noted.started.config["method"]["name"] == "cross-entropy"
    assert noted.started.history == []
    assert noted.closed == 1


def test_an_own_logger_needs_no_folder() -> None:
    noted = Noted()
    fit(loggers=noted)
    assert [epoch for epoch, _ in noted.epochs] == list(range(EPOCHS))


def test_a_resumed_run_tells_its_history_and_a_finished_one_opens_nothing(tmp_path: Path) -> None:
    first, then, again = Noted(), Noted(), Noted()
    with pytest.raises(KeyboardInterrupt):
        fit(output=tmp_path / "run", loggers=[first, Kill()])
    assert first.closed == 1, "closed however the run ends"
    fit(output=tmp_path / "run", loggers=[then], resume=True)
    assert then.started is not None
    assert [epoch for epoch, _ in then.started.history] == [0, 1]
    assert list(then.started.history) == first.epochs
    assert [epoch for epoch, _ in then.epochs] == [2, 3]
    fit(output=tmp_path / "run", loggers=[again], resume=True)
    assert (again.started, again.closed) == (None, 0)


def test_one_that_fails_to_close_does_not_keep_others_open() -> None:
    class Stuck(Noted):
        def close(self) -> None:
            raise OSError("no space")

    noted = Noted()
    with pytest.raises(OSError, match="no space"):
        fit(loggers=[Stuck(), noted])
    assert noted.closed == 1
    with pytest.raises(KeyboardInterrupt):
        fit(loggers=[Stuck(), Kill()])


def test_mistakes_are_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"unknown logger 'tensorbord'. Did you mean 'tensorboard'\?"):
        fit(output=tmp_path / "run", loggers=["tensorbord"])
    with pytest.raises(TypeError, match=r"is no logger; give a name .* methods begin, log and close"):
        fit(loggers=object())  # once: 'object' object is not iterable
    with pytest.raises(TypeError, match="is no logger; give a name"):
        fit(output=tmp_path / "run", loggers=[print])
    with pytest.raises(ValueError, match=r"keeps its files in the run's folder and there is none; pass output="):
        fit(loggers=["wandb"])
    for name in LOGGERS:
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(
            ImportError, match=rf"{name} is not installed; install it with: pip install 'mslg\[{name}\]'"
        ):
            fit(output=tmp_path / "run", loggers=[name])
    assert not (tmp_path / "run").exists()


def test_a_name_given_twice_is_one_logger(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    assert len(Logging.named(["tensorboard", "tensorboard"], folder=tmp_path).loggers) == 1


def in_tensorboard(run: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(run / "tensorboard"))
    found.Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def in_mlflow(run: Path) -> dict[str, list[tuple[int, float]]]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=(run / "mlflow").resolve().as_uri())
    (experiment,) = [each for each in client.search_experiments() if each.name == "mslg"]
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.data.params["method.name"] == "cross-entropy"
    assert found.info.status == "FINISHED"
    history = {name: client.get_metric_history(found.info.run_id, name) for name in found.data.metrics}
    return {name: [(point.step, point.value) for point in points] for name, points in history.items()}


def in_wandb(run: Path) -> dict[str, list[tuple[int, float]]]:
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = (run / "wandb").glob("offline-run-*/*.wandb")
    found: dict[str, list[tuple[int, float]]] = {}
    for content in records(file.read_bytes()):
        record = Record()
        record.ParseFromString(content)
        items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for name, value in items.items():
            if not name.startswith("_"):
                found.setdefault(name, []).append((items["_step"], value))
    return found


def records(content: bytes, block: int = 32768, header: int = 7) -> Iterator[bytes]:
    """A .wandb file is a LevelDB log: blocks of records, each with a checksum, a length and which part of one it is."""
    place, whole = header, b""  # the file begins with a header as long as a record's
    while place + header <= len(content):
        if block - place % block < header:
            place += block - place % block
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + header])
        whole += content[place + header : place + header + length]
        place += header + length
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


@pytest.mark.parametrize("name", LOGGERS)
def test_a_run_that_was_killed_is_logged_without_gaps_and_without_doubles(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # so that it is put back afterwards
    monkeypatch.delenv("WANDB_MODE", raising=False)
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fit(output=run, loggers=[Kill(), LOGGERS.load(name)()])  # epoch 1 is in metrics.jsonl, not in this log
    result = fit(output=run, loggers=name, resume=True)
    found = {"tensorboard": in_tensorboard, "wandb": in_wandb, "mlflow": in_mlflow}[name](run)
    history = result.history.set_index("epoch")
    assert set(found) == {column for column in history if history[column].notna().any()}
    for metric, points in found.items():
        assert [step for step, _ in points] == list(range(EPOCHS)), metric
        assert [value for _, value in points] == pytest.approx(history[metric].tolist(), rel=1e-5, abs=1e-6)
