"""`mslg.fit`: any data in, a model, labels and a history out; every mistake named."""

from __future__ import annotations

import inspect
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import mslg
from mslg.data.source import make_source
from mslg.fitting.prepare import method_arguments
from mslg.methods import METHODS
from mslg.methods.mslg.method import MSLG
from mslg.runs.checkpoint import load_state
from mslg.runs.settings import Named
from tests.support.blobs import blobs, small_network

DATA = blobs()
NOISY = (DATA.x, DATA.given)
CLEAN = (DATA.clean_x, DATA.clean_y)
LABEL_RATE = inspect.signature(MSLG).parameters["label_rate"].default
FAST: dict[str, Any] = {"epochs": 4, "batch_size": 32, "progress": False}
SHORT: dict[str, Any] = {"method": "mslg", "epochs": 2}  # where the method does not matter


def fit(network: Any = small_network, noisy: Any = NOISY, clean: Any = CLEAN, **settings: Any) -> mslg.Result:
    return mslg.fit(network, noisy, clean, **{**FAST, **settings})


def test_arrays_in_model_and_labels_out() -> None:
    result = fit(epochs=12, test=(DATA.test_x, DATA.test_y), true_labels=DATA.true)
    assert result.summary["last"]["test/accuracy"] > 0.85
    assert result.summary["last"]["predictions/accuracy"] > result.summary["last"]["given/accuracy"] + 0.1
    assert result.soft_labels.shape == (240, 4)
    assert np.allclose(result.soft_labels.sum(1), 1, atol=1e-5)
    expected = ["id", "given_label", "predicted_label", "is_label_issue", "label_quality", "suggested_label"]
    assert list(result.labels.columns) == [*expected, "soft_label", "rank"]
    assert sorted(result.labels["rank"]) == list(range(240))
    worst = result.labels.sort_values("rank").head(40)
    wrong = DATA.given[worst.index] != DATA.true[worst.index]
    assert wrong.mean() > 0.8
    kept = ~result.labels["is_label_issue"]
    assert (result.labels["suggested_label"][kept] == result.labels["given_label"][kept]).all()
    assert len(result.history) == 12
    assert not result.model.training


class Pairs(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y = torch.as_tensor(x), y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, position: int) -> tuple[torch.Tensor, int]:
        return self.x[position], int(self.y[position])


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x, y: (x, y),
        lambda x, y: (torch.as_tensor(x), torch.as_tensor(y)),
        lambda x, y: (x.tolist(), y.tolist()),
        lambda x, y: TensorDataset(torch.as_tensor(x), torch.as_tensor(y)),
        Pairs,
    ],
    ids=["arrays", "tensors", "lists", "TensorDataset", "Dataset"],
)
def test_every_kind_of_data_gives_the_same_run(wrap: Any) -> None:
    result = fit(noisy=wrap(DATA.x, DATA.given), clean=wrap(DATA.clean_x, DATA.clean_y))
    expected = fit()
    assert result.history["train/loss"].tolist() == expected.history["train/loss"].tolist()
    assert result.labels["suggested_label"].tolist() == expected.labels["suggested_label"].tolist()


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = small_network()

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.body(torch.stack([left, right], 1))
        return logits


@pytest.mark.parametrize("as_dict", [False, True])
def test_networks_with_several_inputs(as_dict: bool) -> None:
    def inputs(x: np.ndarray) -> Any:
        parts = (x[:, 0].copy(), x[:, 1].copy())
        return dict(zip(("left", "right"), parts, strict=True)) if as_dict else parts

    result = fit(TwoInputs, (inputs(DATA.x), DATA.given), (inputs(DATA.clean_x), DATA.clean_y))
    assert len(result.labels) == 240


def test_names_as_labels_come_back_as_names() -> None:
    names = np.array(["north", "east", "south", "west"])
    result = fit(noisy=(DATA.x, names[DATA.given]), clean=(DATA.clean_x, names[DATA.clean_y]))
    assert result.classes == ("east", "north", "south", "west")
    assert result.labels["given_label"].tolist() == names[DATA.given].tolist()
    assert set(result.labels["suggested_label"]) <= set(names)


