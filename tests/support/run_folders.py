"""Folders of runs that nobody trained: as many samples as a test wants, called whatever it wants."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

EPOCHS = 6
CLASSES = ("ant", "bee", "cat")
# Names that must reach a page as text, never as markup.
HOSTILE = (
    "<script>window.pwned=1</script>",
    "\"'><img src=x onerror=window.pwned=1>",
    "</script><script>window.pwned=1</script>",
    "\u202edesrever\u202c",
    "ten thousand " + 10_000 * "x",
)


def picture(seed: int, side: int = 8, form: str = "PNG") -> bytes:
    """A picture of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def run_folder(
    path: Path,
    *,
    samples: int = 60,
    classes: tuple[str, ...] = CLASSES,
    ids: list[str] | None = None,
    view: tuple[str, bytes] | None = None,
    side: int = 8,
    suspects: int | None = None,
    summary: dict[str, Any] | None = None,
) -> Path:
    """A finished run. Every second label is questioned; the first sample has rank 0."""
    path.mkdir(parents=True)
    count = len(classes)
    random = np.random.default_rng(0)
    given = np.arange(samples) % count
    suggested = np.where(np.arange(samples) % 2 == 0, (given + 1) % count, given)
    quality = np.linspace(0.001, 0.999, samples).astype(np.float32)
    soft = random.dirichlet(np.ones(count), samples).astype(np.float32)
    names = np.array(classes, dtype=object)
    table = pa.table(
        {
            "id": ids or [f"s{place:03d}" for place in range(samples)],
            "given_label": names[given],
            "predicted_label": names[suggested],
            "is_label_issue": suggested != given,
            "label_quality": quality,
            "suggested_label": names[suggested],
            "soft_label": pa.array(list(soft), pa.list_(pa.float32())),
            "rank": np.arange(samples),
        }
    )
    pq.write_table(table, path / "labels.parquet")
    if suspects != 0:
        _write_suspects(path, table.slice(0, suspects), given, view, side, classes)
    metrics = [
        {"epoch": epoch, "train/loss": 2.0 / (epoch + 1), "test/accuracy": 0.5 + 0.05 * epoch}
        for epoch in range(EPOCHS)
    ]
    lines = [json.dumps(line) for line in ({"format_version": 1, "kind": "metrics"}, *metrics)]
    (path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (path / "config.toml").write_text('format_version = 1\n[data]\nsource = "made up"\n[method]\nname = "mslg"\n')
    (path / "classes.json").write_text(json.dumps({"format_version": 1, "classes": list(classes)}))
    told = {
        "state": "done",
        "epochs": EPOCHS,
        "training_samples": samples,
        "clean_samples": {"meta": 5, "select": 0, "report": 0},
        "last": metrics[-1],
        "label_issues": int((suggested != given).sum()),
    }
    (path / "summary.json").write_text(json.dumps({"format_version": 1, **told, **(summary or {})}))
    return path


def _write_suspects(
    path: Path,
    rows: pa.Table,
    given: np.ndarray[Any, Any],
    view: tuple[str, bytes] | None,
    side: int,
    classes: tuple[str, ...],
) -> None:
    kind, content = view or ("image", b"")
    columns = {
        "view_kind": [kind] * len(rows),
        "view": [content or picture(place, side) for place in range(len(rows))],
        "history_epochs": [list(range(EPOCHS))] * len(rows),
        "history_given": [[0.5 / (epoch + 1) for epoch in range(EPOCHS)]] * len(rows),
        "history_predicted": [[int(given[place])] + [0] * (EPOCHS - 1) for place in range(len(rows))],
        "nearest": [["c0", "c1"]] * len(rows),
    }
    for name, values in columns.items():
        rows = rows.append_column(name, pa.array(values))
    pq.write_table(rows, path / "suspects.parquet")
    clean = {"id": ["c0", "c1"], "verified_label": [classes[0], classes[-1]]}
    clean |= {"view_kind": ["image"] * 2, "view": [picture(7), picture(8)]}
    pq.write_table(pa.table(clean), path / "clean_samples.parquet")


STATEMENTS: dict[str, Any] = {
    "label_errors": {
        "count": {"estimate": 20.2, "low": 17.0, "high": 24.0},
        "share": {"estimate": 0.34, "low": 0.28, "high": 0.4},
        "precision": [
            {"depth": 10, "estimate": 0.99, "low": 0.97, "high": 1.0},
            {"depth": 20, "estimate": 0.9, "low": 0.8, "high": 0.95},
            {"depth": 60, "estimate": 0.34, "low": 0.28, "high": 0.4},
        ],
        "flagged": {"depth": 30, "estimate": 0.66, "low": 0.6, "high": 0.7},
        "fdr": None,
        "basis": "pairs",
        "samples": 40,
        "why": None,
    },
    "comparison": {
        "verdict": "It helped a great deal.",
        "helped": True,
        "samples": 40,
        "accuracy": 0.9,
        "controls": [
            {
                "name": "control",
                "words": "the labels as they are",
                "accuracy": 0.8,
                "difference": 0.1,
                "low": -0.02,
                "high": 0.2,
            }
        ],
    },
    "transition": [[0.8, 0.1, 0.1], [0.05, 0.9, 0.05], [0.3, 0.0, 0.7]],
}
