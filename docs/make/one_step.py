"""Draw one step of MSLG: python docs/make/one_step.py writes docs/images/one-step.svg

Nothing in the picture is drawn by hand: a model with two weights and three classes takes the step, so that its weights
fit on a plane.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from contourpy import contour_generator

PLACE = Path(__file__).parent.parent / "images" / "one-step.svg"
CLASSES = ("ant", "bee", "cat")
GIVEN, TRUE = 1, 0
LOOK_AHEAD, LABEL_RATE, START = 2.2, 3.2, 2.0  # far larger than in use, so that the moves can be seen

WIDTH, HEIGHT, PLOT = 640, 700, 270
STYLE = """
  .card { fill: #ffffff; stroke: #d5d9e0 } .panel { fill: #f4f6f9 } .ink { fill: #1d2433 } .soft { fill: #5a6475 }
  .line { stroke: #9aa4b5; fill: none } .noisy { stroke: #c2540a; fill: none } .noisy-fill { fill: #c2540a }
  .clean { stroke: #0b6e4f; fill: none } .clean-fill { fill: #0b6e4f } .bar { fill: #93a7cc } .label { fill: #7a5bc7 }
  .dash { stroke-dasharray: 5 4 }
  text { font: 16px system-ui, sans-serif } .title { font-weight: 600 } .small { font-size: 14px }
  @media (prefers-color-scheme: dark) {
    .card { fill: #14181f; stroke: #343c49 } .panel { fill: #1d232d } .ink { fill: #e8ecf3 } .soft { fill: #a8b2c1 }
    .line { stroke: #5b6678 } .noisy { stroke: #ff9d5c } .noisy-fill { fill: #ff9d5c }
    .clean { stroke: #4fd1a1 } .clean-fill { fill: #4fd1a1 } .bar { fill: #6d86b8 } .label { fill: #a98df0 }
  }
"""
Array = np.ndarray

# Which way each class pulls a sample's logits, and a few samples: inputs and labels.
PULLS = np.array([[np.cos(angle), np.sin(angle)] for angle in np.radians([100, 220, 340])])
CLEAN = np.array([[1.0, 1.2], [1.3, 0.8], [1.0, 1.0], [0.6, 1.4]]), np.array([0, 0, 2, 0])
NOISY = np.array([[0.9, 1.1], [1.1, 0.6], [0.7, 0.9]]), np.array([GIVEN, GIVEN, 2])
WEIGHTS = np.array([0.15, -0.35])


def predict(weights: Array, inputs: Array) -> Array:
    """(samples, classes) probabilities."""
    logits = (inputs * weights) @ PULLS.T
    raised = np.exp(logits - logits.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


def loss(weights: Array, samples: tuple[Array, Array]) -> float:
    """Mean cross entropy."""
    inputs, labels = samples
    return float(-np.log(predict(weights, inputs)[np.arange(len(labels)), labels]).mean())


def gradient(weights: Array, samples: tuple[Array, Array]) -> Array:
    """Of the loss, by central differences: exact enough for a picture."""
    steps = 1e-5 * np.eye(2)
    return np.array([(loss(weights + step, samples) - loss(weights - step, samples)) / 2e-5 for step in steps])


def draw() -> str:
    """The whole picture."""
    ahead = WEIGHTS - LOOK_AHEAD * gradient(WEIGHTS, NOISY)
    clean = gradient(ahead, CLEAN)
    sample = NOISY[0][:1]
    before = predict(WEIGHTS, sample)[0]
    tangent = (predict(WEIGHTS + 1e-5 * clean, sample)[0] - predict(WEIGHTS - 1e-5 * clean, sample)[0]) / 2e-5
    logits = START * np.eye(3)[GIVEN]
    labels = [softmax(logits), softmax(logits - LABEL_RATE * tangent)]
    parts = [
        f'<rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="14"/>',
        timeline(),
        weights_panel(30, 130, ahead, None, "1  Look ahead", "one step on the noisy batch"),
        weights_panel(340, 130, ahead, clean, "2  Clean gradient", "which way is better there?"),
        bars_panel(30, 420, before, before - 0.6 * tangent, "3  Tangent", "what sample j would then predict"),
        label_panel(340, 420, *labels),
    ]
    title = "One step of MSLG: warm-up, look-ahead, clean gradient, tangent and label move"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>\n"])


def softmax(logits: Array) -> Array:
    """Probabilities of logits."""
    raised = np.exp(logits - logits.max())
    return raised / raised.sum()


def timeline() -> str:
    """The run as a bar: first the warm-up, then label learning."""
    return "\n".join(
        [
            '<rect class="bar" x="30" y="28" width="190" height="34" rx="6" opacity="0.55"/>',
            '<rect class="label" x="226" y="28" width="384" height="34" rx="6" opacity="0.35"/>',
            write(42, 50, "warm-up: plain training", "ink small"),
            write(240, 50, "label learning: every step does 1 to 4, then trains", "ink small"),
            write(30, 92, "a run, from its first epoch", "soft small"),
            '<path class="line" d="M 222 84 h 380 m -8 -5 l 8 5 l -8 5" stroke-width="1.5"/>',
        ]
    )


def panel(x: float, y: float, title: str, words: str) -> list[str]:
    """A box with its headline."""
    box = f'<rect class="panel" x="{x}" y="{y}" width="{PLOT}" height="{PLOT - 10}" rx="10"/>'
    return [box, write(x + 14, y + 26, title, "ink title"), write(x + 14, y + 48, words, "soft small")]


def weights_panel(x: float, y: float, ahead: Array, clean: Array | None, title: str, words: str) -> str:
    """The plane of weights: lines of equal clean loss, the look-ahead, and the clean gradient where it leads."""
    across, up = np.linspace(-1.6, 1.6, 65), np.linspace(-1.35, 1.2, 52)
    heights = np.array([[loss(np.array([a, b]), CLEAN) for a in across] for b in up])

    def place(point: Array) -> tuple[float, float]:
        # One scale for both axes: a gradient has to stand upright on the lines of equal loss.
        a, b = 75 * (point - (across[0], up[0]))
        return x + 14 + a, y + PLOT - 20 - b

    parts = panel(x, y, title, words)
    lines = contour_generator(across, up, heights)
    for level in np.linspace(heights.min() + 0.02, heights.max(), 11)[:-1]:
        for curve in lines.lines(level):
            points = " ".join(f"{a:.1f},{b:.1f}" for a, b in map(place, curve[::2]))
            parts.append(f'<polyline class="line" points="{points}" stroke-width="1" opacity="0.6"/>')
    start, end = place(WEIGHTS), place(ahead)
    parts += [dot(*start, "ink"), write(start[0] - 18, start[1] - 8, "θ", "ink title")]
    parts.append(arrow(start, end, "noisy", dashed=clean is not None))
    parts.append(dot(*end, "noisy-fill"))
    parts.append(write(end[0] - 26, end[1] + 4, "θ̂", "noisy-fill title"))
    if clean is not None:
        goal = place(ahead - 0.9 * clean / np.linalg.norm(clean))
        parts += [arrow(end, goal, "clean"), write(goal[0] - 30, goal[1] + 6, "−g", "clean-fill title")]
    return "\n".join(parts)


def bars_panel(x: float, y: float, before: Array, after: Array, title: str, words: str) -> str:
    """A prediction as bars, with an arrow for the way each would move down the clean gradient."""
    parts = panel(x, y, title, words)
    for number, name in enumerate(CLASSES):
        left, base, scale = x + 34 + 78 * number, y + PLOT - 48, 290
        height, goal = scale * before[number], scale * after[number]
        parts.append(f'<rect class="bar" x="{left}" y="{base - height:.1f}" width="46" height="{height:.1f}" rx="3"/>')
        parts.append(arrow((left + 23, base - height), (left + 23, base - goal), "clean"))
        parts.append(write(left + 10, base + 22, name, "ink"))
    return "\n".join(parts)


def label_panel(x: float, y: float, before: Array, after: Array) -> str:
    """The soft label before (outlined) and after (filled) the step."""
    parts = panel(x, y, "4  Label move", "the soft label (dashed: before)")
    for number, name in enumerate(CLASSES):
        left, base, scale = x + 34 + 78 * number, y + PLOT - 48, 165
        old, new = scale * before[number], scale * after[number]
        parts.append(f'<rect class="label" x="{left}" y="{base - new:.1f}" width="46" height="{new:.1f}" rx="3"/>')
        outline = f'x="{left}" y="{base - old:.1f}" width="46" height="{old:.1f}" rx="3" stroke-width="1.5"'
        parts.append(f'<rect class="line dash" {outline}/>')
        words = {GIVEN: f"{name} (given)", TRUE: f"{name} (true)"}.get(number, name)
        parts.append(write(left + (10 if words == name else -18), base + 22, words, "ink small"))
    return "\n".join(parts)


def write(x: float, y: float, words: str, kind: str) -> str:
    """Words at a place."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{words}</text>'


def dot(x: float, y: float, kind: str) -> str:
    """A point."""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'


def arrow(start: tuple[float, float], end: tuple[float, float], kind: str, *, dashed: bool = False) -> str:
    """An arrow with an open head."""
    way = np.subtract(end, start)
    length = float(np.hypot(*way))
    unit = way / length
    side, size = np.array([-unit[1], unit[0]]), min(9.0, length)
    wings = [np.subtract(end, size * unit) + sign * 0.6 * size * side for sign in (1, -1)]
    head = f"M {wings[0][0]:.1f} {wings[0][1]:.1f} L {end[0]:.1f} {end[1]:.1f} L {wings[1][0]:.1f} {wings[1][1]:.1f}"
    line = f"M {start[0]:.1f} {start[1]:.1f} L {end[0]:.1f} {end[1]:.1f}"
    broken = " dash" if dashed else ""
    paths = ((f"{kind}{broken}", line), (kind, head))
    return "".join(f'<path class="{style}" d="{path}" stroke-width="2.5"/>' for style, path in paths)


if __name__ == "__main__":
    PLACE.write_text(draw())