def test_pixels_as_bytes_reach_the_network_as_fractions() -> None:
    seen = []

    class Look(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((x.dtype, float(x.max())))
            logits: torch.Tensor = self.layer(x)
            return logits

    images = np.random.default_rng(0).integers(0, 256, (240, 2), dtype=np.uint8)
    clean = np.random.default_rng(1).integers(0, 256, (24, 2), dtype=np.uint8)
    fit(Look, (images, DATA.given), (clean, DATA.clean_y), epochs=3)
    assert {dtype for dtype, _ in seen} == {torch.float32}
    assert max(value for _, value in seen) == 1.0


def test_any_optimizer_and_schedule() -> None:
    for name in ("sgd", "adam", "adamw"):
        fit(optimizer=name, learning_rate=0.01, epochs=3)
    result = fit(optimizer=lambda p: torch.optim.RMSprop(p, lr=0.01), schedule="steps", method="mslg", epochs=3)
    assert result.history["optim/lr"].tolist() == pytest.approx([0.01, 0.001, 0.0001])


def test_many_clean_samples_are_divided_into_three_parts() -> None:
    data = blobs(clean=200)
    result = fit(noisy=(data.x, data.given), clean=(data.clean_x, data.clean_y), epochs=3, method="mslg")
    assert result.summary["clean_samples"] == {"meta": 120, "select": 40, "report": 40}
    assert {"select/accuracy", "report/accuracy"} <= set(result.history.columns)
    best = result.summary["best_on_select"]
    assert best["select/accuracy"] == result.history["select/accuracy"].max()


def test_without_a_clean_set_low_loss_samples_stand_in() -> None:
    result = fit(clean="auto", epochs=8, auto_share=0.1)
    chosen = result.method.excluded()
    assert chosen is not None
    assert len(chosen) == 24
    counts = np.bincount(DATA.given[chosen.numpy()], minlength=4)
    assert counts.tolist() == [6, 6, 6, 6]
    assert (DATA.given[chosen.numpy()] == DATA.true[chosen.numpy()]).mean() > 0.9


def test_a_run_on_disk_is_a_readable_folder(tmp_path: Path) -> None:
    result = fit(output=tmp_path / "run", loggers="tensorboard")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    expected = {"config.toml", "metrics.jsonl", "timing.jsonl", "checkpoint", "model.safetensors", "model.json"}
    expected |= {"division.parquet", "labels.parquet", "suspects.parquet", "audit.parquet", "clean_samples.parquet"}
    assert names == expected | {
        "classes.json",
        "summary.json",
        "done",
        "tensorboard",
        "model_card.md",
        "example.safetensors",
        "checksums.json",
        ".lock",
    }
    frame = pd.read_parquet(tmp_path / "run" / "labels.parquet")
    pd.testing.assert_frame_equal(frame.drop(columns="soft_label"), result.labels.drop(columns="soft_label"))
    weights = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(weights[name], value) for name, value in result.model.state_dict().items())
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"format_version": 1, "kind": "metrics"}
    assert [json.loads(line)["epoch"] for line in lines[1:]] == [0, 1, 2, 3]
    for name in ("model.json", "classes.json", "summary.json"):
        assert json.loads((tmp_path / "run" / name).read_text())["format_version"] == 1
    assert any((tmp_path / "run" / "tensorboard").iterdir())


