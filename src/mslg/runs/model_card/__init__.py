"""The model card: what a model is, what it was trained on, how good it is and what is unknown, on one page."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined, Template

from ...runtime.files import write_atomically
from ..folder import Run
from ..recipes import LIBRARIES

NAME = "model_card.md"
Z = 1.6449  # two-sided 90 %
SHOWN = 30  # classes listed


class Markdown(str):
    """Text that is Markdown already."""


class Accuracy(NamedTuple):
    """An accuracy with its Wilson interval, 90 %."""

    share: float
    samples: int
    low: float
    high: float


def write_card(run: Run) -> Path:
    """Write the card into the run's folder."""
    path = run.path / NAME
    write_atomically(path, card(run).encode())
    return path


def card(run: Run) -> str:
    """The card as Markdown, from the summary, the settings and model.json. Names from the data are escaped."""
    config, summary, model = run.config, run.read_json("summary.json"), run.read_json("model.json")
    return _template().render(
        name=run.path.resolve().name,
        tables={key: config.get(key, {}) for key in ("data", "noise", "network", "method", "train", "versions")},
        summary=summary,
        last=summary.get("last", {}),
        errors=summary.get("label_errors") or {},
        verdict=(summary.get("comparison") or {}).get("verdict"),
        clean=summary.get("clean_samples", {}),
        held_out=_held_out(summary),
        classes=model["classes"],
        shown=SHOWN,
        model=model,
        of_texts=(run.path / "vocabulary.json").exists(),
        made_in_python=model["network"].get("name") is None,
        own_code=_own_code(model["network"].get("name")),
        star=_star(model.get("inputs")),
    )


@cache
def _template() -> Template:
    """Compiled once per process: that takes longer than all cards of a cross-validation."""
    environment = Environment(
        autoescape=False,  # for HTML; `finalize` escapes Markdown
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"code": code, "percent": _percent}
    source = (resources.files("mslg.runs.model_card") / "card.md.j2").read_text(encoding="utf-8")
    return environment.from_string(source)


def escaped(text: str) -> Markdown:
    """Text as one line in which all Markdown and HTML is escaped."""
    line = re.sub(r"[\x00-\x1f\x7f\u2028\u2029]+", " ", text)
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return Markdown(re.sub(r"([\\`*_\[\]|#~$!])", r"\\\1", line))


def code(value: object) -> Markdown:
    """A setting as code in a table cell."""
    line = re.sub(r"[\x00-\x1f\x7f\u2028\u2029]+", " ", str(value)).replace("`", "'").strip() or " "
    return Markdown("`" + line.replace("|", r"\|") + "`")


def _own_code(name: str | None) -> Markdown | None:
    """The name of a network that is neither registered nor of a library, as Python text."""
    kind, mark, _ = (name or "").partition(":")
    return Markdown(repr(name)) if mark and kind not in LIBRARIES else None


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _shown(value: object) -> object:
    return escaped(value) if isinstance(value, str) and not isinstance(value, Markdown) else value


def _held_out(summary: Mapping[str, Any]) -> Accuracy | None:
    share = summary.get("last", {}).get("report/accuracy")
    samples = summary.get("clean_samples", {}).get("report") or 0
    if share is None or not samples:
        return None
    middle = (share + Z**2 / (2 * samples)) / (1 + Z**2 / samples)
    half = Z / (1 + Z**2 / samples) * math.sqrt(share * (1 - share) / samples + Z**2 / (4 * samples**2))
    return Accuracy(share, samples, max(0.0, middle - half), min(1.0, middle + half))


def _star(inputs: Any) -> Markdown:
    """How inputs of several parts are passed to the model."""
    if isinstance(inputs, list):
        return Markdown("*")
    return Markdown("" if inputs is None or isinstance(inputs.get("shape"), list) else "**")
