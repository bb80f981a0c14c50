"""A model as the Hugging Face hub takes it: with a config and a card. Nothing is uploaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..folder import Run
from ..model_card import card
from .safetensors import CARD, FILES, VOCABULARY


def write_model(run: Run, folder: Path) -> None:
    """Weights, `config.json`, what `mslg.load_model` needs, and the model card with its metadata."""
    about, summary = run.read_json("model.json"), run.read_json("summary.json")
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
    (folder / CARD).write_text(front_matter(_model_metadata(run, about, summary)) + text, encoding="utf-8")


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


def front_matter(metadata: Mapping[str, Any]) -> str:
    """The metadata of a card: YAML, of which JSON is a part."""
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in metadata.items()]
    return "\n".join(["---", *lines, "---", ""])
