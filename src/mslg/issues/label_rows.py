"""Label issues as rows of labels.parquet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from .labels_file import PATH, SCHEMA
from .ranked_list import LabelIssues


def label_frame(issues: LabelIssues, positions: Tensor | None = None) -> pd.DataFrame:
    """The rows of the samples at these positions, by default of all."""
    if positions is None:
        return pd.concat([label_frame(issues, piece) for piece in issues.predictions.pieces()], ignore_index=True)
    samples, names = issues.predictions, np.array(issues.predictions.classes, dtype=object)
    given, suggested, probs = samples.given[positions], issues.suggested[positions], samples.probs(positions)
    soft = samples.soft_labels(positions)
    columns: dict[str, Any] = {
        "id": np.array(samples.ids(positions), dtype=object),
        "given_label": names[given.numpy()],
        "predicted_label": names[torch.where(samples.is_known(positions), probs.argmax(1), given).numpy()],
        "is_label_issue": issues.flagged[positions].numpy(),
        "label_quality": issues.quality[positions].float().numpy(),
        "suggested_label": names[suggested.numpy()],
        "soft_label": pd.Series(list((probs if soft is None else soft).detach().float().cpu().numpy()), dtype=object),
        "rank": issues.ranks[positions].long().numpy(),
    }
    return pd.DataFrame(columns if samples.paths is None else {**columns, "path": samples.paths(positions)})


def label_table(issues: LabelIssues, positions: Tensor) -> pa.Table:
    """The same rows with the file's schema."""
    schema = SCHEMA if issues.predictions.paths is None else SCHEMA.append(PATH)
    return pa.Table.from_pandas(label_frame(issues, positions), schema, preserve_index=False)


def label_tables(issues: LabelIssues) -> Iterator[pa.Table]:
    """All rows, as many at a time as fit into memory."""
    return (label_table(issues, piece) for piece in issues.predictions.pieces())
