"""The controls of a run: which there are, what they see, what is left of them, and how they survive an interrupt."""

from __future__ import annotations

import json
import logging
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import mslg
from mslg.cli.app import app
from mslg.data.make_splits import make_splits
from mslg.data.source import make_source
from mslg.data.splits import Splits
from mslg.methods import METHODS
from mslg.methods.mslg.method import MSLG
from mslg.runs.controls.catalog import CONTROLS, TRIALS
from mslg.runs.controls.comparison import Attempt, Comparison
from mslg.runs.controls.trial import HoldoutPredictions, honest_accuracy
from mslg.runs.recipes import checked
from mslg.training.cost import work_of
from mslg.training.loop import NonFiniteLoss
from mslg.training.loop import train as train_loop
from mslg.training.method import Method, Task
from tests.support.blobs import blobs, small_network

DATA = blobs(samples=160, clean=200)
MORE = blobs(samples=360)
PAIRED = make_source(MORE.x, MORE.given, verified_labels=MORE.true)
FAST: dict[str, Any] = {"method": "mslg", "epochs": 3, "batch_size": 32, "progress": False, "compare": True}
KEPT = {"checksums.json", "config.toml", "metrics.jsonl", "timing.jsonl", "predictions.json", "summary.json", "done"}


def fit(noisy: Any = None, clean: Any = None, *, network: Any = small_network, **settings: Any) -> mslg.Result:
    noisy = (DATA.x, DATA.given) if noisy is None else noisy
    clean = (DATA.clean_x, DATA.clean_y) if clean is None else clean
    return mslg.fit(network, noisy, clean, **{**FAST, **settings})


def names(result: mslg.Result) -> set[str]:
    return {row["name"] for row in result.summary["comparison"]["controls"]}


