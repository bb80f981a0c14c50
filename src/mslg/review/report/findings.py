"""The findings of a run: headline, tiles, charts, and what it cannot tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...issues.statement import why_unknown
from .charts import Chart, Series
from .report_data import ReportData

FIRST = 200  # depth of the list whose precision is in the headline
MATRIX = 30  # classes up to which the transition matrix is shown as a matrix
PAIRS = 30  # its largest entries that are listed otherwise

STATES = {
    "started": "not trained yet",
    "done": "finished",
    "stopped": "stopped early, at the end of its time budget",
    "failed": "failed",
}
BASES = {
    "pairs": "estimated on {} clean samples with given and verified labels",
    "injected": "estimated on {} clean samples with injected noise",
}
CURVES = {
    "Accuracy": {
        "test/accuracy": "test set",
        "report/accuracy": "held-out clean samples",
        "select/accuracy": "clean samples for selection",
    },
    "Training labels that are right": {
        "labels/accuracy": "soft labels",
        "predictions/accuracy": "predictions",
        "given/accuracy": "given labels",
    },
    "Training labels that differ from the given ones": {
        "labels/differ": "soft labels",
        "predictions/differ": "predictions",
    },
    "Loss": {"train/loss": "training", "clean/loss": "clean samples", "test/loss": "test set"},
}


NOTES = {
    "Training labels that differ from the given ones": "Soft labels are what the network is trained on. Which labels "
    "are flagged is decided after training, by all evidence.",
}


class Tile(NamedTuple):
    """One number of the summary."""

    value: str
    name: str
    more: str = ""


class Headline(NamedTuple):
    """The finding in one sentence, and the details."""

    title: str
    sentences: list[str]
    unknown: str = ""  # what nobody knows before a random check


def is_stated(run: ReportData) -> bool:
    """Whether the number of wrong labels is known: it takes clean samples with given and verified labels. Estimates
    from a clean set without given labels were wrong by factors where the network memorises."""
    errors: Mapping[str, Any] = run.summary.get("label_errors") or {}
    return errors.get("basis") == "pairs" and (errors.get("count") or {}).get("estimate") is not None


def headline(run: ReportData) -> Headline:
    """How many labels are wrong, and how far to trust the list."""
    errors: Mapping[str, Any] = run.summary.get("label_errors") or {}
    found, all_ = run.labels.flagged, run.labels.samples
    if run.summary.get("state") == "started":
        why = (
            f"Nobody knows yet. Check {len(run.cards.audit)} random ones, which takes about ten minutes. That gives an "
            "estimate with an interval, and clean samples with given and verified labels to train with."
        )
        return Headline(f"How many of these {all_:,} labels are wrong?", [], why)
    settings = {**run.config.get("train", {}), **run.config.get("issues", {})}
    warnings = [run.summary["memorised"]] if run.summary.get("memorised") else []
    if not is_stated(run):
        unknown = (
            f"How many are wrong in total is unknown. To find out, check {len(run.cards.audit)} random ones."
            if run.cards.audit
            else "How many are wrong in total is unknown. To find out, check random ones: mslg start DATA."
        )
        worth = (
            "This run had no clean samples: the list is the network's guess about its own training data, unverified."
            * _is_auto(run)
        )
        title = f"{found:,} of {all_:,} labels {flagged_verb(settings)}"
        if not found:
            title = f"How many of these {all_:,} labels are wrong is unknown"
            unknown = f"None is flagged, which does not mean that all are right. {unknown.rpartition('. ')[2]}"
            warnings += filter(None, [_why_none_flagged(errors)])
        return Headline(title, [*warnings, *([worth] if worth else [])], unknown)
    count = errors["count"]
    sentences = [f"{found:,} are flagged: {flag_words(settings)}."]
    if not found:
        sentences = [_why_none_flagged(errors) or f"None are flagged: {flag_words(settings)}."]
    if count.get("low") is not None:
        sentences[0] = f"90 % interval: {count['low']:,.0f} to {count['high']:,.0f}. {sentences[0]}"
    flagged = errors.get("flagged") or {}
    if (first := _at_depth(errors, flagged.get("depth") or FIRST)) is not None:
        sentences.append(f"Of the first {first['depth']:,} on the list, about {_about(first)} are wrong.")
    if flagged.get("estimate") is not None:
        sentences.append(f"Of all {flagged['depth']:,} flagged, about {_about(flagged)} are wrong.")
    sentences.append(f"{BASES['pairs'].format(format(errors.get('samples') or 0, ','))}.".capitalize())
    title = f"About {count['estimate']:,.0f} of {all_:,} labels are wrong"
    return Headline(title, [*warnings, *sentences])


def _why_none_flagged(errors: Mapping[str, Any]) -> str:
    why = str((errors.get("flagged") or {}).get("why", ""))
    return f"{why[:1].upper()}{why[1:]}." if why else ""


def _is_auto(run: ReportData) -> bool:
    return bool(run.config.get("data", {}).get("clean") == "auto")


def flagged_verb(settings: Mapping[str, Any]) -> str:
    """What is said of flagged labels: not all of a number that was asked for look wrong."""
    by_evidence = settings.get("fdr") is not None or settings.get("flag") in (None, "likelier")
    return "look wrong" if by_evidence or str(settings["flag"]).startswith("fdr=") else "are flagged"


def flag_words(settings: Mapping[str, Any], basis: str = "pairs") -> str:
    """What the number of flagged labels means, by the settings `flag` and `fdr` and the basis of the estimate."""
    flag, fdr = settings.get("flag"), settings.get("fdr")
    roughly = " (a rough estimate: no clean sample has a given label)" if basis == "injected" else ""
    if fdr is not None or str(flag).startswith("fdr="):
        rate = fdr if fdr is not None else str(flag)[4:]
        return f"those with a likelier class, at an estimated false discovery rate below {rate}{roughly}"
    if flag == "expected":
        return f"as many as are estimated to be wrong{roughly}"
    if flag == "balanced":
        return f"as many as give the best F1 score{roughly}"
    if flag not in (None, "likelier"):
        return "as many as you asked for"
    return "those for which another class is likelier than the given one"


def tiles(run: ReportData) -> list[Tile]:
    """The numbers at the top; before a run there are none."""
    if run.summary.get("state") == "started":
        return []
    last = run.summary.get("last", {})
    parts = run.summary.get("clean_samples", {})
    held_out = parts.get("report") or 0
    clean = sum(parts.values())
    found = [Tile(f"{run.labels.flagged:,}", "labels flagged", f"of {run.labels.samples:,} training samples")]
    for key, name, more in (
        ("test/accuracy", "accuracy on the test set", ""),
        ("report/accuracy", "accuracy on held-out clean samples", f"{held_out:,} samples" if held_out else ""),
        ("given/accuracy", "given labels right", "by the true labels"),
        ("suggested/accuracy", "suggested labels right", "by the true labels"),
    ):
        if last.get(key) is not None:
            found.append(Tile(_share(last[key], 1), name, more))
    if clean:
        found.append(Tile(f"{clean:,}", "clean samples", _parts(parts)))
    return found


def missing(run: ReportData) -> list[str]:
    """What is unknown, and why; before a run, the headline says it."""
    if run.summary.get("state") == "started":
        return []
    summary, found = run.summary, []
    errors = summary.get("label_errors") or {}
    if not is_stated(run):
        found.append(f"how many labels are wrong in total: {why_unknown(errors)}")
    if why := summary.get("memorised_unknown"):
        found.append(f"whether the network has memorised wrong labels: {why}")
    of_issues = "issues" in run.config  # found from another model's probabilities: there was no training
    comparison = summary.get("comparison") or {}
    if not comparison.get("controls") and not of_issues:
        why = str(comparison.get("verdict", "this run was not compared with any")).removeprefix("not compared: ")
        found.append(f"whether simpler training would have done as well: {why}")
    if not summary.get("transition"):
        found.append("which class is labelled as which: this run has no transition matrix")
    last = summary.get("last", {})
    if last.get("test/accuracy") is None and last.get("report/accuracy") is None and not of_issues:
        above = " (the comparison above is cross-validated)" if comparison.get("out_of_fold") else ""
        found.append(
            f"how accurate the finished model is: there is no test set, and no clean samples were held out{above}"
        )
    return found


def charts(run: ReportData) -> list[Chart]:
    """Curves over the epochs."""
    found = []
    for title, lines in CURVES.items():
        if title.endswith("the given ones") and any("given/accuracy" in entry for entry in run.history):
            continue  # with true labels, the chart before it says more
        series = [
            Series(name, points)
            for key, name in lines.items()
            if len(points := [(entry["epoch"] + 1, entry[key]) for entry in run.history if _number(entry.get(key))]) > 1
            and 2 * points[-1][0] > len(run.history)  # some losses belong to the first stage of a method only
        ]
        if series:
            found.append(Chart(title, "epoch", series, percent=title != "Loss", note=NOTES.get(title, "")))
    return found


def precision_chart(run: ReportData) -> Chart | None:
    """The precision of the list by depth."""
    rows = [row for row in _precision(run.summary.get("label_errors") or {}) if row["depth"] > 0]
    if len(rows) < 2 or not is_stated(run):
        return None
    band = [(row["low"], row["high"]) for row in rows] if all(row.get("low") is not None for row in rows) else None
    line = Series(
        "estimate" if band is None else "estimate, with 90 % interval",
        [(row["depth"], row["estimate"]) for row in rows],
        band,
    )
    return Chart(
        "Labels on the list that are wrong",
        "samples from the top of the list",
        [line],
        log=rows[-1]["depth"] > 20 * rows[0]["depth"],
    )


def list_precision(run: ReportData) -> list[dict[str, float]]:
    """The estimated precision by depth, for comparison with what the reviewer finds."""
    if not is_stated(run):
        return []
    return [
        {key: row[key] for key in ("depth", "estimate", "low", "high") if row.get(key) is not None}
        for row in _precision(run.summary.get("label_errors") or {})
    ]


def transition(run: ReportData) -> list[list[float]] | None:
    """The matrix, if it is small enough to be shown."""
    matrix = run.summary.get("transition")
    return matrix if matrix and len(run.classes) <= MATRIX else None


def transition_pairs(run: ReportData) -> list[tuple[int, int, float]]:
    """The largest entries off the diagonal: true class, given class, share."""
    matrix = run.summary.get("transition") or []
    pairs = [(row, column, share) for row, line in enumerate(matrix) for column, share in enumerate(line)]
    return sorted((pair for pair in pairs if pair[0] != pair[1]), key=lambda pair: -pair[2])[:PAIRS]


def about(run: ReportData) -> list[tuple[str, str]]:
    """The main settings."""
    config, summary = run.config, run.summary
    data, network, train = (config.get(table, {}) for table in ("data", "network", "train"))
    found = [
        ("data", str(data.get("source", "given in Python"))),
        ("clean set", str(data.get("clean", ""))),
        ("noise added", _noise(data)),
        ("method", str(config.get("method", {}).get("name", ""))),
        ("network", str(network.get("name", network.get("class", "")))),
        ("models", ", ".join(config.get("issues", {}).get("models", []))),
        ("epochs", f"{summary['epochs']} of {train.get('epochs', summary['epochs'])}" if "epochs" in summary else ""),
        ("seed", str(train.get("seed", ""))),
        ("state", STATES.get(str(summary.get("state")), str(summary.get("state")))),
        ("mslg", str(config.get("versions", {}).get("mslg", ""))),
    ]
    return [(name, value) for name, value in found if value]


def _noise(data: Mapping[str, Any]) -> str:
    if not data.get("noise"):
        return ""
    return f"{data['noise']}, {_share(data['rate'])}" if data.get("rate") is not None else str(data["noise"])


def _parts(parts: Mapping[str, int]) -> str:
    if "verified" in parts:
        return "with given and verified labels"
    if not (parts.get("select") or parts.get("report")):
        return "all used for training"
    return f"{parts.get('meta', 0):,} meta, {parts.get('select', 0):,} select, {parts.get('report', 0):,} report"


def _precision(errors: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = [row for row in errors.get("precision") or [] if row.get("estimate") is not None]
    return sorted(rows, key=lambda row: row["depth"])


def _at_depth(errors: Mapping[str, Any], flagged: int) -> Mapping[str, Any] | None:
    """The deepest entry before the end of the list that a reviewer may well reach."""
    return next((row for row in reversed(_precision(errors)) if row["depth"] <= FIRST and row["depth"] < flagged), None)


def _about(row: Mapping[str, Any]) -> str:
    between = "" if row.get("low") is None else f" ({100 * row['low']:.0f} to {100 * row['high']:.0f})"
    return _share(row["estimate"]) + between


def _share(value: float, digits: int = 0) -> str:
    return f"{100 * value:.{digits}f} %"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and value == value and abs(value) != float("inf")
