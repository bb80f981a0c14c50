"""Several annotators: matrices recovered from votes, a consensus, and whom to ask next."""

from __future__ import annotations

import json
import math
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
from mslg.data.votes import open_votes
from mslg.issues.annotators import find_consensus
from mslg.issues.questions import choose_questions

Array = npt.NDArray[Any]
NAMES = np.array(["ant", "bee", "cat"], dtype=object)


def world(samples: int = 800, annotators: int = 5, votes: int = 3, seed: int = 0) -> tuple[Array, Array, Array]:
    """Votes (samples, annotators) with −1 where there is none, true labels, and the annotators' matrices."""
    random = np.random.default_rng(seed)
    true = random.integers(0, 3, samples)
    right = np.linspace(0.45, 0.9, annotators)
    matrices = np.stack([r * np.eye(3) + (1 - r) * random.dirichlet([0.5] * 3, 3) for r in right])
    found = np.full((samples, annotators), -1)
    for place in range(samples):
        for who in random.choice(annotators, votes, replace=False):
            found[place, who] = random.choice(3, p=matrices[who, true[place]])
    return found, true, matrices


def long_table(votes: Array) -> pd.DataFrame:
    place, who = np.nonzero(votes >= 0)
    return pd.DataFrame(
        {"id": [f"s{p}" for p in place], "annotator": who.astype(str), "label": NAMES[votes[place, who]]}
    )


def wide_table(votes: Array) -> pd.DataFrame:
    columns = {str(who): [NAMES[v] if v >= 0 else None for v in votes[:, who]] for who in range(votes.shape[1])}
    return pd.DataFrame({"id": [f"s{place}" for place in range(len(votes))], **columns})


def test_long_and_wide_tables_and_arrays_are_the_same_votes(tmp_path: Path) -> None:
    votes, _, _ = world(60)
    long_table(votes).to_csv(tmp_path / "long.csv", index=False)
    wide_table(votes).to_parquet(tmp_path / "wide.parquet")
    np.save(tmp_path / "votes.npy", votes)
    for given in (
        long_table(votes),
        wide_table(votes),
        tmp_path / "long.csv",
        tmp_path / "wide.parquet",
        votes,
        tmp_path / "votes.npy",
        np.where(votes < 0, np.nan, votes),
    ):
        source, found = open_votes(given)
        cells = {
            (source.ids[s].lstrip("s"), found.names[a], int(k))
            for s, a, k in zip(found.sample.tolist(), found.annotator.tolist(), found.label.tolist(), strict=True)
        }
        assert cells == {(str(s), str(a), int(votes[s, a])) for s, a in zip(*np.nonzero(votes >= 0), strict=True)}
        counts = [[int((votes[s] == k).sum()) for k in range(3)] for s in range(60)]
        by_id = {name.lstrip("s"): int(label) for name, label in zip(source.ids, source.label.tolist(), strict=True)}
        assert [by_id[str(s)] for s in range(60)] == [row.index(max(row)) for row in counts]


def test_matrices_are_recovered_and_the_consensus_beats_the_majority() -> None:
    votes, true, matrices = world()
    source, opened = open_votes(votes)
    unknown = torch.full((len(true),), -1)
    found = find_consensus(opened, torch.full((len(true), 3), 1 / 3), unknown)
    assert np.abs(found.annotators.matrices.numpy() - matrices).mean() < 0.05
    assert torch.allclose(found.annotators.matrices.sum(2), torch.ones(5, 3).double(), atol=1e-4)
    right = (found.probs.argmax(1).numpy() == true).mean()
    assert right > (source.label.numpy() == true).mean() + 0.01
    assert abs(float(found.probs.max(1).values.mean()) - right) < 0.05, "the stated probability holds"


def test_verified_samples_and_a_model_help() -> None:
    votes, true, matrices = world(400, votes=2)
    _, opened = open_votes(votes)
    none, flat = torch.full((400,), -1), torch.full((400, 3), 1 / 3)
    known = torch.from_numpy(np.where(np.arange(400) < 150, true, -1))
    model = torch.from_numpy(np.where(np.arange(3) == true[:, None], 0.7, 0.15))
    alone, verified, both = (find_consensus(opened, p, v) for p, v in ((flat, none), (flat, known), (model, known)))
    errors = [np.abs(each.annotators.matrices.numpy() - matrices).mean() for each in (alone, verified, both)]
    assert errors[1] < errors[0]
    right = [(each.probs[150:].argmax(1).numpy() == true[150:]).mean() for each in (alone, verified, both)]
    assert right[2] > right[0] + 0.05
    assert both.annotators.model_weight > 0.5
    assert (both.probs[:150].argmax(1).numpy() == true[:150]).all(), "verified samples have their class"
    assert (verified.held_out.argmax(1).numpy() != true[:150]).any(), "but are judged without it"


