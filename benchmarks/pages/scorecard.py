"""The default against the best control and the best rival in every setting of the robustness suite: a picture, what it
shows in words, and the sentence that README.md and docs/choosing.md quote between marks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mslg.sweeps.table import Difference

from .memorising_claims import certainty
from .memorising_tables import OURS, Tables, tables
from .robustness import RIVALS, Row, cells, grouped, rows
from .sweep import Sweep, read
from .words import listed, prose, signed

NAME = "scorecard.svg"
WORDS = "Test accuracy of the default minus that of the best control and of the best other method, with 95 % intervals"
MARKS = "<!-- robustness: {} -->", "<!-- robustness: end -->"
SEEDS = 3  # at least, for an interval that says something
LOW, HIGH = -6.0, 12.0  # points that the picture shows; intervals that go beyond are cut off
WIDTH, LEFT, TOP, STEP = 760, 290, 92, 22
STYLE = """
  .card { fill: #ffffff; stroke: #d5d9e0 } .grid { stroke: #e3e6eb } .zero { stroke: #5a6475 } .ink { fill: #1d2433 }
  .soft { fill: #5a6475 } .control { stroke: #0b6e4f; fill: #0b6e4f } .rival { stroke: #c2540a; fill: #ffffff }
  .control, .rival { stroke-width: 1.6 } text { font: 13px system-ui, sans-serif } .title { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #14181f; stroke: #343c49 } .grid { stroke: #2a313c } .zero { stroke: #a8b2c1 } .ink { fill: #e8ecf3 }
    .soft { fill: #a8b2c1 } .control { stroke: #4fd1a1; fill: #4fd1a1 } .rival { stroke: #ff9d5c; fill: #14181f }
  }
"""


def settings(results: Path) -> list[Row]:
    """The settings in which the default has been run with several seeds, the largest gain over controls first."""
    found = grouped(cells(results))
    values = {name: by_row for name, by_row in found.items() if len(by_row.get("default", ())) >= SEEDS}
    return sorted(rows(values), key=lambda row: -row.control[0])


def draw(results: Path, folder: Path) -> bool:
    """Write the picture, or remove an old one where there is nothing to show."""
    made = settings(results)
    if made:
        (folder / NAME).write_text(picture(made))
    else:
        (folder / NAME).unlink(missing_ok=True)
    return bool(made)


def picture(made: Sequence[Row]) -> str:
    """A line per setting: a filled dot against the best control, a hollow one against the best rival."""
    height = TOP + STEP * len(made) + 44
    bottom = height - 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{WORDS}">',
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        '<text class="ink title" x="16" y="26">Default minus the best other, test accuracy in points</text>',
        '<circle class="control" cx="22" cy="47" r="4"/><text class="ink" x="34" y="51">best control</text>',
        '<circle class="rival" cx="142" cy="47" r="4"/><text class="ink" x="154" y="51">best other method</text>',
        '<text class="soft" x="300" y="51">both chosen with hindsight; lines: 95 % intervals</text>',
    ]
    for value in range(int(LOW), int(HIGH) + 1, 2):
        x = across(value)
        lines.append(
            f'<line class="{"grid" if value else "zero"}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 18}" y2="{bottom}"/>'
        )
        label = f"{value:+d}" if value else "0"
        lines.append(f'<text class="soft" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
    for number, row in enumerate(made):
        y = TOP + STEP * number
        lines.append(f'<text class="ink" x="{LEFT - 14}" y="{y + 4}" text-anchor="end">{row.setting}</text>')
        if known_rival(row):
            lines += _dot("rival", row.rival, y + 4)
        lines += _dot("control", row.control, y - 3)
    return "\n".join([*lines, "</svg>", ""])


def across(value: float) -> float:
    """Where a difference is drawn."""
    return LEFT + (WIDTH - 20 - LEFT) * (min(max(value, LOW), HIGH) - LOW) / (HIGH - LOW)


def _dot(kind: str, difference: tuple[float, float], y: float) -> list[str]:
    mean, half = difference
    ends = f'x1="{across(mean - half):.1f}" x2="{across(mean + half):.1f}"'
    return [
        f'<line class="{kind}" {ends} y1="{y}" y2="{y}"/>',
        f'<circle class="{kind}" cx="{across(mean):.1f}" cy="{y}" r="4"/>',
    ]


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
            "of the setting *on its test samples*, which nobody could have picked in advance. Hollow dots: where other",
            f"methods have been run with at least {SEEDS} seeds.",
        ),
        prose(won),
        prose(*lost),
    ]


def on_features(features: Sweep) -> list[Difference]:
    """The default on many samples in few epochs, in every column: minus the better of two controls."""
    against = [features.minus("default", control) for control in ("cross-entropy", "gold-correction")]
    columns = [column for column in against[0] if column in against[1]]
    return [min((each[column] for each in against), key=lambda found: found.mean) for column in columns]


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
            f"six epochs, the default is {' and '.join(parts)} against the better of cross entropy and gold",
            "correction. Two of the six epochs go into the fold networks.",
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
        behind = sum(each.significant and each.mean < 0 for each in found)
        if behind:
            more = "Beyond these settings, on many samples in few epochs, it is worse than the better of two controls "
            more += f"in {behind} of {len(found)} columns ([where]({folder}/index.md))."
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
