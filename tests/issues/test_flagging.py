"""How many labels are flagged."""

from __future__ import annotations

import pytest
import torch

from mslg.issues.evidence import Evidence, Predictions
from mslg.issues.flagging import Flagging
from mslg.issues.ranked_list import LabelIssues, rank_labels


def issues(flagging: Flagging) -> LabelIssues:
    """Ten labels of three classes: the network is ever surer that the label is class 1, which was given."""
    wrong = torch.linspace(0.95, 0.05, 10)
    probs = torch.stack([wrong * 0.9, 1 - wrong, wrong * 0.1], dim=1)
    predictions = Predictions(
        given=torch.ones(10, dtype=torch.int64),
        classes=("a", "b", "c"),
        probs=lambda positions: probs[positions],
        ids=lambda positions: [str(place) for place in positions.tolist()],
        paths=None,
        soft_labels=lambda positions: probs[positions],
        known=torch.ones(10, dtype=torch.bool),
        predicted_in_training=None,
    )
    return rank_labels(predictions, Evidence(None), fdr=flagging.fdr, flag=flagging.flag)


def test_by_default_labels_with_a_likelier_class() -> None:
    found = issues(Flagging())
    slow = [bool(found.likeliest[place] != 1) for place in range(10)]
    assert found.flagged.tolist() == slow
    assert 0 < sum(slow) < 10


@pytest.mark.parametrize("count", [0, 3, 8, 10, 99])
def test_any_number_of_the_worst(count: int) -> None:
    found = issues(Flagging.parse(str(count)))
    assert found.flagged.tolist() == [bool(rank < count) for rank in found.ranks.tolist()]
    assert found.suggested.tolist() == torch.where(found.flagged, found.likeliest, 1).tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, Flagging()),
        ("likelier", Flagging()),
        ("expected", Flagging("expected")),
        ("balanced", Flagging("balanced")),
        ("fdr=0.1", Flagging(fdr=0.1)),
        (500, Flagging(500)),
    ],
)
def test_how_it_is_written(text: str | int | None, expected: Flagging) -> None:
    assert Flagging.parse(text) == expected


def test_mistakes_name_what_is_allowed() -> None:
    with pytest.raises(ValueError, match=r"flag is 'many'; allowed are likelier, balanced, expected, fdr=0\.1"):
        Flagging.parse("many")
    with pytest.raises(ValueError, match=r"flag = 500 and fdr = 0\.1 both say"):
        Flagging.parse("500", 0.1)
    with pytest.raises(ValueError, match=r"flag = expected needs an estimate.*there are none; check 100 random"):
        Flagging("expected").check("there are none")
    with pytest.raises(ValueError, match=r"fdr = 0\.1 cannot be kept: there are none"):
        Flagging(fdr=0.1).check("there are none")
