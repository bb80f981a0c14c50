"""Two folders that the Hugging Face hub takes as they are: the model, and the labels of its training set, each with a
card. Nothing is uploaded: `hf upload` is the user's command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...issues.labels_file import NAME as LABELS
from ...issues.labels_file import read_labels
from ...runtime.files import replacing_folder
from ..folder import Run
from ..model_card import card
from .safetensors import CARD, FILES, VOCABULARY

MODEL, DATASET, DATA = "model", "dataset", "data/train-00000-of-00001.parquet"
ROWS = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def write(run: Run, path: Path, *, force: bool = False) -> None:
    """Write `model/` and `dataset/`."""
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{path} is a file; name a folder")
    there = {entry.name for entry in path.iterdir()} if path.exists() else set()
    if others := sorted(there - {MODEL, DATASET}):
        raise FileExistsError(f"{path} also contains other files, such as {others[0]}, and will not be deleted")
    if there and not force:
        raise FileExistsError(f"{path} is not empty; choose another folder, or replace it with --force (force=True)")
    about, summary = run.read_json("model.json"), run.read_json("summary.json")
    with replacing_folder(path) as temporary:
        _write_model(run, temporary / MODEL, about, summary)
        _write_dataset(run, temporary / DATASET, about, summary)


def _write_model(run: Run, folder: Path, about: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
    folder.mkdir()
    for name in (*FILES, *([VOCABULARY] if (run.path / VOCABULARY).exists() else [])):
        shutil.copyfile(run.path / name, folder / name)
    classes = about["classes"]
    config = {
        "architectures": [about["network"].get("class", "Module")],
        "model_type": "mslg",
        "num_labels": len(classes),
        "id2label": dict(enumerate(classes)),
        "label2id": {name: number for number, name in enumerate(classes)},
        "network": about["network"],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text = card(run).split("---\n", 2)[2]
    (folder / CARD).write_text(_front_matter(_model_metadata(run, about, summary)) + text, encoding="utf-8")


def _model_metadata(run: Run, about: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, Any]:
    kind = task_of(run, about)
    found: dict[str, Any] = {"library_name": "mslg", "tags": ["noisy-labels", kind], "pipeline_tag": kind}
    last = summary.get("last", {})
    accuracy = next((last[key] for key in ("test/accuracy", "report/accuracy") if last.get(key) is not None), None)
    if accuracy is not None:
        name = run.path.resolve().name
        result = {
            "task": {"type": kind},
            "dataset": {"name": name, "type": name},
            "metrics": [{"type": "accuracy", "value": round(accuracy, 4)}],
        }
        found["model-index"] = [{"name": name, "results": [result]}]
    return found


def _write_dataset(run: Run, folder: Path, about: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
    """The labels by id: `label` is the suggested one, which equals the given one unless the sample was flagged. Paths
    on this machine are left out."""
    (folder / "data").mkdir(parents=True)
    wanted = [name for name in pq.read_schema(run.path / LABELS).names if name != "path"]
    rows, writer = 0, None
    for part in read_labels(run.path, wanted):
        table = part.add_column(1, "label", part["suggested_label"])
        writer = writer or pq.ParquetWriter(folder / DATA, table.schema)
        writer.write_table(table)
        rows += len(table)
    if writer is None:
        pq.write_table(pa.table({"id": []}), folder / DATA)
    else:
        writer.close()
    size = next((words for most, words in ROWS if rows < most), "1M<n<10M")
    metadata = {
        "tags": ["noisy-labels", "mslg"],
        "task_categories": [task_of(run, about)],
        "size_categories": [size],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": DATA}]}],
    }
    (folder / CARD).write_text(_front_matter(metadata) + _dataset_card(run, rows, summary), encoding="utf-8")


def _dataset_card(run: Run, rows: int, summary: Mapping[str, Any]) -> str:
    flagged = int(summary.get("label_issues", 0))
    return f"""
# Labels of {run.path.resolve().name}

{rows} training samples with the labels that they came with and better ones, found by mslg. {flagged} labels were
flagged as probably wrong. The inputs are not part of it: `id` is the key to them.

| column | |
|---|---|
| `id` | the sample |
| `label` | the label to use: the suggested one |
| `given_label`, `suggested_label` | as it came, and as it probably should be; equal unless the sample was flagged |
| `predicted_label` | by the trained model |
| `is_label_issue`, `label_quality`, `rank` | flagged or not; the probability that it is right; 0 is the worst |
| `soft_label` | a distribution over the classes |

No person has confirmed the suggested labels unless they were reviewed.
"""


def task_of(run: Run, about: Mapping[str, Any]) -> str:
    """The hub's name for what the model does."""
    if (run.path / VOCABULARY).exists():
        return "text-classification"
    names = set(about["inputs"]) if isinstance(about["inputs"], Mapping) else set()
    if names & {"input_ids", "inputs_embeds"}:
        return "text-classification"
    if "pixel_values" in names:
        return "image-classification"
    shape = about["inputs"].get("shape") if isinstance(about["inputs"], Mapping) else None
    if "images" in about or (isinstance(shape, list) and len(shape) == 3):
        return "image-classification"
    return "tabular-classification" if isinstance(shape, list) and len(shape) == 1 else "other"


def _front_matter(metadata: Mapping[str, Any]) -> str:
    """YAML, of which JSON is a part."""
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in metadata.items()]
    return "\n".join(["---", *lines, "---", ""])
