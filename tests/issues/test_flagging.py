"""How many labels are flagged."""

from __future__ import annotations

import re

import pytest
import torch

from mslg.issues.evidence import Evidence, Predictions, VerifiedSamples
from mslg.issues.flagging import Flagging
from mslg.issues.ranked_list import LabelIssues, rank_labels
from mslg.issues.statement import statement, why_none_flagged


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


def checked(seed: int, clean: int, *, rate: float, strength: float = 3.0) -> tuple[LabelIssues, torch.Tensor]:
    """2,000 labels of ten classes flagged at a false discovery rate of 0.1, and which of them are wrong. As many others
    as `clean` says are checked."""
    random = torch.Generator().manual_seed(seed)
    count = 2000 + clean
    true = torch.randint(10, (count,), generator=random)
    probs = (torch.randn(count, 10, generator=random) + strength * torch.eye(10)[true]).softmax(1)
    other = (true + torch.randint(1, 10, (count,), generator=random)) % 10
    given = torch.where(torch.rand(count, generator=random) < rate, other, true)
    verified = VerifiedSamples(probs[2000:], given[2000:], true[2000:], torch.arange(clean))
    predictions = Predictions(
        given[:2000], [str(number) for number in range(10)], probs.__getitem__, lambda positions: []
    )
    found = rank_labels(predictions, Evidence(verified, cross_fitted=True, seed=seed), fdr=0.1)
    return found, (given != true)[:2000]


@pytest.mark.parametrize(("clean", "strength"), [(100, 3.0), (300, 3.0), (300, 2.0)])
def test_the_false_discovery_rate_that_was_asked_for(clean: int, strength: float) -> None:
    rates, flagged, possible = [], 0, 0
    for seed in range(12):
        found, wrong = checked(seed, clean, rate=0.3, strength=strength)
        rates.append(float((~wrong[found.flagged]).double().mean()) if bool(found.flagged.any()) else 0.0)
        flagged += int(found.flagged.sum())
        right = (~wrong[found.order.long()]).double().cumsum(0) / torch.arange(1, 2001)
        possible += int((right <= 0.1).nonzero().max()) + 1
    assert sum(rates) / 12 < 0.1
    assert max(rates) < 0.2
    assert flagged > 0.6 * possible, f"{flagged} of {possible} that could be flagged"


def test_why_nothing_is_flagged() -> None:
    """With 60 checked samples and a poor network, no list is known to be that good; with 600 none is."""
    few, many = (checked(0, clean, rate=0.15, strength=1.0)[0].error_rate_summary() for clean in (60, 600))
    for told, advice in (
        (few, r"check about [\d,]+ more random samples"),
        (many, "more clean samples would hardly change that: allow a higher rate"),
    ):
        assert told["flagged"]["depth"] == 0
        first = r"about \d+ % \(\d+ to \d+\) of the 10 worst labels are wrong"
        needed = rf"and a false discovery rate of 0\.1 takes 90 %; {advice}, or pass flag=\"expected\""
        assert re.match(
            rf"no label is flagged: by {told['samples']} clean samples, {first}, {needed}", told["flagged"]["why"]
        )
        sentences = statement(told, samples=2000, flagged=0)
        assert sum(sentence.startswith("No label is flagged: by ") for sentence in sentences) == 1
    first = {"depth": 10, "estimate": 0.95, "low": 0.8, "high": 1.0}
    assert "for none of the worst labels is another class likelier" in why_none_flagged(0.1, 100, 0.2, first)
