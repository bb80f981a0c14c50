"""The picture of the scorecard: the default minus the best control and the best other method, a line per setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WORDS = "Test accuracy of the default minus that of the best control and of the best other method, with 95 % intervals"
LOW, HIGH = -6.0, 12.0  # points that the picture shows; intervals that go beyond are cut off
WIDTH, LEFT, TOP, STEP, HEAD = 790, 324, 88, 16, 30
STYLE = """
  .card { fill: #ffffff; stroke: #d5d9e0 } .grid { stroke: #e3e6eb } .zero { stroke: #5a6475 } .ink { fill: #1d2433 }
  .soft { fill: #5a6475 } .control { stroke: #0b6e4f; fill: #0b6e4f } .rival { stroke: #c2540a; fill: #ffffff }
  .control, .rival { stroke-width: 1.5 } text { font: 12px system-ui, sans-serif } .title { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #14181f; stroke: #343c49 } .grid { stroke: #2a313c } .zero { stroke: #a8b2c1 } .ink { fill: #e8ecf3 }
    .soft { fill: #a8b2c1 } .control { stroke: #4fd1a1; fill: #4fd1a1 } .rival { stroke: #ff9d5c; fill: #14181f }
  }
"""


class Apart(NamedTuple):
    """A difference in points."""

    mean: float
    half: float | None  # of its 95 % interval; None with too few seeds


class Line(NamedTuple):
    """A setting: the default minus the best control, and minus the best other method."""

    label: str
    control: Apart
    rival: Apart | None


class Group(NamedTuple):
    """Settings of one benchmark."""

    title: str
    lines: Sequence[Line]


def picture(groups: Sequence[Group]) -> str:
    """A filled dot against the best control, a hollow one against the best other method; the largest gains first."""
    height = TOP + sum(HEAD + STEP * len(group.lines) for group in groups) + 34
    bottom = height - 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{WORDS}">',
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        '<text class="ink title" x="16" y="25">Default minus the best other, test accuracy in points</text>',
        '<circle class="control" cx="22" cy="45" r="4"/><text class="ink" x="34" y="49">best control</text>',
        '<circle class="rival" cx="132" cy="45" r="4"/><text class="ink" x="144" y="49">best other method</text>',
        '<text class="soft" x="290" y="49">both chosen with hindsight; lines: 95 % intervals; none: two seeds</text>',
    ]
    for value in range(int(LOW), int(HIGH) + 1, 2):
        x = across(value)
        kind = "grid" if value else "zero"
        lines.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 22}" y2="{bottom}"/>')
        label = f"{value:+d}".replace("-", "−") if value else "0"
        lines.append(f'<text class="soft" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
    y = TOP
    for group in groups:
        lines.append(f'<text class="ink title" x="16" y="{y}">{group.title}</text>')
        for line in sorted(group.lines, key=lambda each: -each.control.mean):
            y += STEP
            lines.append(f'<text class="soft" x="{LEFT - 14}" y="{y + 4}" text-anchor="end">{line.label}</text>')
            if line.rival is not None:
                lines += _dot("rival", line.rival, y + 3)
            lines += _dot("control", line.control, y - 2)
        y += HEAD
    return "\n".join([*lines, "</svg>", ""])


def across(value: float) -> float:
    """Where a difference is drawn."""
    return LEFT + (WIDTH - 20 - LEFT) * (min(max(value, LOW), HIGH) - LOW) / (HIGH - LOW)


def _dot(kind: str, apart: Apart, y: float) -> list[str]:
    mean, half = apart
    dot = [f'<circle class="{kind}" cx="{across(mean):.1f}" cy="{y}" r="3.5"/>']
    if half is None:
        return dot
    return [
        f'<line class="{kind}" x1="{across(mean - half):.1f}" x2="{across(mean + half):.1f}" y1="{y}" y2="{y}"/>',
        *dot,
    ]
