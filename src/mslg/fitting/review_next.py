"""What to review next in a finished run: reopens its data and network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from ..data.from_python import as_source
from ..data.splits import Splits
from ..issues.labels_file import read_labels
from ..issues.questions import NAME as QUESTIONS
from ..issues.questions import choose_questions
from ..registry import import_only
from ..review.gain import CANDIDATES, COLUMNS, choose_reviews
from ..review.next_round import Round
from ..review.next_samples import write_next
from ..review.report import write_report
from ..review.uncertainty import most_uncertain
from ..runs.finished import reading
from ..runs.folder import Run
from ..runs.load_model import with_weights
from ..runs.recipes import checked, refuse_code, typed_code
from ..runs.run_data import RunData, open_run_data
from ..runs.settings import Options, Settings
from .prepare import split_data
from .result import Result

NEEDED = ("id", "given_label", "suggested_label", "label_quality", "soft_label", "rank", "path")


def review_next(
    run: Run | Result | Path | str,
    network: Any = None,
    noisy: Any = None,
    clean: Any = None,
    *,
    count: int = 50,
    workers: int | None = None,
    trust_code: bool = False,
    page: bool = False,
) -> pd.DataFrame:
    """The samples of a finished run whose review would reduce the clean loss most, the most useful first: id, rank (as
    in labels.parquet), given_label, suggested_label, gain (1 is that of a sample drawn at random). For a run that was
    started in Python, pass the network and data that `fit` received; for one that was started with
    `--network package.module:factory`, this name. `trust_code` imports all code that the run's folder names. With
    `page` they become a tab of the run's report.html. For a run without a model (`find_label_issues`): the samples
    whose true label is most uncertain, and how much; with several annotators also whom to ask about each.
    """
    if isinstance(run, Result):
        if page:
            raise ValueError("page=True needs a run whose data can be reopened; pass the run's folder")
        return run.review_next(count)
    opened_run = run if isinstance(run, Run) else Run.open(Path(run))
    if "issues" in opened_run.config:  # no model: there is no gradient, only the posterior
        if page:
            raise ValueError(f"{opened_run.path} was made from probabilities, without the samples: it has no such tab")
        opened_run.require_finished("labels.parquet")
        if (opened_run.path / QUESTIONS).exists():
            return _questions(opened_run, count)
        return most_uncertain(_candidates(opened_run)[0], count=count)
    opened_run.require_finished("model.safetensors", "labels.parquet")
    with reading(opened_run.path):
        model, data = _opened(opened_run, network, noisy, clean, workers, trust_code)
        labels, rows = _candidates(opened_run)
    index, ids = data.train.index.tolist(), data.source.ids
    if len(index) != rows or [ids[index[place]] for place in labels.index] != labels["id"].tolist():
        raise ValueError(f"the splits are not those of {opened_run.path}; pass the same data and clean set")
    found = choose_reviews(model, data, labels, count=count)
    if page:
        write_next(opened_run.path, found["id"].tolist(), data.source)
        write_report(opened_run.path)
    return found


def _opened(
    run: Run, network: Any, noisy: Any, clean: Any, workers: int | None, trust_code: bool
) -> tuple[nn.Module, Splits]:
    """The run's network with its weights, and its data, split as it was."""
    settings = Settings.of(checked(run.config))
    if network is not None and noisy is not None:
        source = as_source(noisy, "the noisy set")
        if clean is not None and not isinstance(clean, int):
            clean = as_source(clean, "the clean set", source)
        data = RunData(network, source, clean)
    elif settings.data.source is not None:
        named = {"network": {"name": network}}
        if not trust_code:
            refuse_code(run.config, named, run.path / "config.toml")
        with import_only(None if trust_code else typed_code(named)):
            settings, data = open_run_data(settings, Options(workers=workers, progress=False))
    else:
        raise ValueError(
            f"{run.path} was started in Python, so its data cannot be reopened from here; in Python call "
            "mslg.review_next(run, network, noisy, clean), or result.review_next() where it was fitted"
        )
    if data.train.fingerprint() != run.config["data"]["fingerprint"]:
        raise ValueError(f"the data or its given labels are not those that {run.path} was trained on")
    splits = split_data(settings, data, Round.open(None, None, data.train, run), torch.device("cpu"))
    return with_weights(data.network, run.path), splits


def _questions(run: Run, count: int) -> pd.DataFrame:
    """Whom to ask about which samples, with the columns of the others."""
    rows = choose_questions(pd.DataFrame(run.read_json(QUESTIONS)["questions"]), count)
    known = pd.concat(
        table.to_pandas()[lambda each: each["id"].isin(set(rows["id"]))]
        for table in read_labels(run.path, ("id", "given_label", "suggested_label", "rank", "path"))
    )
    found = rows[["id", "annotator", "gain"]].merge(known, on="id")
    return found[[*COLUMNS, "annotator", *(["path"] if "path" in found else [])]]


def _candidates(run: Run) -> tuple[pd.DataFrame, int]:
    """The rows of the worst labels, indexed by their positions in the table, and the length of the table."""
    parts, done = [], 0
    for table in read_labels(run.path, NEEDED):
        rows = table.to_pandas()
        rows.index = pd.RangeIndex(done, done + len(rows))
        parts.append(rows[rows["rank"] < CANDIDATES])
        done += len(rows)
    return pd.concat(parts), done
