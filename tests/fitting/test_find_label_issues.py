"""Label issues from any model's probabilities: every form of input, the statement, and the folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import mslg
from mslg.cli.app import app
from mslg.fitting.find_label_issues import find_label_issues
from mslg.issues.evidence import Evidence, Predictions, VerifiedSamples
from mslg.issues.ranked_list import rank_labels

Array = npt.NDArray[Any]
NAMES = np.array(["ant", "bee", "cat"])


def world(samples: int = 600, *, rate: float = 0.3, seed: int = 0) -> tuple[Array, Array, Array]:
    """Probabilities, given and true labels."""
    random = np.random.default_rng(seed)
    logits = 2 * random.normal(size=(samples, 3))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    true = (probs.cumsum(1) > random.random((samples, 1))).argmax(1)
    given = np.where(random.random(samples) < rate, random.integers(0, 3, samples), true)
    return probs.astype(np.float32), given, true


def partly(true: Array, known: int) -> Array:
    return np.where(np.arange(len(true)) < known, true, -1)


def test_the_statement_holds_and_the_table_has_a_row_per_sample() -> None:
    probs, given, true = world(1200)
    found = find_label_issues(given, probs, verified=partly(true, 200))
    rows = found.labels
    assert rows["id"].tolist() == [str(place) for place in range(1200)]
    assert (rows["verified_label"][:200] == true[:200].astype(str)).all()
    assert rows["verified_label"][200:].isna().all()
    assert (rows["suggested_label"][:200] == true[:200].astype(str)).all()
    assert rows["is_label_issue"][:200].tolist() == (given != true)[:200].tolist()
    wrong = (given != true)[200:]
    count = found.summary["label_errors"]["count"]
    assert count["low"] <= wrong.sum() <= count["high"]
    assert np.isin(found.indices, np.arange(200, 1200)).all()
    assert (given != true)[found.indices[:20]].mean() > 0.8
    assert (rows["suggested_label"] == true.astype(str)).mean() > (given == true).mean() + 0.05
    assert found.statement.startswith("About ")
    assert "90 % interval), estimated on 200 samples with given and verified labels." in str(found)
    soft = np.stack(rows["soft_label"].to_list())
    assert np.allclose(soft.sum(1), 1, atol=1e-5)


def test_posterior_and_statement_are_those_of_fit() -> None:
    """One posterior, one statement: the pieces behind `fit`, called by hand, say the same."""
    probs, given, true = world()
    tensors = [torch.from_numpy(array) for array in (probs, given, true)]
    checked, rest = torch.arange(100), torch.arange(100, 600)
    evidence = Evidence(VerifiedSamples(*(each[checked] for each in tensors), checked), cross_fitted=True)
    predictions = Predictions(tensors[1][rest], ["0", "1", "2"], lambda at: tensors[0][rest][at], lambda at: [])
    expected = rank_labels(predictions, evidence, flag="balanced")
    found = find_label_issues(given, probs, verified=partly(true, 100))
    assert torch.allclose(found.ranked.log_odds, expected.log_odds)
    stated = expected.error_rate_summary()
    assert found.summary["label_errors"]["count"] == pytest.approx(stated["count"])
    assert found.summary["label_errors"]["flagged"] == pytest.approx(stated["flagged"])


FORMS = ["numbers", "names", "columns", "npz", "csv", "parquet by id", "list of lists"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_input_says_the_same(form: str, tmp_path: Path) -> None:
    probs, given, true = world(120)
    checked = partly(true, 40)
    expected = find_label_issues(given, probs, verified=checked)
    names = [None if number < 0 else NAMES[number] for number in checked]
    options: dict[str, Any] = {"verified": names}
    labels: Any = NAMES[given]
    said: Any = probs
    if form == "numbers":
        labels, options = given, {"verified": np.where(checked < 0, np.nan, checked)}
    elif form == "columns":
        said = pd.DataFrame(probs, columns=NAMES)[["cat", "ant", "bee"]]
    elif form == "npz":
        np.savez(tmp_path / "p.npz", model=probs[:, ::-1], classes=NAMES[::-1])
        said = tmp_path / "p.npz"
    elif form == "csv":
        pd.DataFrame({"label": labels, "verified_label": names}).to_csv(tmp_path / "l.csv")
        pd.DataFrame(probs, columns=[f"p_{name}" for name in NAMES]).to_csv(tmp_path / "p.csv", index=False)
        labels, said, options = tmp_path / "l.csv", tmp_path / "p.csv", {}
    elif form == "parquet by id":
        order = np.random.default_rng(0).permutation(120)
        table = pd.DataFrame(probs, columns=NAMES).assign(id=[f"s{place}" for place in range(120)])
        table.iloc[order].to_parquet(tmp_path / "p.parquet")
        said = tmp_path / "p.parquet"
        options = {"ids": [f"s{place}" for place in range(120)]}
        options["verified"] = {f"s{place}": NAMES[true[place]] for place in range(40)}
    elif form == "list of lists":
        said, labels = probs.tolist(), labels.tolist()
    found = find_label_issues(labels, said, **options)
    assert found.ranked.log_odds.tolist() == pytest.approx(expected.ranked.log_odds.tolist(), abs=1e-4)
    if form != "numbers":
        assert found.classes == ("ant", "bee", "cat")


def test_several_models_are_weighed_by_the_verified_samples() -> None:
    probs, given, true = world(1500)
    useless = np.random.default_rng(1).dirichlet(np.ones(3), 1500).astype(np.float32)
    checked = partly(true, 300)
    both = find_label_issues(given, {"good": probs, "useless": useless}, verified=checked)
    good, bad = both.summary["model_weights"]
    assert good > 0.6
    assert bad < 0.15
    assert find_label_issues(given, np.stack([probs, useless])).summary["model_weights"] == [0.5, 0.5]
    assert both.settings["models"] == ["good", "useless"]


def test_without_verified_labels_nothing_is_stated() -> None:
    probs, given, true = world()
    found = find_label_issues(given, probs)
    assert "count" not in found.summary["label_errors"]
    assert "cannot be stated: no verified labels were passed. Verify 100 random samples" in found.statement
    assert (given != true)[found.indices[:20]].mean() > 0.7
    few = find_label_issues(given, probs, verified=partly(true, 7))
    assert "only 7 verified labels were passed, and it takes 20" in few.statement
    with pytest.raises(ValueError, match=r"fdr = 0\.1 cannot be kept"):
        find_label_issues(given, probs, fdr=0.1)


def test_probabilities_of_labels_that_were_trained_on_are_noticed() -> None:
    probs, given, true = world()
    learned = 0.98 * np.eye(3)[given] + 0.02 * probs
    found = find_label_issues(given, learned, verified=partly(true, 200))
    assert len(found.warnings) == 1
    assert "whose given label was verified to be wrong" in found.warnings[0]
    assert 'cross_val_predict(model, X, labels, method="predict_proba")' in found.statement
    assert "for 100.0 % of the samples" in find_label_issues(given, learned).warnings[0]
    assert find_label_issues(given, probs, verified=partly(true, 200)).warnings == []
    assert find_label_issues(given, probs).warnings == []


def test_which_labels_are_flagged() -> None:
    probs, given, true = world(1500)
    checked = partly(true, 300)

    def flagged(**options: Any) -> int:
        return int(find_label_issues(given, probs, verified=checked, **options).summary["label_issues"])

    assert flagged(flag=37) == 37
    count = find_label_issues(given, probs, verified=checked).summary["label_errors"]["count"]["estimate"]
    assert flagged(flag="expected") == pytest.approx(count, abs=1)
    assert 0 < flagged(fdr=0.05) <= flagged(flag="likelier") < flagged(flag="balanced")


def test_a_sample_without_a_prediction_is_not_ranked() -> None:
    probs, given, true = world(100)
    probs[7] = np.nan
    rows = find_label_issues(given, probs, verified=partly(true, 5)).labels
    assert np.isnan(rows["label_quality"][7])
    assert rows["rank"][7] == 94
    assert not rows["is_label_issue"][7]


REFUSED = {
    "logits": (lambda p, g: find_label_issues(g, 9 * p - 3), "pass probabilities: a softmax of logits"),
    "too short": (lambda p, g: find_label_issues(g, p[:-1]), "pred_probs has 59 rows for 60 labels"),
    "flat": (lambda p, g: find_label_issues(g, p[:, 0]), r"has the shape \(60,\) and the type float32"),
    "two columns": (
        lambda p, g: find_label_issues(NAMES[g], p[:, :2] / p[:, :2].sum(1, keepdims=True)),
        "pass classes=",
    ),
    "no such class": (
        lambda p, g: find_label_issues(NAMES[g], pd.DataFrame(p, columns=["ant", "bee", "cow"])),
        "pred_probs has no column for the class 'cat'",
    ),
    "unknown id": (lambda p, g: find_label_issues(g, p, verified={"x": 1}), "such as 'x' \\(an id there: '0'\\)"),
    "nothing left": (lambda p, g: find_label_issues(g, p, verified=g), "every label is verified"),
    "features": (lambda p, g: find_label_issues(g, p, features=p[:9]), "features of 9 samples for 60 labels"),
    "no file": (lambda p, g: find_label_issues(g, "p.npy"), r"there is no file p\.npy"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_with_a_way_out(case: str) -> None:
    probs, given, _ = world(60)
    call, words = REFUSED[case]
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        call(probs, given)


def test_the_folder_is_a_run(tmp_path: Path) -> None:
    probs, given, true = world(300)
    pd.DataFrame({"id": [f"s{place}" for place in range(300)], "label": NAMES[given]}).to_csv(tmp_path / "l.csv")
    np.save(tmp_path / "p.npy", probs)
    pd.DataFrame({"id": [f"s{place}" for place in range(80)], "label": NAMES[true[:80]]}).to_csv(tmp_path / "v.csv")
    np.save(tmp_path / "f.npy", probs)
    run, words = tmp_path / "run", ["issues", str(tmp_path / "l.csv"), "--pred-probs", str(tmp_path / "p.npy")]
    words += ["--verified", str(tmp_path / "v.csv"), "--features", str(tmp_path / "f.npy"), "-o", str(run)]
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert told["label_errors"]["basis"] == "pairs"
    page = (run / "report.html").read_text()
    assert "About " in page
    assert "this run was not compared" not in page
    assert len(pd.read_parquet(run / "labels.parquet")) == 220
    assert pd.read_parquet(run / "suspects.parquet")["nearest"].map(len).eq(4).all()
    for verb in (
        ["apply", str(run), "-o", str(tmp_path / "c.csv"), "--suggested"],
        ["export", str(run), "--to", "csv"],
    ):
        assert CliRunner().invoke(app, verb, catch_exceptions=False).exit_code == 0
    cleaned = pd.read_csv(tmp_path / "c.csv")
    assert (cleaned["label_source"] == "verified").sum() == 80
    assert (cleaned.set_index("id")["label"][[f"s{k}" for k in range(300)]].to_numpy() == NAMES[true]).mean() > (
        given == true
    ).mean()
    following = mslg.review_next(run, count=5)
    assert following.columns.tolist() == ["id", "rank", "given_label", "suggested_label", "gain"]
    assert following["gain"].between(0, np.log(3)).all()
    with pytest.raises(ValueError, match="made by `mslg issues`, which trains no model"):
        mslg.export(run, to="onnx")
    with pytest.raises(FileExistsError, match="already exists"):
        CliRunner().invoke(app, words, catch_exceptions=False)


@pytest.mark.parametrize(
    ("words", "flagged"),
    [(["--flag", "7"], 7), (["--fdr", "0.2"], None), (["--flag", "fdr=0.2"], None)],
)
def test_how_many_are_flagged_is_said_as_in_fit(tmp_path: Path, words: list[str], flagged: int | None) -> None:
    probs, given, true = world(300)
    np.save(tmp_path / "l.npy", given)
    np.save(tmp_path / "p.npy", probs)
    checked = partly(true, 100)
    np.save(tmp_path / "v.npy", checked)
    files = ["--pred-probs", str(tmp_path / "p.npy"), "--verified", str(tmp_path / "v.npy")]
    command = ["issues", str(tmp_path / "l.npy"), *files, "-o", str(tmp_path / "run"), "--no-report", *words]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    rows = find_label_issues(given, probs, verified=checked, fdr=0.2).labels
    expected = int(rows["is_label_issue"][checked < 0].sum())
    assert expected > 0
    assert pd.read_parquet(tmp_path / "run" / "labels.parquet")["is_label_issue"].sum() == (flagged or expected)
    with pytest.raises(ValueError, match=r"allowed are likelier, balanced|both say how many"):
        CliRunner().invoke(app, [*command, "--force", "--flag", "lots"], catch_exceptions=False)
