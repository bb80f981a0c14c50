"""The results of a run: its numbers, its model, its labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from safetensors.torch import save
from torch import Tensor, nn

from ..data.splits import Splits
from ..data.texts import vocabulary_of
from ..issues.label_rows import label_tables
from ..issues.labels_file import write_labels
from ..issues.ranked_list import LabelIssues
from ..issues.suspects import write_suspects
from ..runtime.files import write_atomically
from ..training.evaluation import Evaluation
from ..training.loop import EpochRecord
from ..training.method import Method
from ..training.prediction_history import PredictionHistory
from .example_inputs import NAME as EXAMPLE
from .example_inputs import write_example
from .folder import Run
from .load_model import describe_model
from .model_card import NAME as CARD
from .model_card import write_card

RESULTS = (
    "model.safetensors",
    "model.json",
    "vocabulary.json",
    EXAMPLE,
    "classes.json",
    "labels.parquet",
    "suspects.parquet",
    "audit.parquet",
    "clean_samples.parquet",
    "summary.json",
    CARD,
)


def summarise(records: list[EpochRecord], evaluation: Evaluation, data: Splits, *, state: str) -> dict[str, Any]:
    """The numbers of the last epoch, and of the epoch that was best on the select part."""
    if not records:
        return {"state": state, "epochs": 0}
    summary: dict[str, Any] = {
        "state": state,
        "epochs": len(records),
        "training_samples": len(data.train),
        "clean_samples": {
            name: 0 if part is None else len(part)
            for name, part in {"meta": data.clean, "select": data.select, "report": data.report}.items()
        },
        "last": finite(records[-1].metrics),
    }
    if data.select is not None:
        best = max(records, key=lambda record: record.metrics["select/accuracy"])
        summary["best_on_select"] = {"epoch": best.epoch, **finite(best.metrics)}
    if (per_class := evaluation.per_class()) is not None:
        summary["test_accuracy_per_class"] = [None if math.isnan(value) else value for value in per_class]
    return summary


def remembered(run: Run) -> dict[str, Any]:
    """What an earlier summary of the same run holds besides training results: the comparison."""
    earlier: dict[str, Any] = {}
    if (run.path / "summary.json").exists():
        with suppress(ValueError):  # damaged: the comparison is made again
            earlier = run.read_json("summary.json")
    return {key: earlier[key] for key in ("comparison",) if key in earlier}


def finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """The metrics with None for NaN and infinity, which JSON lacks."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def write_results(
    run: Run,
    method: Method,
    data: Splits,
    history: PredictionHistory,
    issues: LabelIssues,
    summary: dict[str, Any],
) -> None:
    """The model, the classes, the labels, the suspects and the summary."""
    with run.writing(*RESULTS):
        _write_results(run, method, data, history, issues, summary)


def _write_results(
    run: Run,
    method: Method,
    data: Splits,
    history: PredictionHistory,
    issues: LabelIssues,
    summary: dict[str, Any],
) -> None:
    network = method.deployed()
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in _own_tensors(network)}
    write_atomically(run.path / "model.safetensors", save(weights, {"format_version": "1"}))
    run.write_json("model.json", describe_model(network, data, run.config))
    write_example(run.path, data)
    if (vocabulary := vocabulary_of(data.source.store)) is not None:
        run.write_json("vocabulary.json", vocabulary.as_dict())
    run.write_json("classes.json", {"classes": list(data.source.classes)})
    write_labels(run.path, label_tables(issues))
    write_suspects(run.path, issues, method, data, history)
    write_summary(run, summary)


def write_summary(run: Run, summary: Mapping[str, Any]) -> None:
    """The summary as JSON, and the model card."""
    with run.writing("summary.json", CARD):
        run.write_json("summary.json", summary)
        write_card(run)


def _own_tensors(network: nn.Module) -> list[tuple[str, Tensor]]:
    return [(name, value) for name, value in network.state_dict().items() if isinstance(value, Tensor)]
