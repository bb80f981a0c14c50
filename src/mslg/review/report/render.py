"""The page: one file that loads nothing else and runs nothing from the data."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from importlib import resources
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from ...runtime.printable import visible
from . import findings
from .cards import SMALLER, Cards, fitting, smaller
from .embedded_json import embed_json, embedded_size
from .report_data import ReportData
from .safe_text import named, short

BUDGET = 19_500_000  # bytes of a page
SCRIPTS = ("elements.js", "decisions.js", "card.js", "audit.js", "review.js", "page.js")
ROWS = 40  # classes shown at once; more are collapsed
MOST_ROWS = 1_000


def render(run: ReportData, budget: int = BUDGET) -> bytes:
    """The page, at most `budget` bytes: first with smaller pictures, then with fewer of them."""
    page = _page(run)
    for side in SMALLER:
        if len(page) <= budget:
            return page
        run = replace(run, cards=smaller(run.cards, side))
        page = _page(run)
    if len(page) <= budget:
        return page
    payload = run.cards.payload()
    rest = len(page) - sum(map(embedded_size, [*payload["cards"], *payload["clean"]]))
    return _page(replace(run, cards=fitting(run.cards, budget - rest)))


def _page(run: ReportData) -> bytes:
    files = resources.files("mslg.review.report") / "page"
    style = (files / "page.css").read_text(encoding="utf-8")
    parts = [(files / name).read_text(encoding="utf-8") for name in SCRIPTS]
    script = '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"
    template = (files / "page.html").read_text(encoding="utf-8")
    environment = Environment(
        loader=DictLoader({"page": template}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"count": lambda value: f"{value:,}", "percent": _percent, "heat": _heat}
    text = environment.get_template("page").render(
        run=run,
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        data=embed_json(_data(run)),
        findings=findings,
        named=named,
        short=short,
        shown_text=_shown_text,
        points=_points,
        shown_pairs={(card["given"], card["suggested"]) for card in run.cards.shown},
        cards=len(run.cards.shown),
        audit=len(run.cards.audit),
        next=len(run.cards.next),
        flagged=sum(card["flagged"] for card in run.cards.shown),
        stated=findings.is_stated(run),
        started=run.summary.get("state") == "started",
        why=_why(run.cards),
        rows=ROWS,
        most_rows=MOST_ROWS,
    )
    return text.encode(errors="replace")


def _data(run: ReportData) -> dict[str, Any]:
    return {
        "fingerprint": run.fingerprint,
        "run": run.name,
        "classes": run.classes if run.cards.shown or run.cards.audit else [],
        "samples": run.labels.samples,
        "stated": findings.is_stated(run),
        "commands": run.commands,
        "precision": findings.list_precision(run),
        **run.cards.payload(),
    }


def _why(cards: Cards) -> str | None:
    if cards.shown or cards.audit:
        return None
    return cards.missing or "The samples are too large for a page: read them in suspects.parquet."


def _policy(style: str, script: str) -> str:
    """The content security policy: our script and style, pictures inside the page, nothing else."""
    return (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _shown_text(text: str) -> str:
    return "\n".join(visible(line) for line in text.split("\n"))


def _points(difference: float | None) -> str:
    return "" if difference is None else f"{100 * difference:+.1f}".replace("-", "−")


def _percent(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{100 * value:.{digits}f} %"


def _heat(value: float) -> str:
    """One of eleven CSS classes: the policy forbids inline styles."""
    return f"h{round(10 * max(0.0, min(1.0, value)))}"
