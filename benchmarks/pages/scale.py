"""The numbers of docs/scale.md, which stand there between marks, and its picture of how cost grows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .words import prose, table, thousands

WORDS = "Time a sample over the number of samples, of classes and of parameters"
MARKS = "<!-- scale: {} -->", "<!-- scale: end -->"
NETWORKS = {"mlp": "MLP, 512 hidden units", "cnn8": "8-layer CNN, width 16"}
LINES = {"plain": "plain step", "exact": "MSLG, exact", "fast": "MSLG, preset fast"}
PANELS = {
    "samples": ("samples", "MLP, 10 classes"),
    "classes": ("classes", "MLP, 50,000 samples"),
    "width": ("parameters", "MLP, 64 to 2,048 hidden units"),
    "cnn8": ("parameters", "8-layer CNN, widths 4 to 32"),
}
WIDTH, HEIGHT, LEFT, TOP, ACROSS, DOWN = 720, 640, 64, 76, 270, 190  # of the picture and of a panel
STYLE = """
  .card { fill: #ffffff; stroke: #d5d9e0 } .grid { stroke: #d5d9e0 } .ink { fill: #1d2433 } .soft { fill: #5a6475 }
  .plain { stroke: #5a6475; fill: #5a6475 } .exact { stroke: #c2540a; fill: #c2540a } .fast { stroke: #0b6e4f; fill: #0b6e4f }
  polyline { fill: none !important; stroke-width: 2 } text { font: 13px system-ui, sans-serif } .title { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #14181f; stroke: #343c49 } .grid { stroke: #343c49 } .ink { fill: #e8ecf3 } .soft { fill: #a8b2c1 }
    .plain { stroke: #a8b2c1; fill: #a8b2c1 } .exact { stroke: #ff9d5c; fill: #ff9d5c }
    .fast { stroke: #4fd1a1; fill: #4fd1a1 }
  }
"""  # noqa: E501


def filled(text: str, results: Path) -> str:
    """The page with the numbers that its marks ask for."""
    start, end = (re.escape(mark).replace(r"\{\}", "([a-z]+)") for mark in MARKS)
    parts: dict[str, Callable[[Path], str]] = {"table": table_part, "growth": growth_part}

    def block(found: re.Match[str]) -> str:
        return f"{MARKS[0].format(found[1])}\n\n{parts[found[1]](results)}\n\n{MARKS[1]}"

    return re.sub(f"{start}.*?{end}", block, text, flags=re.DOTALL)


def table_part(results: Path) -> str:
    """What a step and the memory of very many samples are."""
    if not (results / "table_scale.json").exists():
        return "Not measured yet: `python benchmarks/table_scale.py --write`."
    found = json.loads((results / "table_scale.json").read_text())
    size = f"{thousands(found['samples'])} × {thousands(found['classes'])}"
    lines = []
    for name, label in NETWORKS.items():
        if (measured := found["step"].get(name)) is not None:
            large, few, least = (measured["ms"][key] for key in ("large", "few", "few, 10 classes"))
            lines.append([label, *(f"{value:.1f}" for value in (least, few, large)), f"{large / few:.2f}"])
    head = ["ms a step", "50,000 × 10, in memory", "50,000 × 1,000, in memory", f"{size}, in files", "files / memory"]
    memory = found["memory"]
    exports = [
        [f"writing {thousands(int(count))} rows of `labels.parquet`", str(each["mb"]), f"{each['seconds']:.0f}"]
        for count, each in memory["exports"].items()
    ]
    parts = [[name, str(memory[key]["mb"]), f"{memory[key]['seconds']:.0f}"] for name, key in _PARTS.items()]
    return "\n\n".join(
        [
            table(head, lines),
            table(["highest anonymous memory above the network's", "MB", "seconds"], [*parts, *exports]),
            prose(
                f"The files of the large set take {memory['files']['on_disk_gb']} GB of the disk, reserved before the",
                f"first step. Made by `{found['command']}` on {found['machine']}.",
            ),
        ]
    )


_PARTS = {"labels, order, vectors": "set-up", "training": "training", "a checkpoint": "checkpoint"}


def growth_part(results: Path) -> str:
    """The picture, and the numbers behind it."""
    if not (results / "growth.json").exists():
        return "Not measured yet: `python benchmarks/growth.py --write`."
    found = json.loads((results / "growth.json").read_text())
    parts = [f"![{WORDS}, for the plain step and MSLG's exact and fast ones](results/growth.svg)"]
    for axis, (unit, about) in PANELS.items():
        if (points := found["axes"].get(axis)) is None:
            continue
        numbers = [
            [thousands(int(point["parameters" if unit == "parameters" else axis]))]
            + [f"{point[name]:.1f}" for name in LINES]
            for point in points
        ]
        parts.append(f"{about}, microseconds a sample:")
        parts.append(table([unit, *LINES.values()], numbers))
    return "\n\n".join([*parts, prose(f"Made by `{found['command']}` on {found['machine']}, batches of 128.")])


def draw(results: Path, path: Path) -> None:
    """Write the picture, or remove an old one where nothing is measured."""
    if (results / "growth.json").exists():
        path.write_text(picture(results))
    else:
        path.unlink(missing_ok=True)


def picture(results: Path) -> str:
    """Time a sample over what grows, both on scales of powers: parallel to the axis is flat, the diagonal is
    proportional."""
    axes = json.loads((results / "growth.json").read_text())["axes"]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{WORDS}">',
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>',
    ]
    for number, (name, label) in enumerate(LINES.items()):
        x = LEFT + 190 * number
        lines.append(f'<polyline class="{name}" points="{x},28 {x + 26},28"/>')
        lines.append(f'<text class="ink" x="{x + 34}" y="33">{label}</text>')
    there = [axis for axis in PANELS if axis in axes]
    for number, axis in enumerate(there):
        x, y = LEFT + (ACROSS + 76) * (number % 2), TOP + (DOWN + 94) * (number // 2)
        lines += _panel(axis, axes[axis], x, y)
    return "\n".join([*lines, "</svg>", ""])


def _panel(axis: str, points: Sequence[Mapping[str, float]], left: int, top: int) -> list[str]:
    unit, about = PANELS[axis]
    values = [float(point["parameters" if unit == "parameters" else axis]) for point in points]
    times = [point[name] for point in points for name in LINES]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    first, last = math.log10(values[0]), math.log10(values[-1])

    def across(value: float) -> float:
        return left + ACROSS * (math.log10(value) - first) / max(last - first, 1e-9)

    def down(value: float) -> float:
        return top + DOWN * (high - math.log10(value)) / max(high - low, 1)

    found = [f'<text class="ink title" x="{left}" y="{top - 12}">{about}</text>']
    for power in range(low, high + 1):
        y = down(10.0**power)
        found.append(f'<line class="grid" x1="{left}" x2="{left + ACROSS}" y1="{y:.1f}" y2="{y:.1f}"/>')
        found.append(f'<text class="soft" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{_time(10.0**power)}</text>')
    for value in (values[0], values[len(values) // 2], values[-1]):
        label = f"{value:,.0f}" if value < 1e6 else f"{value / 1e6:.3g} million"
        found.append(
            f'<text class="soft" x="{across(value):.1f}" y="{top + DOWN + 20}" text-anchor="middle">{label}</text>'
        )
    found.append(f'<text class="soft" x="{left + ACROSS / 2}" y="{top + DOWN + 40}" text-anchor="middle">{unit}</text>')
    for name in LINES:
        places = [(across(value), down(point[name])) for value, point in zip(values, points, strict=True)]
        found.append(f'<polyline class="{name}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>')
        found += [f'<circle class="{name}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places]
    return found


def _time(microseconds: float) -> str:
    return f"{microseconds:g} µs" if microseconds < 1000 else f"{microseconds / 1000:g} ms"