def test_the_gain_of_a_question_is_the_mutual_information() -> None:
    votes, _, _ = world(60)
    _, opened = open_votes(votes)
    annotators = find_consensus(opened, torch.full((60, 3), 1 / 3), torch.full((60,), -1)).annotators
    posterior = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64)
    rows = annotators.whom_to_ask(posterior, torch.tensor([7]), most=5)
    assert sorted(rows["annotator"]) == [str(who) for who in range(5) if votes[7, who] < 0], "only who has not voted"
    for row in rows.itertuples():
        matrix = annotators.matrices[int(str(row.annotator))].tolist()
        joint = [[float(posterior[0, k]) * matrix[k][said] for said in range(3)] for k in range(3)]
        expected = sum(
            joint[k][said] * math.log(joint[k][said] / (sum(joint[k]) * sum(joint[j][said] for j in range(3))))
            for k in range(3)
            for said in range(3)
        )
        assert row.gain == pytest.approx(expected, abs=1e-3)
    assert rows["gain"].is_monotonic_decreasing


def test_questions_are_spread_over_annotators() -> None:
    rows = pd.DataFrame({"id": list("aabbccdd"), "annotator": list("xyxyxyxy"), "gain": range(8, 0, -1)})
    chosen = choose_questions(rows, 4)
    assert chosen["id"].tolist() == list("abcd")
    assert choose_questions(rows, 2)["annotator"].tolist() == ["x", "x"]
    with pytest.raises(ValueError, match="at least 1"):
        choose_questions(rows, 0)


def test_from_votes_to_a_run_and_whom_to_ask_next(tmp_path: Path) -> None:
    votes, true, _ = world(300)
    long_table(votes).to_csv(tmp_path / "votes.csv", index=False)
    pd.DataFrame({"id": [f"s{p}" for p in range(60)], "label": NAMES[true[:60]]}).to_csv(
        tmp_path / "v.csv", index=False
    )
    command = ["issues", str(tmp_path / "votes.csv"), "--annotators", "--verified", str(tmp_path / "v.csv"), "--json"]
    done = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["annotators"][0]["name"] == "0", "the worst first"
    assert summary["label_errors"]["samples"] == 60
    labels = pd.read_parquet(tmp_path / "run" / "labels.parquet")
    assert {"consensus_label", "consensus_probability", "votes"} <= set(labels)
    assert (labels["votes"] == 3).all()
    truth = NAMES[true[60:]]
    assert (labels["consensus_label"] == truth).mean() >= (labels["given_label"] == truth).mean()
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Annotators" in page
    rows = mslg.review_next(tmp_path / "run", count=5)
    assert len(rows) == 5
    assert set(rows["annotator"]) <= set("01234")


def test_what_does_not_fit_is_refused_with_a_way_out() -> None:
    votes, _, _ = world(30)
    with pytest.raises(ValueError, match="1 of 30 samples have no vote, such as '4'; leave them out"):
        open_votes(np.where(np.arange(30)[:, None] == 4, -1, votes))
    twice = pd.concat([long_table(votes), long_table(votes)[:1]])
    with pytest.raises(ValueError, match="votes for the same sample, such as 's0'; leave one"):
        open_votes(twice)
    with pytest.raises(ValueError, match="also need the column id"):
        open_votes(long_table(votes).drop(columns="id"))
    with pytest.raises(ValueError, match="it needs id, annotator and label, or a column per annotator"):
        open_votes(pd.DataFrame({"id": ["a"], "label": ["x"]}))
    with pytest.raises(ValueError, match="pass pred_probs, or votes of several annotators"):
        mslg.find_label_issues([0, 1, 0])
    with pytest.raises(ValueError, match="there are no annotators to ask"):
        mslg.find_label_issues([0, 1] * 20, np.full((40, 2), 0.5)).ask_next()
