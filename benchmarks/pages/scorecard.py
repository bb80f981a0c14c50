"""The default against the best control and the best rival in every setting of the robustness suite: a picture, what it
shows in words, and the sentence that README.md and docs/choosing.md quote between marks."""

from __future__ import annotations

import re
from pathlib import Path

from mslg.sweeps.table import Difference

from .memorising_claims import certainty
from .memorising_tables import OURS, Tables, tables, whole_table
from .robustness import RIVALS, Row, cells, grouped, rows
from .scorecard_picture import WORDS, Apart, Group, Line, picture
from .sweep import Sweep, read
from .words import listed, prose, signed

NAME = "scorecard.svg"
MARKS = "<!-- robustness: {} -->", "<!-- robustness: end -->"
SEEDS = 3  # at least, for an interval that says something
PLAIN_NAMES = {"cifar": "CIFAR", "trec": "TREC", "digits-uneven": "uneven digits"}
CONTROLS = ("cross-entropy", "clean-only", "noisy-plus-clean", "noisy-then-clean", "gold-correction")
NO_RIVALS = (*CONTROLS, *OURS, "cross-entropy, stopped early", "mslg, label rate 0")


def settings(results: Path) -> list[Row]:
    """The settings in which the default has been run with several seeds, the largest gain over controls first."""
    found = grouped(cells(results))
    values = {name: by_row for name, by_row in found.items() if len(by_row.get("default", ())) >= SEEDS}
    return sorted(rows(values), key=lambda row: -row.control[0])


def draw(results: Path, folder: Path, features: Sweep, memorised: Tables) -> bool:
    """Write the picture, or remove an old one where there is nothing to show."""
    suite = [
        Line(in_words(row.setting), _apart(*row.control), _suite_rival(row) if row.has_rivals else None)
        for row in settings(results)
    ]
    groups = [
        Group("Robustness suite: an MLP, 30 epochs", suite),
        Group("Networks that memorise: 16 × 16 pixels, a CNN, 20 epochs", _of_columns(memorised)),
        Group("Many samples, few epochs: features of 50,000 images, 6 epochs", _of_columns(whole_table(features))),
    ]
    if suite:
        (folder / NAME).write_text(picture([group for group in groups if group.lines]))
    else:
        (folder / NAME).unlink(missing_ok=True)
    return bool(suite)


def in_words(setting: str) -> str:
    """A setting of the suite: its data, noise, rate and number of clean samples."""
    data, noise, rate, clean = setting.split()
    return f"{PLAIN_NAMES.get(data, data)}, {noise} {rate} %, {clean} clean"


def _of_columns(found: Tables) -> list[Line]:
    """A line for each column of a sweep."""
    controls = found.minus_best("default", CONTROLS)
    rivals = found.minus_best("default", [row for row in found.rivals if row not in NO_RIVALS])
    return [
        Line(column, _of(each), _of(rivals[column][1]) if column in rivals else None)
        for column, (_, each) in controls.items()
    ]


def _suite_rival(row: Row) -> Apart:
    return _apart(row.rival[0], row.rival[1] if known_rival(row) else float("inf"))


def _of(found: Difference) -> Apart:
    return _apart(found.mean, float("inf") if found.low is None or found.seeds < SEEDS else found.mean - found.low)


def _apart(mean: float, half: float) -> Apart:
    return Apart(mean, None if half == float("inf") else half)


def known_rival(row: Row) -> bool:
    """Whether its best rival has been run often enough for an interval that says something."""
    number = re.search(r"\((\d+)\)$", row.cells[5])
    return row.has_rivals and number is not None and int(number[1]) >= SEEDS


def above(difference: tuple[float, float]) -> bool:
    """Significantly."""
    return difference[0] > difference[1]


def below(difference: tuple[float, float]) -> bool:
    """Significantly."""
    return -difference[0] > difference[1]


def rival(row: Row) -> str:
    """The name of its best rival."""
    return row.cells[5].rpartition(" (")[0]


def sections(results: Path) -> list[str]:
    """Where the default wins and where it does not."""
    made = settings(results)
    noisy = [row for row in made if row.noisy]
    wins, loses = [row for row in noisy if above(row.control)], [row for row in made if below(row.control)]
    level = [row.setting for row in noisy if not above(row.control) and not below(row.control)]
    lost_to = [row for row in made if known_rival(row) and below(row.rival)]
    beaten = [f"{row.setting} ({rival(row)}, {-row.rival[0]:.1f} points)" for row in lost_to]
    gains = [row.control[0] for row in wins]
    won = f"**Where it wins.** Significantly above the best of seven controls in {len(wins)} of {len(noisy)} noisy "
    won += "settings"
    won += f", by {min(gains):.1f} to {max(gains):.1f} points." if wins else "."
    parts = [f"level with the best control in {len(level)} noisy settings ({', '.join(level)})"] if level else []
    parts += [f"below the best control in {listed([row.setting for row in loses])}"] if loses else []
    parts += [f"below another method in {listed(beaten)}"] if beaten else []
    lost = ["**Where it does not.**", f"It is {'; '.join(parts)}." if parts else "Nowhere in this suite."]
    return [
        f"![{WORDS}]({NAME})",
        prose(
            "The [default](../methods/cross-fitted.md) in every setting of the [robustness suite](robustness.md): a",
            "data set, a noise, its rate in percent and the number of clean samples. Control and method are the best",
            "of the setting *on its test samples*, which nobody could have picked in advance. Below it, the columns of",
            "[networks that memorise](memorising.md) and of [features of all of CIFAR-10](features.md).",
        ),
        prose(won),
        prose(*lost),
    ]