class Recorder:
    """Notes who is trained, on what."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[Method, Splits]] = []

        def noted(method: Method, data: Splits, **others: Any) -> Any:
            self.seen.append((method, data))
            return train_loop(method, data, **others)

        monkeypatch.setattr("mslg.runs.record.train", noted)

    @property
    def methods(self) -> list[str]:
        return [type(method).__name__ for method, _ in self.seen]


def test_the_summary_tells_what_came_out(tmp_path: Path) -> None:
    result = fit(output=tmp_path / "run", epochs=5)
    comparison = result.summary["comparison"]
    assert comparison["samples"] == 40
    assert comparison["accuracy"] == pytest.approx(result.summary["last"]["report/accuracy"])
    assert "of 40 held-out clean samples" in comparison["verdict"]
    for row in comparison["controls"]:
        assert row["words"] == CONTROLS[row["name"]].words
        assert row["difference"] == pytest.approx(comparison["accuracy"] - row["accuracy"])
        assert -1 <= row["low"] <= row["difference"] <= row["high"] <= 1
        if not CONTROLS[row["name"]].chosen:
            (trial,) = CONTROLS[row["name"]].trials
            kept = json.loads((tmp_path / "run" / "controls" / trial / "summary.json").read_text())["last"]
            assert (row["accuracy"], row["select_accuracy"]) == (kept["report/accuracy"], kept["select/accuracy"])
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert written["comparison"] == comparison


def test_only_small_files_are_left_of_a_control(tmp_path: Path) -> None:
    fit(output=tmp_path / "run")
    folders = {path.name: path for path in (tmp_path / "run" / "controls").iterdir()}
    assert set(folders) == set(TRIALS) - {"gold-correction"}
    for name, folder in folders.items():
        assert {path.name for path in folder.iterdir()} == KEPT, name
        config = tomllib.loads((folder / "config.toml").read_text())
        assert config["method"]["name"] == (TRIALS[name].method or "mslg")
        checked(config)  # it is a recipe
    decays = [
        tomllib.loads((folders[name] / "config.toml").read_text())["train"]["weight_decay"]
        for name in ("cross-entropy", "cross-entropy-decay")
    ]
    assert decays == pytest.approx([1e-4, 1e-3])


def test_every_control_gets_the_same_samples_schedule_and_start(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Recorder(monkeypatch)
    fit(PAIRED, 200)
    (own, data), *others = trained.seen
    assert len(others) == len(TRIALS)
    for method, seen in others:
        assert seen is data, "the same division, so equally many clean samples"
        assert method.task is not own.task
        for key in ("given", "classes", "epochs", "batch_size", "schedule", "pairs", "seed"):
            assert getattr(method.task, key) is getattr(own.task, key), key
    fresh = Task(own.task.given, 4, small_network, 3, seed=own.task.seed).new_network().state_dict()
    for trial in TRIALS.values():
        comparison = Comparison(own, {}, data, {"method": {"name": "mslg"}, "train": {"epochs": 3}}, None)
        start = comparison._build(trial, 3).deployed().state_dict()
        assert all(torch.equal(start[key], value) for key, value in fresh.items())


def test_the_verdict_is_on_the_test_set_if_there_is_one(tmp_path: Path) -> None:
    test = (MORE.x[:300], MORE.true[:300])
    result = fit(test=test, output=tmp_path / "run")
    found = result.summary["comparison"]
    assert found["samples"] == 300
    assert found["on_test"]
    assert "% of 300 test samples" in found["verdict"]
    assert found["accuracy"] == pytest.approx(result.summary["last"]["test/accuracy"])
    for row in found["controls"]:
        if row["name"] in ("clean-only", "cross-entropy"):
            lines = (tmp_path / "run" / "controls" / row["name"] / "metrics.jsonl").read_text().splitlines()
            assert row["accuracy"] == pytest.approx(json.loads(lines[-1])["test/accuracy"])


def test_a_network_that_was_passed_as_a_module_is_not_trained_by_the_controls() -> None:
    networks = [small_network(), small_network()]
    networks[1].load_state_dict(networks[0].state_dict())
    alone, compared = (fit(network=each, compare=on) for each, on in zip(networks, (False, True), strict=True))
    for left, right in zip(alone.model.state_dict().values(), compared.model.state_dict().values(), strict=True):
        assert torch.equal(left, right)
    by_factory = fit(method="cross-entropy", network=lambda: _copy(networks[0]))
    assert names(by_factory) == set(CONTROLS) - {"cross-entropy", "gold-correction", "no-label-learning"}


def _copy(network: nn.Module) -> nn.Module:
    made = small_network()
    made.load_state_dict(network.state_dict())
    return made


def test_a_run_is_the_same_with_and_without_a_comparison(tmp_path: Path) -> None:
    fit(output=tmp_path / "with")
    fit(output=tmp_path / "without", compare=False)
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()
    assert not (tmp_path / "without" / "controls").exists()
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("with", "without")]
    assert summaries[0].pop("comparison")
    assert summaries[0] == summaries[1]


def test_gold_correction_takes_part_only_where_clean_samples_carry_both_labels() -> None:
    without = fit()
    assert names(without) == set(CONTROLS) - {"gold-correction"}
    (left_out,) = without.summary["comparison"]["left_out"]
    assert left_out["name"] == "gold-correction"
    assert "with given and verified labels" in left_out["why"]
    assert names(fit(PAIRED, 200)) == set(CONTROLS)


def test_a_method_is_not_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Recorder(monkeypatch)
    assert "no-label-learning" not in names(fit(label_rate=0.0))
    assert trained.methods.count("MSLG") == 1
    assert names(fit(method="noisy-plus-clean")) == set(CONTROLS) - {
        "noisy-plus-clean",
        "gold-correction",
        "no-label-learning",
    }


def test_a_label_table_in_a_file_is_not_shared_with_a_control(tmp_path: Path) -> None:
    table = tmp_path / "labels.table"
    fit(table_file=str(table))
    with_controls = table.read_bytes()
    fit(table_file=str(tmp_path / "other.table"), compare=False)
    assert with_controls == (tmp_path / "other.table").read_bytes()


def test_few_clean_samples_are_not_compared_on(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Recorder(monkeypatch)
    few = fit(clean=(DATA.clean_x[:24], DATA.clean_y[:24])).summary["comparison"]
    assert few["verdict"].startswith("not compared: none of the 24 clean samples is held out: they are too few")
    assert (few["helped"], few["samples"], few["controls"]) == (None, 0, [])
    kept = fit(hold_out=False).summary["comparison"]
    assert "none of the 200 clean samples is held out" in kept["verdict"]
    auto = fit(clean="auto").summary["comparison"]
    assert auto["verdict"].startswith("not compared: there are no clean samples")
    assert trained.methods == ["MSLG"] * 3


def test_a_comparison_is_made_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Recorder(monkeypatch)
    assert "comparison" not in fit(compare=False).summary
    assert len(trained.seen) == 1


class Interrupted(Exception):
    pass


def test_an_interrupted_comparison_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit(output=tmp_path / "whole").summary["comparison"]
    clean_step = METHODS.load("clean-only").step
    steps = 0

    def step(self: Any, batch: Any, clean: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 12:
            raise Interrupted
        return clean_step(self, batch, clean)

    with monkeypatch.context() as patch:
        patch.setattr(METHODS.load("clean-only"), "step", step)
        with pytest.raises(Interrupted):
            fit(output=tmp_path / "run", checkpoint_minutes=0.0)
    run = tmp_path / "run"
    assert {"labels.parquet", "model.safetensors", "summary.json"} <= {path.name for path in run.iterdir()}
    assert not (run / "done").exists(), "the comparison is still to come"
    assert (run / "controls" / "clean-only" / "checkpoint").exists()

    trained = Recorder(monkeypatch)
    done = fit(output=run, resume=True)
    assert trained.methods[1] == "CleanOnly"
    assert trained.methods.count("CrossEntropy") == 1, "the finished one is not trained again, that with more decay is"
    assert done.summary["comparison"] == whole
    assert (run / "done").exists()
    for trial in (tmp_path / "whole" / "controls").iterdir():
        for name in ("metrics.jsonl", "predictions.json", "summary.json"):
            assert (run / "controls" / trial.name / name).read_bytes() == (trial / name).read_bytes()
        assert not (run / "controls" / trial.name / "checkpoint").exists()

    trained.seen.clear()
    again = fit(output=run, resume=True)
    assert len(trained.seen) == 1
    assert again.summary["comparison"] == whole


def test_a_finished_run_can_be_compared_later_and_keeps_its_comparison(tmp_path: Path) -> None:
    fit(output=tmp_path / "run", compare=False)
    later = fit(output=tmp_path / "run", resume=True).summary["comparison"]
    assert later["controls"]
    kept = fit(output=tmp_path / "run", resume=True, compare=False)
    assert kept.summary["comparison"] == later
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["comparison"] == later


def test_in_memory_and_on_disk_it_is_the_same(tmp_path: Path) -> None:
    assert fit().summary["comparison"] == fit(output=tmp_path / "run").summary["comparison"]


def test_the_cost_is_announced_before_training(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mslg.training.cost.seconds_per_plain_step", lambda method, data: 10.0)
    monkeypatch.setattr("mslg.training.cost.programs_per_processor", lambda: 0.5)
    fit(epochs=4)
    told = [record.message for record in caplog.records if record.message.startswith("plan: then")]
    # 5 steps an epoch, 4 epochs, in plain steps: twice 1, 4/3, 2, three of 1 and one of 4/3, and the method's own
    own = MSLG(Task(torch.zeros(8, dtype=torch.int64), 4, small_network, 4), label_rate=0.0)
    work = 5 * (4 + 4 + 4 * 4 / 3 + 8 + 3 + 4 / 3 + sum(own.relative_cost(epoch) for epoch in range(4)))
    minutes = f"{work * 10 / 60:.0f} to {work * 30 / 60:.0f} min"
    assert told == [
        f"plan: then train 6 controls to compare with, {minutes}; skip them with --no-compare (compare=False)"
    ]


def test_within_a_time_budget_controls_that_do_not_fit_are_left_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO, logger="mslg")
    monkeypatch.setattr("mslg.training.cost.seconds_per_plain_step", lambda method, data: 1.0)
    trained = Recorder(monkeypatch)
    result = fit(time_budget=60.0, output=tmp_path / "run")
    assert result.summary["state"] == "done"
    assert "if the time budget allows" in caplog.text
    assert "which exceeds the time budget; resume the run without a budget" in result.summary["comparison"]["verdict"]
    assert len(trained.seen) == 1
    assert fit(output=tmp_path / "run", resume=True).summary["comparison"]["controls"]
    assert fit(time_budget=6000.0).summary["comparison"]["controls"]


def test_a_control_that_diverges_is_left_out_and_does_not_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(self: Any, batch: Any, clean: Any) -> Any:
        raise NonFiniteLoss("'loss' became nan")

    monkeypatch.setattr(METHODS.load("noisy-plus-clean"), "step", diverge)
    for resume in (False, True):
        result = fit(output=tmp_path / "run", resume=resume)
        assert "noisy-plus-clean" not in names(result)
        reasons = {row["name"]: row["why"] for row in result.summary["comparison"]["left_out"]}
        assert reasons["noisy-plus-clean"] == "its training diverged"
    kept = json.loads((tmp_path / "run" / "controls" / "noisy-plus-clean" / "summary.json").read_text())
    assert kept["state"] == "failed"


def test_a_run_too_short_for_a_control_does_without_it() -> None:
    result = fit(method="cross-entropy", epochs=1)
    reasons = {row["name"]: row["why"] for row in result.summary["comparison"]["left_out"]}
    assert "never reaches the fine-tuning on clean samples" in reasons["noisy-then-clean"]


def test_no_help_is_a_warning(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslg.runs.controls.comparison.predictions", lambda method, data, samples: torch.zeros(40, 4))
    comparison = fit(epochs=6).summary["comparison"]
    assert comparison["helped"] is False
    assert comparison["verdict"].startswith("It did not help: -")
    assert " points. mslg was right on 25.0 % of 40 held-out clean samples;" in comparison["verdict"]
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [comparison["verdict"]]


def test_the_command_compares_unless_told_not_to(tmp_path: Path) -> None:
    np.savez(tmp_path / "noisy.npz", X=DATA.x, y=DATA.given)
    np.savez(tmp_path / "clean.npz", X=DATA.clean_x, y=DATA.clean_y)

    def run(*words: str) -> tuple[str, dict[str, Any]]:
        where = tmp_path / "run"
        done = CliRunner().invoke(app, ["fit", "-o", str(where), *words])
        assert done.exit_code == 0, done.output + repr(done.exception)
        return done.output, json.loads((where / "summary.json").read_text())

    data = [str(tmp_path / "noisy.npz"), "--clean", str(tmp_path / "clean.npz"), "--epochs", "3", "--method", "mslg"]
    _, alone = run(*data, "--no-compare")
    assert "comparison" not in alone
    told, summary = run("--resume")
    assert summary["comparison"]["verdict"] in told
    assert "cross-entropy: epoch 3/3" in told
    told, again = run("--resume", "--no-compare")
    assert again["comparison"] == summary["comparison"]
    assert "cross-entropy: epoch" not in told


def test_the_controls_of_a_run_that_goes_on_from_another_are_trained_as_long_as_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit(output=tmp_path / "first", compare=False)
    trained = Recorder(monkeypatch)
    fit(output=tmp_path / "second", epochs=2, from_run=tmp_path / "first")
    (own, _), *others = trained.seen
    assert own.task.epochs == 2
    assert {method.task.epochs for method, _ in others} == {5}
    assert not any(method.task.warm for method, _ in others)


def test_a_trained_instance_that_goes_on_has_no_controls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = small_network()
    first = fit(network=network, output=tmp_path / "first")
    assert first.summary["comparison"]["controls"], "at first its starting state is known"
    trained = Recorder(monkeypatch)
    comparison = fit(network=network, epochs=2, from_run=first).summary["comparison"]
    assert len(trained.seen) == 1
    assert comparison["helped"] is None
    assert "controls cannot start from scratch; pass a function that makes the network" in comparison["verdict"]
    assert fit(epochs=2, from_run=first).summary["comparison"]["controls"]


def test_controls_are_trained_wherever_the_run_is_opened_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    fit(output="runs/first", compare=False)
    fit(output="runs/second", epochs=2, from_run="runs/first", compare=False)
    fit(output="runs/third", epochs=2, from_run="runs/second", compare=False)
    (tmp_path / "there").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    again = {"output": "moved/runs/third", "epochs": 2, "from_run": "runs/second", "resume": True}
    monkeypatch.setattr("mslg.runs.controls.comparison.FEW_EPOCHS", 7)  # for as long as the run
    trained = Recorder(monkeypatch)
    assert fit(**again).summary["comparison"]["controls"]
    assert {method.task.epochs for method, _ in trained.seen[1:]} == {7}

    shutil.rmtree("moved/runs/first")
    told = fit(**again).summary["comparison"]["verdict"]
    assert "moved/runs/second was warm-started from runs/first, which is found neither relative to" in told
    assert f"to {tmp_path} nor to {tmp_path / 'moved' / 'runs' / 'second'} or its parents" in told


def test_every_trial_belongs_to_a_control_and_names_a_method() -> None:
    assert {trial for control in CONTROLS.values() for trial in control.trials} == set(TRIALS)
    assert {trial.method for trial in TRIALS.values()} <= {*METHODS, None}
    assert all(len(control.trials) == 1 or control.chosen for control in CONTROLS.values())


def test_looks_survive_a_file_that_is_an_epoch_ahead() -> None:
    torch.manual_seed(0)
    epochs = [(torch.rand(43) < share, torch.randint(0, 10, (17,))) for share in (0.5, 0.9, 0.4, 0.99)]
    whole = HoldoutPredictions()
    ahead = None
    for place, (right, report) in enumerate(epochs):
        whole.add(right, report)
        if place == 3:
            ahead = json.loads(json.dumps(whole.as_json()))
    assert ahead is not None
    for kept in (3, 4):
        looks = HoldoutPredictions.from_json(ahead, kept)
        for right, report in epochs[kept:]:
            looks.add(right, report)
        assert looks.as_json() == whole.as_json()
    assert whole.best_epoch() == 3


def test_the_best_of_many_epochs_is_not_flattered() -> None:
    torch.manual_seed(0)
    chances = [HoldoutPredictions([torch.rand(40) < 0.5 for _ in range(50)]) for _ in range(100)]
    best = [max(float(right.double().mean()) for right in chance.select) for chance in chances]
    assert sum(best) / 100 > 0.65
    assert sum(honest_accuracy([chance]) for chance in chances) / 100 == pytest.approx(0.5, abs=0.02)
    good = torch.arange(40) >= 4
    assert honest_accuracy([chances[0], HoldoutPredictions([good])]) == pytest.approx(float(good.double().mean()))


def test_the_division_of_the_comparison_never_overlaps() -> None:
    data = make_splits(make_source(DATA.x, DATA.given), make_source(DATA.clean_x, DATA.clean_y))
    assert data.clean is not None
    assert data.select is not None
    assert data.report is not None
    parts = [set(part.index.tolist()) for part in (data.clean, data.select, data.report)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 200


def test_controls_together_take_no_longer_than_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All for a few epochs, then the one that was best on select for as many as the run."""
    trained = Recorder(monkeypatch)
    result = fit(method="mslg", epochs=20, output=tmp_path / "run")
    run, *controls = trained.seen
    work = [work_of(method, data, method.task.epochs) for method, data in (run, *controls)]
    *short, last = [method.task.epochs for method, _ in controls]
    assert 3 <= short[0] < 20
    assert set(short) == {short[0]}
    assert last == 20
    assert sum(work[1:]) <= work[0]
    found = result.summary["comparison"]
    kept = {path.name: json.loads((path / "summary.json").read_text())["last"] for path in controls_of(tmp_path)}
    (whole,) = [name for name in kept if name.endswith("-all-epochs")]
    for row in found["controls"]:
        if not CONTROLS[row["name"]].chosen:
            (trial,) = CONTROLS[row["name"]].trials
            tried = [kept[name] for name in (f"{trial}-all-epochs", trial) if name in kept]
            best = max(tried, key=lambda last: last["select/accuracy"])
            assert (row["accuracy"], row["select_accuracy"]) == (best["report/accuracy"], best["select/accuracy"])
            assert f"--epochs {short[0]}" in row["use"] or best is not tried[-1]
    assert whole.removesuffix("-all-epochs") in TRIALS