def test_a_finished_run_resumed_changes_nothing(tmp_path: Path) -> None:
    fit(output=tmp_path / "run")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    labels = pd.read_parquet(tmp_path / "run" / "labels.parquet")
    again = fit(output=tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    assert again.labels["label_quality"].tolist() == labels["label_quality"].tolist()


def test_what_is_recorded_is_what_was_given_whatever_the_method_makes_of_it(tmp_path: Path) -> None:
    """The default raises the weight decay of its deployed network; a run resumed from its record is the same run."""
    done = fit(output=tmp_path / "run", epochs=3, weight_decay=2e-4)
    assert done.run is not None
    recorded = done.run.config["train"]
    assert recorded["weight_decay"] == 2e-4
    again = fit(output=tmp_path / "run", resume=True, epochs=3, weight_decay=recorded["weight_decay"])
    assert again.history.equals(done.history)


def test_a_time_budget_shortens_the_run(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslg.fitting.prepare.seconds_per_plain_step", lambda method, data: 0.1)
    result = fit(method="mslg", epochs=40, time_budget=31.0)
    # 8 steps an epoch, of 40 epochs 6 at 1, 7 at 2 and 27 at 3.4 plain steps: 2.2 s an epoch
    assert len(result.history) == 13
    assert "13 epochs fit into 31 s; 40 were requested" in caplog.text
    with pytest.raises(ValueError, match="a time budget of 1 s is too short: one epoch takes about 2 s"):
        fit(method="mslg", epochs=40, time_budget=1.0)


def test_a_time_budget_too_short_for_the_stages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslg.fitting.prepare.seconds_per_plain_step", lambda method, data: 0.1)
    with pytest.raises(ValueError, match=r"budget of 7 s is too short: a run of 2 epochs .* at least 3 epochs"):
        fit(epochs=40, time_budget=7.0)  # 8 steps an epoch of about 3.4 plain steps


def test_what_a_kill_left_is_cleared_away_and_folders_are_not(tmp_path: Path) -> None:
    fit(output=tmp_path / "run")
    (tmp_path / "run" / ".labels.parquet.1-ab.partial").write_bytes(b"half")
    (tmp_path / "run" / ".mine.partial").mkdir()
    fit(output=tmp_path / "run", resume=True)
    assert [path.name for path in (tmp_path / "run").glob(".*")] == [".lock", ".mine.partial"]


def test_a_time_budget_holds_for_a_run_that_may_be_resumed_but_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mslg.fitting.prepare.seconds_per_plain_step", lambda method, data: 0.1)
    result = fit(method="mslg", epochs=40, time_budget=31.0, output=tmp_path / "run", resume=True)
    assert len(result.history) == 13


def test_a_long_run_announces_its_cost(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslg.training.cost.seconds_per_plain_step", lambda method, data: 10.0)
    monkeypatch.setattr("mslg.training.cost.programs_per_processor", lambda: 0.5)
    fit(method="mslg", epochs=4)
    # 1 of 4 epochs of warm-up, 8 steps an epoch: 8·(1 + 3·3.4)·10 s, and three times as long
    assert re.search(
        r"plan: train \w+ with mslg for 4 epochs on \d+ noisy and \d+ clean samples: 15 to 4[56] min", caplog.text
    )


def test_collapsing_labels_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    more = {"entropy_weight": 1.0, "label_rate": 3000.0, "learning_rate": 1.0}
    fit(method="mslg", epochs=8, prior="given", loss="reverse-kl", **more)
    told = [record.message for record in caplog.records if "collapsing" in record.message]
    assert 1 <= len(told) <= 2
    assert "try a smaller label_rate or look_ahead, a longer warm_up" in told[0]


@pytest.mark.parametrize(
    ("method", "settings", "advice"),
    [
        ("cross-entropy", {}, ""),
        ("mslg", {"label_rate": 0.0}, "a smaller learning rate"),
        ("mslg", {}, "a smaller label_rate or look_ahead, a longer warm_up, or more clean samples"),
        ("cross-fitted", {}, "a smaller learning rate, or more clean samples"),
        ("cross-fitted", {"preset": "meta"}, "a smaller label_rate or learning rate, or more clean samples"),
    ],
)
def test_a_warning_names_no_setting_that_the_method_does_not_use(
    method: str, settings: dict[str, Any], advice: str
) -> None:
    assert fit(method=method, epochs=3, **settings).method.advice == advice


def test_a_diverged_run_is_marked_as_failed(tmp_path: Path) -> None:
    with pytest.raises(ArithmeticError, match="try a learning rate ten times smaller"):
        fit(output=tmp_path / "run", learning_rate=1e30, batch_size=8)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["state"] == "failed"
    assert "became" in summary["error"]
    assert not (tmp_path / "run" / "done").exists()


def bad(array: np.ndarray, position: int, value: float) -> np.ndarray:
    changed = array.copy()
    changed[position] = value
    return changed


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "negative label": (
        {"noisy": (DATA.x, bad(DATA.given, 3, -2))},
        "has the label -2 .1 such samples.; labels must be",
    ),
    "label out of range": (
        {"clean": (DATA.clean_x, bad(DATA.clean_y, 0, 9))},
        "the clean set has the label 9 .* whole numbers from 0 to 3",
    ),
    "lengths differ": ({"noisy": (DATA.x, DATA.given[:-1])}, "240 inputs but 239 labels; pass one label per sample"),
    "nan inputs": ({"noisy": (bad(DATA.x, 7, np.nan), DATA.given)}, "NaN or infinite values in 1 of 240 .* position 7"),
    "nan label": ({"noisy": (DATA.x, bad(DATA.given.astype(float), 5, np.nan))}, "no label .NaN. at position 5"),
    "fraction as label": ({"noisy": (DATA.x, DATA.given + 0.5)}, "labels must be class numbers or class names"),
    "one class": (
        {"noisy": (DATA.x, DATA.given * 0), "clean": None, "method": "cross-entropy"},
        "at least two classes",
    ),
    "no samples": ({"noisy": (DATA.x[:0], DATA.given[:0])}, "the noisy set has no samples"),
    "empty clean set": ({"clean": (DATA.clean_x[:0], DATA.clean_y[:0])}, "the clean set has no samples"),
    "same content": (
        {"clean": (np.concatenate([DATA.clean_x, DATA.x[5:6]]), np.append(DATA.clean_y, 0))},
        "sample '24' of the clean set has the same content as sample '5' of the noisy set",
    ),
    "no clean set": (
        {"clean": None},
        "cross-fitted needs clean samples and there are none; check 100 random samples first",
    ),
    "unknown kind of clean set": ({"clean": "automatic"}, "unknown kind of clean set 'automatic'. Did you mean 'auto'"),
    "number without verified labels": ({"clean": 50}, "the data has no verified labels"),
    "unknown method": ({"method": "mlsg"}, "unknown method 'mlsg'. Did you mean 'mslg'"),
    "unknown setting": (
        {"label_rat": 3},
        "unknown setting of cross-fitted or of fit 'label_rat'. Did you mean 'label_rate'",
    ),
    "setting of another method": (
        {"look_ahead": 0.1},
        "unknown setting of cross-fitted or of fit 'look_ahead'; it is one of mslg, metalabelnet, meta-weight-net and",
    ),
    "setting of many other methods": (
        {"warm_up": 2},
        "'warm_up'; it is one of mslg, metalabelnet, mlnt and other methods",
    ),
    "unknown preset": ({"preset": "fats"}, "unknown preset of cross-fitted 'fats'. Did you mean 'fast'"),
    "preset of another method": (
        {"preset": "released"},
        "'released' is a preset of mslg, not of cross-fitted; pass method=",
    ),
    "unknown optimizer": ({"optimizer": "sdg"}, "unknown optimizer 'sdg'. Did you mean 'sgd'"),
    "unknown schedule": ({"schedule": "cosin"}, "unknown schedule 'cosin'. Did you mean 'cosine'"),
    "unknown mode": ({"mode": "exakt"}, "unknown mode 'exakt'. Did you mean 'exact'"),
    "unknown loss": ({"method": "mslg", "loss": "reverse"}, "unknown loss 'reverse'. Did you mean 'reverse-kl'"),
    "too short": ({"epochs": 2}, "a run of 2 epochs has none left for the deployed network .* at least 3 epochs"),
    "far too short": ({"epochs": 1}, "a run of 1 epoch never reaches the forward stage .* at least 2 epochs"),
    "too short for mslg": (
        {"method": "mslg", "epochs": 1},
        "a run of 1 epoch never reaches MSLG's label learning, .* at least 2 epochs",
    ),
    "warm-up too long": (
        {"method": "mslg", "warm_up": 9},
        "never reaches MSLG's label learning, which starts after 9; train for at least",
    ),
    "text as a number": ({"label_rate": "abc"}, "label_rate is 'abc'; it must be a number"),
    "a setting of fit": ({"epoch": 3}, "unknown setting of cross-fitted or of fit 'epoch'. Did you mean 'epochs'"),
    "no epochs": ({"epochs": 0}, "epochs is 0; it must be a whole number or left out, 1 or more"),
    "negative rate": ({"label_rate": -1.0}, "label_rate is -1.0; it must be 0 or more"),
    "outputs": ({"network": lambda: nn.Linear(2, 3)}, r"outputs of shape \(2, 3\) but the data has 4 classes"),
    "batch size": ({"batch_size": 1}, "batch_size is 1; a batch needs at least 2"),
    "three arrays": ({"noisy": (DATA.x, DATA.given, DATA.true)}, "pass .inputs, labels. or a Dataset"),
    "text as inputs": ({"noisy": (np.array(["a"] * 240), DATA.given)}, "cannot be fed to a network"),
    "matrix of labels": ({"noisy": (DATA.x, np.eye(4)[DATA.given])}, "pass a flat list with one class per sample"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_with_what_to_do(name: str) -> None:
    settings, message = WRONG[name]
    with pytest.raises((ValueError, TypeError), match=message):
        fit(**settings)


def test_an_iterable_dataset_is_refused_with_the_reason() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter([])

    with pytest.raises(
        TypeError, match=r"an iterable Stream.* pass key=.* or a map-style Dataset with __len__ and __getitem__"
    ):
        fit(noisy=Stream())


def test_a_class_missing_from_the_clean_set_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    keep = DATA.clean_y != 2
    fit(clean=(DATA.clean_x[keep], DATA.clean_y[keep]), epochs=3)
    assert "the clean set has no sample of: 2." in caplog.text


def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    fit(output=tmp_path / "run", **SHORT)
    with pytest.raises(FileExistsError, match=r"is a finished run; resume it .*--resume.*--force.* another folder"):
        fit(output=tmp_path / "run", **SHORT)
    fit(output=tmp_path / "run", **SHORT, force=True)


def test_a_folder_that_is_no_run_is_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("precious")
    with pytest.raises(FileExistsError, match=r"is not a run's folder .* and will not be deleted"):
        fit(output=tmp_path / "photos", force=True)
    assert (tmp_path / "photos" / "cat.jpg").exists()


def test_resuming_with_other_data_or_settings_is_refused(tmp_path: Path) -> None:
    fit(output=tmp_path / "run", **SHORT)
    told = f"started with method.label_rate = {LABEL_RATE}, now it is 2.0; resume with the same"
    with pytest.raises(ValueError, match=told):
        fit(output=tmp_path / "run", **SHORT, resume=True, label_rate=2.0)
    other = blobs(seed=1)
    with pytest.raises(ValueError, match=r"started with data.fingerprint"):
        fit(noisy=(other.x, other.given), output=tmp_path / "run", **SHORT, resume=True)


def test_the_length_of_a_run_is_fixed(tmp_path: Path) -> None:
    fit(output=tmp_path / "run", **SHORT)
    with pytest.raises(ValueError, match="was started with 2 epochs, now 5 are asked for"):
        fit(output=tmp_path / "run", method="mslg", epochs=5, resume=True)


def test_another_clean_set_is_refused_on_resume(tmp_path: Path) -> None:
    fit(output=tmp_path / "run", **SHORT)
    with pytest.raises(ValueError, match=r"started with data.clean_fingerprint"):
        fit(clean=(DATA.clean_x + 1, DATA.clean_y), output=tmp_path / "run", **SHORT, resume=True)


def test_a_folder_with_some_other_config_is_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "config.toml").write_text('title = "my site"')
    with pytest.raises(FileExistsError, match="is not a run's folder"):
        fit(output=tmp_path / "site", force=True)
    assert (tmp_path / "site" / "config.toml").exists()


class Jittered(Dataset[tuple[torch.Tensor, int]]):
    """Items that change at random, as with augmentation inside a Dataset."""

    def __len__(self) -> int:
        return len(DATA.x)

    def __getitem__(self, position: int) -> tuple[torch.Tensor, int]:
        return torch.as_tensor(DATA.x[position]) + 0.1 * torch.randn(2), int(DATA.given[position])


def test_a_dataset_that_changes_its_items_at_random_is_reproducible(tmp_path: Path) -> None:
    runs = [fit(noisy=Jittered(), output=tmp_path / name).history["train/loss"].tolist() for name in ("one", "two")]
    assert runs[0] == runs[1]
    fit(noisy=Jittered(), output=tmp_path / "one", resume=True)


def test_auto_clean_needs_a_warm_up() -> None:
    with pytest.raises(ValueError, match="auto_clean needs a warm_up above 0"):
        fit(method="mslg", clean="auto", warm_up=0)


def test_true_labels_may_be_unknown_and_never_become_clean_ones() -> None:
    true = DATA.true.copy()
    true[:100] = -1
    result = fit(true_labels=true, epochs=3)
    assert 0 < result.summary["last"]["given/accuracy"] < 1
    with pytest.raises(ValueError, match="the data has no verified labels"):
        fit(clean=20, true_labels=DATA.true)


def test_a_diverged_state_never_replaces_a_good_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ArithmeticError, match="became"):
        fit(output=tmp_path / "run", learning_rate=1e30, batch_size=8, checkpoint_minutes=0.0)
    checkpoint = tmp_path / "run" / "checkpoint" / "state.safetensors"
    sums = load_state(checkpoint)["position"]["sums"]
    assert sums
    assert all(torch.isfinite(total) for total in sums.values())


def test_verified_labels_are_checked() -> None:
    with pytest.raises(ValueError, match="there are 3 of the verified labels of the data for 240 samples"):
        make_source(DATA.x, DATA.given, verified_labels=[0, 1, 2])
    with pytest.raises(ValueError, match="the verified labels of the data has the label 7"):
        make_source(DATA.x, DATA.given, verified_labels=np.full(240, 7))
    named = make_source(DATA.x, np.array(list("nesw"))[DATA.given], verified_labels=["n", "", None, "w"] * 60)
    assert named.verified_label is not None
    assert named.verified_label[:4].tolist() == [1, -1, -1, 3]


def test_numbers_that_are_names_are_matched_by_name() -> None:
    names = np.array(["10", "20", "30", "40"])
    result = fit(noisy=(DATA.x, names[DATA.given]), clean=(DATA.clean_x, names[DATA.clean_y].astype(int)), **SHORT)
    assert result.classes == ("10", "20", "30", "40")


def test_nothing_is_printed_when_progress_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(epochs=3)
    assert capsys.readouterr() == ("", "")


PRESETS = [(name, preset) for name in METHODS for preset in METHODS.load(name).presets]


@pytest.mark.parametrize(("method", "preset"), PRESETS)
def test_what_a_preset_sets_is_what_is_recorded_and_resumed_with(method: str, preset: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"noise_rate": 0.3, "transition": np.full((4, 4), 0.25), "epochs": 6}
    noisy = make_source(DATA.x, DATA.given, verified_labels=DATA.true)
    options |= {"noisy": noisy, "clean": 24}  # some need samples with both labels
    done = fit(method=method, preset=preset, output=tmp_path / "run", **options)
    assert done.run is not None
    recorded = done.run.config["method"]
    used = method_arguments(Named(method, preset), done.method.task)
    assert used
    for key, value in used.items():
        if isinstance(value, str | bool | int | float):
            assert recorded[key] == value
    assert (recorded.pop("name"), recorded.pop("preset")) == (method, preset)
    again = fit(method=method, preset=preset, output=tmp_path / "run", resume=True, **options, **recorded)
    assert again.history.equals(done.history)
