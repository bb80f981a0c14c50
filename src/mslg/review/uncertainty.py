"""Which samples to review next where there is no model: those whose true label is most uncertain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .gain import COLUMNS, pick_diverse

if TYPE_CHECKING:
    import pandas as pd


def most_uncertain(labels: pd.DataFrame, *, count: int = 50) -> pd.DataFrame:
    """The samples with the highest entropy of the posterior, the gain, in nats; discounted for every sample of the same
    two classes that is already picked. `labels` has rows of a run's labels, whose soft labels are posteriors."""
    if count < 1:
        raise ValueError(f"{count} samples were asked for; ask for at least 1")
    rows = labels[labels["label_quality"].notna()]
    soft = np.stack(rows["soft_label"].to_list()).astype(np.float64) if len(rows) else np.zeros((0, 2))
    gain = -(soft * np.log(np.clip(soft, 1e-12, None))).sum(1)
    first = np.sort(np.argpartition(-soft, 1, axis=1)[:, :2], axis=1)
    chosen = pick_diverse(gain.tolist(), list(map(tuple, first.tolist())), count)
    columns = [*COLUMNS, *(["path"] if "path" in rows else [])]
    found = rows.iloc[chosen].assign(gain=gain[chosen])
    return found[columns].reset_index(drop=True)
