"""Whom to ask next about which sample, where there are several annotators."""

from __future__ import annotations

from collections import Counter

import pandas as pd

NAME = "ask_next.json"  # in a run's folder


def choose_questions(rows: pd.DataFrame, count: int) -> pd.DataFrame:
    """The best of these questions (id, annotator, gain, …; best first): one per sample, and no annotator is asked more
    than twice their share."""
    if count < 1:
        raise ValueError(f"{count} samples were asked for; ask for at least 1")
    most = -(-2 * count // max(1, rows["annotator"].nunique()))
    asked: Counter[str] = Counter()
    chosen: dict[str, int] = {}
    for place, (name, annotator) in enumerate(zip(rows["id"], rows["annotator"], strict=True)):
        if len(chosen) < count and name not in chosen and asked[annotator] < most:
            chosen[name] = place
            asked[annotator] += 1
    return rows.iloc[list(chosen.values())].reset_index(drop=True)
