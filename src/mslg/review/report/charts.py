"""Charts as SVG without a library. Their colours are in the page's style, for both themes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT = 560, 250
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 12, 40  # room for ticks in the font of a phone
DIGIT = 9  # width of a digit there
DOTS = 60  # points up to which each has a marker


@dataclass(frozen=True)
class Series:
    """A line: its points, and perhaps a band around them."""

    name: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float]] | None = None  # lowest and highest at each point


@dataclass(frozen=True)
class Chart:
    """A chart of some lines, with their names and numbers."""

    title: str
    across: str  # label of the horizontal axis
    series: Sequence[Series]
    percent: bool = True
    log: bool = False  # whether the horizontal axis is
    note: str = ""

    def numbers(self) -> list[tuple[str, list[str]]]:
        """One row per value of the horizontal axis: the text alternative."""
        places = sorted({x for series in self.series for x, _ in series.points})
        values = [dict(series.points) for series in self.series]
        return [(f"{x:,g}", [self.words(line[x]) if x in line else "" for line in values]) for x in places]

    def words(self, value: float) -> str:
        """A value as text."""
        return f"{100 * value:.1f} %" if self.percent else f"{value:.3g}"

    def summary(self) -> str:
        """The chart in a sentence, for screen readers."""
        ends = [
            f"{line.name} from {self.words(line.points[0][1])} to {self.words(line.points[-1][1])}"
            for line in self.series
        ]
        return f"{self.title}: {'; '.join(ends)}"

    def svg(self) -> Markup:
        """The chart."""
        xs = [x for series in self.series for x, _ in series.points]
        ys = [y for series in self.series for _, y in series.points]
        ys += [y for series in self.series for pair in series.band or [] for y in pair]
        low, high = _bounds(min(ys), max(ys), self.percent)
        across = _scale(min(xs), max(xs), LEFT, WIDTH - RIGHT, log=self.log)
        up = _scale(low, high, HEIGHT - BOTTOM, TOP)
        ticks = _ticks(low, high)
        form = _tick_words(ticks, self.percent)
        parts = [
            Markup('<line class="grid" x1="{}" x2="{}" y1="{y}" y2="{y}"/>').format(
                LEFT, WIDTH - RIGHT, y=_at(up(tick))
            )
            + Markup('<text class="tick" x="{}" y="{}" text-anchor="end">{}</text>').format(
                LEFT - 7, _at(up(tick) + 4), form(tick)
            )
            for tick in ticks
        ]
        parts += [
            Markup('<text class="tick" x="{}" y="{}" text-anchor="middle">{}</text>').format(
                _at(min(across(x), WIDTH - DIGIT * len(f"{x:,g}") / 2)), HEIGHT - BOTTOM + 17, f"{x:,g}"
            )
            for x in _places(sorted(set(xs)), log=self.log)
        ]
        parts.append(
            Markup('<text class="axis" x="{}" y="{}" text-anchor="end">{}</text>').format(
                WIDTH - RIGHT, HEIGHT - 4, self.across
            )
        )
        for place, series in enumerate(self.series):
            parts.append(self._line(series, place, across, up))
        return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
            WIDTH, HEIGHT, self.summary(), Markup("").join(parts)
        )

    def _line(
        self, series: Series, place: int, across: Callable[[float], float], up: Callable[[float], float]
    ) -> Markup:
        points = [(across(x), up(y)) for x, y in series.points]
        drawn = Markup("")
        if series.band is not None:
            xs = [x for x, _ in points]
            lows, highs = zip(*series.band, strict=True)
            outline = [*zip(xs, map(up, highs), strict=True), *reversed(list(zip(xs, map(up, lows), strict=True)))]
            drawn += Markup('<polygon class="band s{}" points="{}"/>').format(place, _points(outline))
        drawn += Markup('<polyline class="line s{}" points="{}"/>').format(place, _points(points))
        if len(points) <= DOTS:
            for (x, y), (left, right) in zip(points, series.points, strict=True):
                drawn += Markup('<circle class="dot s{}" cx="{}" cy="{}" r="2.4"><title>{}</title></circle>').format(
                    place, _at(x), _at(y), f"{series.name}, {self.across} {left:,g}: {self.words(right)}"
                )
        return drawn


def _scale(low: float, high: float, start: float, end: float, *, log: bool = False) -> Callable[[float], float]:
    if log:
        inner = _scale(math.log(low), math.log(high), start, end)
        return lambda value: inner(math.log(value))
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def _bounds(low: float, high: float, percent: bool) -> tuple[float, float]:
    """A little more than the values need; a share stays between 0 and 1."""
    margin = 0.08 * (high - low) or 0.05 * abs(high) or 0.05
    low, high = low - margin, high + margin
    return (max(low, 0.0), min(high, 1.0)) if percent else (max(low, 0.0), high)


def _ticks(low: float, high: float) -> list[float]:
    step = _step((high - low) / 5)
    first = math.ceil(low / step - 1e-9)
    return [step * place for place in range(first, math.floor(high / step + 1e-9) + 1)]


def _step(least: float) -> float:
    """The next round number."""
    size = 10.0 ** math.floor(math.log10(least))
    return next(size * factor for factor in (1, 2, 5, 10) if size * factor >= least - 1e-12)


def _tick_words(ticks: Sequence[float], percent: bool) -> Callable[[float], str]:
    fine = len(ticks) > 1 and ticks[1] - ticks[0] < 0.0099
    return (lambda value: f"{100 * value:.{1 if fine else 0}f} %") if percent else (lambda value: f"{value:g}")


def _places(xs: list[float], *, log: bool, most: int = 8) -> list[float]:
    """Values to label on the horizontal axis: not too many, the first of them and round ones."""
    if len(xs) <= (5 if log else most):
        return xs
    if log:
        kept = [xs[0]]
        for x in xs[1:]:
            if math.log(x / kept[-1]) > math.log(xs[-1] / xs[0]) / 7:
                kept.append(x)
        return kept
    step = _step((xs[-1] - xs[0]) / most)
    return [x for x in xs if x == xs[0] or (x % step == 0 and x - xs[0] >= step / 2)]


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{_at(x)},{_at(y)}" for x, y in points)


def _at(value: float) -> str:
    return f"{value:.1f}"
