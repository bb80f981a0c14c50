"""Tables of short texts on two subjects."""

from __future__ import annotations

import pandas as pd

SUBJECTS = {"cooking": "boil fry salt pepper dish oven", "sailing": "mast wind harbour knot deck anchor"}


def reviews(count: int = 60, *, start: int = 0) -> pd.DataFrame:
    """Texts that can be told apart, a sixth of them under the wrong label."""
    names = list(SUBJECTS)
    rows = []
    for number in range(start, start + count):
        subject = number % 2
        words = SUBJECTS[names[subject]].split()
        # Single digits are no words, so they make a text unique without telling anything.
        said = f"{words[number % 6]} and {words[(number // 2) % 6]}, then {words[(number // 3) % 6]}"
        text = f"{' '.join(str(number))}: {said}"
        wrong = number % 12 < 2
        rows.append((text, names[subject ^ wrong], names[subject]))
    return pd.DataFrame(rows, columns=["text", "label", "true_label"])


def clean(count: int = 20) -> pd.DataFrame:
    """Other texts, all under the right label."""
    table = reviews(count, start=1000).drop(columns="label")
    return table.rename(columns={"true_label": "label"})