def on_features(features: Sweep) -> list[Difference]:
    """The default on many samples in few epochs, in every column: minus the best control."""
    return [each for _, each in whole_table(features).minus_best("default", CONTROLS).values()]


def beyond(features: Sweep) -> list[str]:
    """What the suite does not show."""
    found = on_features(features)
    if not found:
        return []
    parts = []
    for word, sign in (("above", 1), ("below", -1)):
        sizes = [sign * each.mean for each in found if each.significant and sign * each.mean > 0]
        by = f" (by up to {max(sizes):.1f} points)" if sizes else ""
        parts.append(f"significantly {word} in {len(sizes)} of {len(found)} columns{by}")
    return [
        prose(
            "**Many samples, few epochs.** On [frozen features of all of CIFAR-10](features.md), 49,000 samples and",
            f"six epochs, the default is {' and '.join(parts)} against the best of five controls. Two of the",
            "six epochs go into the fold networks.",
        )
    ]


def memorised(found: Tables) -> list[str]:
    """The default where networks memorise."""
    others = found.rivals
    told = []
    for ours, words in zip(OURS, ("the default", "with label learning it"), strict=True):
        by_column = found.minus_best(ours, others) if ours in found.table.rows else {}
        if not by_column:
            continue
        gains = [each.mean for _, each in by_column.values() if each.mean > 0]
        behind = [f"{name} {signed(each.mean)} to {row}" for name, (row, each) in by_column.items() if each.mean <= 0]
        told.append(
            f"{words} is above in {len(gains)} of {len(by_column)} columns"
            + (f", by up to {max(gains):.1f} points" if gains else "")
            + (f", not in {listed(behind)}" if behind else "")
            + certainty(found, {name: each for name, (_, each) in by_column.items()})
        )
    if not told:
        return []
    return [
        prose(
            "**Networks that memorise.** On [small images that a network learns by heart](memorising.md), against the",
            f"best of {len(others)} other rows of each column, chosen with hindsight: {'. '.join(told)}.".replace(
                ". with", ". With"
            ),
        )
    ]


def sentence(results: Path, folder: str) -> str:
    """What README.md and docs/choosing.md say; `folder` is where they find the results."""
    made = settings(results)
    noisy = [row for row in made if row.noisy]
    wins, losses = sum(above(row.control) for row in noisy), [row.setting for row in made if below(row.control)]
    others = [row for row in made if known_rival(row) and below(row.rival)]
    by_rival = {name: [row.setting for row in others if rival(row) == name] for name in map(rival, others)}
    told = [f"`{name}` in {len(where)} ({', '.join(where)})" for name, where in by_rival.items()]
    gains, harms = ([row for row in made if found(row.meta)] for found in (above, below))
    sizes = sorted(row.meta[0] for row in gains)
    gained = f" (by {sizes[0]:.1f} to {sizes[-1]:.1f} points)" if gains else ""
    lost = f" ({', '.join(losses)})" if losses else ""
    number = len(RIVALS) - 1
    pixels = on_pixels(results, folder)
    better = f"Of {number} other methods, significantly better than it: {listed(told)}." if told else ""
    more = ""
    if (results / "features" / "recipe.toml").exists():
        found = on_features(read("features", results, results).finished_part())
        behind = [-each.mean for each in found if each.significant and each.mean < 0]
        if behind:
            more = prose(
                "Beyond these settings, on many samples in few epochs, it is worse than the best of five controls in",
                f"{len(behind)} of {len(found)} columns, by up to {max(behind):.1f} points",
                f"([where]({folder}/index.md)).",
            )
    return prose(
        f"In [{len(made)} settings]({folder}/robustness.md), against the best of seven controls chosen with hindsight,",
        f"the default is significantly better in {wins} of the {len(noisy)} noisy ones and significantly worse in",
        f"{len(losses)} of all{lost}.",
        better
        or f"None of {number} other methods, with five seeds or more on small data and two on features and texts, is "
        "significantly better than it in any of them.",
        more,
        "MSLG's own label learning on top of it (`--preset meta`) makes it significantly better in",
        f"{len(gains)}{gained} and worse in {len(harms)} ([more]({folder}/label-learning.md)).",
        pixels,
    )


def on_pixels(results: Path, folder: str) -> str:
    """In how many columns the default is the best where networks memorise."""
    if not (results / "memorising" / "recipe.toml").exists():
        return ""
    found = tables(read("memorising", results, results))
    others = found.rivals
    above, sure, of = [], [], 0
    for ours in OURS:
        by_column = found.minus_best(ours, others) if ours in found.table.rows else {}
        above, of = [*above, sum(each.mean > 0 for _, each in by_column.values())], len(by_column)
        sure.append(sum(each.mean > 0 and each.significant for _, each in by_column.values()))
    if not of:
        return ""
    least, most = (len(each.grid.seeds) for each in (found.table, found.leading))
    few = f"{least} to {most} seeds" if found.leading.results else f"{least} seeds"
    return (
        f"Where a network learns small images by heart, it is above the best of {len(others)} other rows in {above[0]} "
        f"of {of} columns (significantly in {sure[0]}), with label learning in {above[1]} ({sure[1]}); {few} "
        f"([table]({folder}/memorising.md))."
    )


def filled(text: str, results: Path, folder: str) -> str:
    """A page with the sentence between its marks."""
    start, end = MARKS[0].format("verdict"), MARKS[1]
    block = f"{start}\n\n{sentence(results, folder)}\n\n{end}"
    return re.sub(f"{re.escape(start)}.*?{re.escape(end)}", lambda _: block, text, flags=re.DOTALL)