def test_behind_a_cheap_method_no_control_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Recorder(monkeypatch)
    result = fit(PAIRED, 200, method="cross-entropy", epochs=10)
    *first, last = [(type(method).__name__, method.task.epochs) for method, _ in trained.seen[1:]]
    assert {epochs for _, epochs in first} == {3}
    assert last[1] == 10
    assert names(result) == set(CONTROLS) - {"cross-entropy", "no-label-learning"}
    assert result.summary["comparison"]["left_out"] == []


def test_the_strongest_of_those_that_seem_as_good_is_trained_for_longest() -> None:
    def looks(*wrong: int) -> HoldoutPredictions:
        return HoldoutPredictions([torch.arange(100) >= number for number in wrong])

    found = {
        Attempt("cross-entropy", 2): looks(30, 10),
        Attempt("noisy-plus-clean", 2): looks(30, 12),
        Attempt("gold-correction", 2): looks(50, 40),
    }
    comparison = object.__new__(Comparison)
    comparison.controls, comparison.epochs = {name: CONTROLS[name] for name, _ in found}, 2
    assert comparison._finalist(comparison._results(found), found) == "noisy-plus-clean"


def test_a_race_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = fit(epochs=20, output=tmp_path / "whole").summary["comparison"]
    last = next(path.name for path in controls_of(tmp_path / "whole", "") if path.name.endswith("-all-epochs"))
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "controls" / last)
    summary = tmp_path / "run" / "summary.json"
    kept = json.loads(summary.read_text())
    del kept["comparison"]
    summary.write_text(json.dumps(kept))
    (tmp_path / "run" / "done").unlink()
    trained = Recorder(monkeypatch)
    assert fit(epochs=20, output=tmp_path / "run", resume=True).summary["comparison"] == whole
    assert [method.task.epochs for method, _ in trained.seen[1:]] == [20]


def controls_of(folder: Path, run: str = "run") -> list[Path]:
    return sorted((folder / run / "controls").iterdir())
