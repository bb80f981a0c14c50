"""Draw the path of a run and of a batch through the package: python docs/make/architecture.py

It writes docs/images/architecture.svg.
"""

from __future__ import annotations

from pathlib import Path

PLACE = Path(__file__).parent.parent / "images" / "architecture.svg"

# A title, where it happens, and what it leaves on disk (or what else is to be said).
RUN = [
    ("mslg fit, mslg.fit", "cli/  fitting/", ""),
    ("Settings: recipe, then options", "runs/settings.py  runs/recipes/", "config.toml"),
    ("Read the data, add noise", "data/readers/  noise/", ""),
    ("Split off the clean samples", "data/make_splits.py", "division.parquet"),
    ("Build network and method", "networks/  methods/", ""),
    ("Train: consume the loop", "runs/execute.py  training/loop.py", "metrics.jsonl, checkpoint/"),
    ("Judge every given label", "issues/", "labels.parquet, suspects.parquet"),
    ("Compare with the controls", "runs/controls/", "summary.json, controls/"),
    ("Write the report", "review/report/", "report.html"),
    ("Apply a reviewer's decisions", "review/", "cleaned data, or the next round"),
]
BATCH = [
    ("Read inputs by index", "data/source.py  data/images.py", "decoded in worker processes"),
    ("Batch(index, inputs, label)", "data/splits.py  data/batch.py", "order: a function of (seed, epoch)"),
    ("Augment", "data/augmentation.py", ""),
    ("method.step(batch, clean)", "methods/", "what the author of a method writes; for MSLG:"),
    ("Look ahead, clean gradient, tangent", "bilevel/engine.py", "on a batch of clean samples"),
    ("Move the soft labels", "bilevel/label_table.py", "rows by index"),
    ("Loss, then the optimizer step", "training/losses.py\ntraining/optimizer_step.py", ""),
    ("StepResult(scalars, log_probs)", "training/method.py", ""),
    ("Fold log_probs into the history", "training/prediction_history.py", "read by issues/ and the report"),
    ("Epoch ends: evaluate, record", "training/evaluation.py  training/loop.py", "one line of metrics.jsonl"),
]
INNER = range(4, 7)  # boxes of the batch that are inside the method's step

WIDTH, TOP, STEP, BOX, HEIGHT = 860, 84, 82, 64, 920
STYLE = """
  .card { fill: #ffffff; stroke: #d5d9e0 } .box { fill: #f4f6f9; stroke: #c6ccd6 } .ink { fill: #1d2433 }
  .soft { fill: #5a6475 } .line { stroke: #7b8698; fill: none; stroke-width: 1.5 } .head { fill: #7b8698 }
  .path { fill: #0b6e4f } .inner { stroke: #7a5bc7; fill: none; stroke-dasharray: 5 4 } .tint { fill: #7a5bc7 }
  text { font: 15px system-ui, sans-serif } .title { font-weight: 600 } .small { font-size: 13px }
  .path { font: 13px ui-monospace, monospace }
  @media (prefers-color-scheme: dark) {
    .card { fill: #14181f; stroke: #343c49 } .box { fill: #1d232d; stroke: #3d4756 } .ink { fill: #e8ecf3 }
    .soft { fill: #a8b2c1 } .line { stroke: #8a95a8 } .head { fill: #8a95a8 } .path { fill: #4fd1a1 }
    .inner { stroke: #a98df0 } .tint { fill: #a98df0 }
  }
"""


def draw() -> str:
    """The whole figure."""
    title = "The path of a run and of a batch through the folders of the package"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
    card = f'<rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="14"/>'
    run = column(30, 370, "The path of a run", "→ what it leaves in the run folder", RUN)
    batch = column(460, 350, "The path of a batch", "once per training step", BATCH)
    top, bottom = TOP + INNER[0] * STEP - 9, TOP + INNER[-1] * STEP + BOX + 9
    inner = f'<rect class="inner" x="450" y="{top}" width="370" height="{bottom - top}" rx="10"/>'
    first, last = TOP + BOX / 2, TOP + 8 * STEP + BOX / 2  # the history is kept, then the next batch is read
    again = (
        f'<path class="line" d="M 810 {last} H 834 V {first} H 818"/>'
        f'<path class="head" d="M 811 {first} l 9 -5 v 10 z"/>'
        f'<text class="soft small" transform="translate(849 {(first + last) / 2}) rotate(-90)" '
        'text-anchor="middle">next batch</text>'
    )
    return "\n".join([head, f"<style>{STYLE}</style>", card, run, batch, inner, again, "</svg>\n"])


def column(x: int, width: int, title: str, note: str, boxes: list[tuple[str, str, str]]) -> str:
    """Boxes below each other, with arrows between them."""
    parts = [text(x, 36, title, "ink title"), text(x, 60, note, "soft small")]
    for number, (name, where, more) in enumerate(boxes):
        y = TOP + number * STEP
        parts.append(f'<rect class="box" x="{x}" y="{y}" width="{width}" height="{BOX}" rx="8"/>')
        parts.append(text(x + 12, y + 18, name, "ink title small"))
        for line, path in enumerate(where.split("\n")):
            parts.append(text(x + 12, y + 37 + 18 * line, path, "path"))
        if more:
            disk = x < WIDTH / 3
            parts.append(text(x + 12, y + 55, f"→ {more}" if disk else more, "tint small" if disk else "soft small"))
        if number + 1 < len(boxes):
            middle, end = x + width / 2, y + STEP
            parts.append(f'<path class="line" d="M {middle} {y + BOX} V {end - 7}"/>')
            parts.append(f'<path class="head" d="M {middle} {end} l -5 -9 h 10 z"/>')
    return "\n".join(parts)


def text(x: float, y: float, words: str, kind: str) -> str:
    """A line of text; two spaces separate paths."""
    return f'<text class="{kind}" x="{x}" y="{y}" xml:space="preserve">{words.replace("&", "&amp;")}</text>'


if __name__ == "__main__":
    PLACE.write_text(draw(), encoding="utf-8")
    print(PLACE)
