"""What to review next in a finished run: its data and its network are opened again for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow.parquet as pq
from torch import nn

from ..data.augmentation import Augment
from ..data.make_splits import make_splits
from ..data.source import Source
from ..data.splits import Splits
from ..review.gain import CANDIDATES, next_reviews
from ..review.next_round import Round
from ..runs.execute import Result
from ..runs.folder import Run
from ..runs.load_model import with_weights
from ..runs.settings import checked, run_recipe
from .fit import as_source

NEEDED = ("id", "given_label", "suggested_label", "label_quality", "soft_label", "rank")


class Opened(NamedTuple):
    """A run's network, with its weights, and its data, divided as it was."""

    network: nn.Module
    data: Splits
    source: Source


def review_next(
    run: Run | Result | Path | str,
    network: Any = None,
    noisy: Any = None,
    clean: Any = None,
    *,
    count: int = 50,
    workers: int | None = None,
) -> pd.DataFrame:
    """The samples of a finished run whose review would help the clean loss most: id, rank, given_label,
    suggested_label, gain. A run that was started in Python needs its network and data again, as `fit` was given them.
    """
    if isinstance(run, Result):
        return run.review_next(count)
    opened_run = run if isinstance(run, Run) else Run.open(Path(run))
    if not (opened_run.path / "model.safetensors").exists():
        raise ValueError(f"{opened_run.path} is not finished; finish it: mslg fit -o {opened_run.path} --resume")
    found = _opened(opened_run, network, noisy, clean, workers)
    labels = _candidates(opened_run)
    index = found.data.train.index.tolist()
    same = len(index) == pq.read_metadata(opened_run.path / "labels.parquet").num_rows
    if not same or [found.source.ids[index[place]] for place in labels.index] != labels["id"].tolist():
        raise ValueError(f"the data is divided in another way than in {opened_run.path}; open it as the run had it")
    return next_reviews(found.network, found.data, found.source, labels, count=count)


def _opened(run: Run, network: Any, noisy: Any, clean: Any, workers: int | None) -> Opened:
    settings = checked(run.config)
    train = settings["train"]

    def opened(network: Any, noisy: Any, clean: Any, **_: Any) -> Opened:
        source = as_source(noisy, "the noisy set")
        if source.fingerprint() != run.config["data"]["fingerprint"]:
            raise ValueError(f"the data or its given labels are not those that {run.path} was trained on")
        clean = clean if clean is None or isinstance(clean, int) else as_source(clean, "the clean set", source)
        data = make_splits(
            source,
            clean,
            hold_out=train["hold_out"],
            batch_size=train["batch_size"],
            seed=train["seed"],
            augment=Augment.parse(train.get("augment")),
        )
        data = Round.open(None, None, source, run).joined(data, source)
        return Opened(with_weights(network, run.path), data, source)

    if network is not None and noisy is not None:
        return opened(network, noisy, clean)
    if "source" not in settings["data"]:
        raise ValueError(
            f"{run.path} was started in Python, so its data cannot be opened again from here; in Python write "
            "mslg.review_next(run, network, noisy, clean), or result.review_next() where it was fitted"
        )
    result: Opened = run_recipe(settings, opened, workers=workers, progress=False)
    return result


def _candidates(run: Run) -> pd.DataFrame:
    """The rows of the worst labels, by their places in the table, which may be larger than memory."""
    file = pq.ParquetFile(run.path / "labels.parquet")
    columns = [*NEEDED, *(["path"] if "path" in file.schema_arrow.names else [])]
    parts, done = [], 0
    for group in range(file.num_row_groups):
        rows = file.read_row_group(group, columns=columns).to_pandas()
        rows.index = pd.RangeIndex(done, done + len(rows))
        parts.append(rows[rows["rank"] < CANDIDATES])
        done += len(rows)
    found: pd.DataFrame = pd.concat(parts)
    return found
