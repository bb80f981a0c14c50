"""docs/results/issues.md: which list of label issues is best, and whether its stated error rate holds."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from . import real_noise
from .words import prose, signed, table

LISTS = {"default": "default", "mslg": "mslg", "cleanlab": "cleanlab", "loss": "loss of a plain network"}
MEASURES = {
    "average_precision": "average precision",
    "precision_at_errors": "precision at the number of errors",
    "suggested_accuracy": "labels right afterwards",
}
INSIDE = {"all": "wrong labels", "200": "first 200", "1000": "first 1,000", "5000": "first 5,000"}
INSIDE["10000"] = "first 10,000"
ALPHA = 1e-9


def page(results: Path) -> str:
    """The page."""
    return "\n\n".join(
        [
            "# The issue list, measured",
            prose(
                "How well the [issue list](../issues.md) finds wrong labels, beside other lists, and whether the error",
                "rate stated with it holds. The noise is made, so the truth is known; no list or statement sees it.",
            ),
            "## Which list finds wrong labels best?",
            *_detection(_cells(results / "issue_detection.json")),
            "## Does the stated error rate hold?",
            *_rates(_cells(results / "error_rate.json")),
            *real_noise.section(results),
            "## What does a round of review bring?",
            *_round(results / "review_round.json"),
        ]
    )


def _cells(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    found: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return found


def _detection(cells: list[dict[str, Any]]) -> list[str]:
    command = "```sh\npython benchmarks/issue_detection.py --root DATA\n```"
    about = prose(
        "All three lists may use the same clean samples: 1,000 with the features of CIFAR-10's 50,000 training images,",
        "200 with digits. *Default* or *mslg*: a run of that method. *cleanlab*: `find_label_issues` on probabilities",
        "of five networks, each trained on four fifths of the noisy samples and on the clean ones, and asked about the",
        "last fifth; it changes the labels it calls issues to the likeliest class. *Loss*: of one network trained on",
        "noisy and clean samples; it changes every label to its prediction. In percent of the training samples.",
    )
    if not cells:
        return [command, about, "Not run yet."]
    lists = {each: words for each, words in LISTS.items() if all(each in cell["lists"] for cell in cells)}
    ours = next(iter(lists))
    seeds = sorted({each["seed"] for each in cells})
    rows, lost = [], []
    for name in dict.fromkeys(each["set"] for each in cells):
        here = [each for each in cells if each["set"] == name]
        means = {key: {each: _mean(here, each, key) for each in lists} for key in MEASURES}
        for key, values in means.items():
            if max(values, key=lambda each: values[each]) != ours:
                best = max(values, key=lambda each: values[each])
                lost.append(f"{MEASURES[key]} on *{name}* ({values[ours]:.1f}, {best} {values[best]:.1f})")
        for each, words in lists.items():
            numbers = [_bold(means[key][each], max(means[key].values())) for key in MEASURES]
            rows.append([name if each == ours else "", words, *numbers])
    verdict = (
        "Ours is first in every row and measure."
        if not lost
        else prose(
            f"Ours is first but for {'; '.join(lost)}. Feature-dependent noise puts the wrong labels where a network",
            "trained on them is unsure anyway; neither the matrix nor the clean samples then add to what its loss says",
            "about the order of the list. They do add to which label is right.",
        )
    )
    count = f"Means over the seeds {', '.join(map(str, seeds))}; bold: the best of the three."
    return [command, about, table(["noise", "list", *MEASURES.values()], rows), count, verdict]


def _mean(cells: list[dict[str, Any]], each: str, key: str) -> float:
    return 100 * statistics.mean(cell["lists"][each][key] for cell in cells)


def _bold(value: float, best: float) -> str:
    return f"**{value:.1f}**" if value >= best - ALPHA else f"{value:.1f}"


def _rates(cells: list[dict[str, Any]]) -> list[str]:
    command = (
        "```sh\npython benchmarks/error_rate.py --root DATA\n"
        "python benchmarks/error_rate.py --root DATA --basis injected\n```"
    )
    about = prose(
        "For each noise a run on CIFAR-10's features with 600 clean samples that steer and a pool of 4,000 held-out",
        "ones; then the statement is made ten times, each with another 400 held-out samples of the pool and 600 others",
        "whose two labels are counted. Each place says how many of the 90 % intervals hold the truth, and the mean",
        "absolute error of the estimate: of the share of wrong labels, and of the share of wrong ones among the first",
        "200, 1,000, … of the list. The ten draws of a noise share a pool whose own share of wrong labels is not quite",
        "that of the training samples, so that misses come together.",
    )
    if not cells:
        return [command, about, "Not run yet."]
    parts = [command, about]
    for basis, words in {
        "pairs": "### With clean samples that carry both labels",
        "injected": "### With a clean set from elsewhere: noise of the estimated kind put in",
    }.items():
        here = [each for each in cells if each["basis"] == basis]
        if not here:
            continue
        names = list(dict.fromkeys(each["set"] for each in here))
        rows = [[name, *_held([each for each in here if each["set"] == name])] for name in names]
        rows.append(["**together**", *_held(here)])
        parts += [words, table(["noise", *INSIDE.values()], rows)]
    if any(each["basis"] == "injected" for each in cells):
        parts.append(
            prose(
                "Without pairs the statement is good where labels are wrong independently of what the network finds",
                "hard, and worthless where they are not: feature-dependent noise looks to it like samples that are",
                "hard. Nothing in such data could tell one from the other, so keep both labels of some samples.",
                "Only the statement does without pairs here: the network was trained as for the first table, with 600",
                "steering clean samples from whose two labels the run counted its transition matrix.",
            )
        )
    return parts


def _round(path: Path) -> list[str]:
    command = "```sh\npython benchmarks/review_round.py --data digits\n```"
    about = prose(
        "A run on digits with 40 % wrong labels and 200 clean samples; then 200 samples are reviewed with their true",
        "labels and the run goes on warm (`mslg fit --from RUN --decisions FILE`), all else equal: none reviewed,",
        "200 at random, the top of the list, or what `mslg review-next` picks. Change in test accuracy in points, mean",
        "over seeds with 95 % intervals; the seeds are others than those on which the round was designed.",
    )
    if not path.exists():
        return [command, about, "Not run yet."]
    rows = []
    for problem in json.loads(path.read_text())["problems"]:
        gain, over = problem["gain"], problem["over_random"]
        name = f"{problem['data']}, {problem['noise']}, {problem['clean']} clean"
        ways = [_points(gain[way]) for way in ("none", "random", "top", "next")]
        rows.append([name, f"{100 * problem['accuracy']['before']['mean']:.1f}", *ways, _points(over["top"])])
        rows[-1].append(_points(over["next"]))
    heads = ["before", "none", "random", "top", "review-next", "top − random", "review-next − random"]
    closing = prose(
        "The top of the list is what the run is surest of, so being told teaches it less: reviewing it cleans the",
        "data. To train a better network, review what `mslg review-next` picks.",
    )
    return [command, about, table(["noise", *heads], rows), closing]


def _points(found: dict[str, float]) -> str:
    mean, low, high = (signed(100 * found[key]) for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def _held(cells: list[dict[str, Any]]) -> list[str]:
    found = [rows for each in cells for rows in each["statements"]]
    words = []
    for key in INSIDE:
        numbers = [rows[key] for rows in found]
        inside = sum(n["low"] - ALPHA <= n["truth"] <= n["high"] + ALPHA for n in numbers)
        error = statistics.mean(abs(n["estimate"] - n["truth"]) for n in numbers)
        words.append(f"{inside} of {len(numbers)}, {error:.3f}")
    return words
