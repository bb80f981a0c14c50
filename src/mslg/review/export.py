"""A finished run for other programs: its model, its labels, its data with corrected labels."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from ..registry import Entry, Registry, unknown
from ..runs.finished import reading
from ..runs.folder import Run

EXPORTS = Registry(
    "format",
    {
        "onnx": Entry("mslg.runs.export.onnx:write", "the model as an ONNX graph, any batch size", ("onnx",)),
        "pt2": Entry("mslg.runs.export.pt2:write", "the model as a torch.export archive, any batch size"),
        "safetensors": Entry(
            "mslg.runs.export.safetensors:write", "a folder: weights, model.json, classes, model card"
        ),
        "huggingface": Entry(
            "mslg.review.hub.write:write", "a folder for the Hugging Face hub: model and data, with cards"
        ),
        "label-studio": Entry(
            "mslg.review.cleaned.write:export_label_studio", "tasks with suggested labels", ("image files",)
        ),
        "csv": Entry("mslg.runs.export.csv:write", "the table of labels"),
        "imagefolder": Entry(
            "mslg.review.cleaned.write:export_imagefolder", "the data with one folder per class", ("image files",)
        ),
    },
)
# Default names in the run's folder.
NAMES = {
    "onnx": "model.onnx",
    "pt2": "model.pt2",
    "safetensors": "model",
    "huggingface": "huggingface",
    "label-studio": "tasks.json",
    "csv": "labels.csv",
    "imagefolder": "imagefolder",
}

OF_MODELS = ("onnx", "pt2", "safetensors")


def export(run: Any, *, to: str, path: Path | str | None = None, force: bool = False, **options: Any) -> Path:
    """Write a finished run in another format.

    Args:
        run: the folder of a run, or the result of `mslg.fit(…, output=folder)`.
        to: onnx, pt2, safetensors, huggingface, label-studio, csv or imagefolder.
        path: a file or a folder; by default one in the run's folder.
        force: replace what is there.
        options: onnx, pt2: network=, prepare= as in `mslg.load_model`; csv: soft=; label-studio: all=, decisions=,
            document_root=; imagefolder, huggingface: decisions=, suggested=, link=, data=. Samples without a decision
            keep their given label unless suggested=True. huggingface: noisy=, the data that `fit` received, if it was
            started with arrays and this is not its result.

    Returns:
        The path written.
    """
    write = EXPORTS.load(to)
    allowed = [name for name in inspect.signature(write).parameters if name not in ("run", "path", "force")]
    for name in options:
        if name not in allowed:
            raise unknown(f"option of {to}", name, allowed or ["(it has none)"])
    folder = run if isinstance(run, Run) else getattr(run, "run", run)
    if folder is None:
        raise ValueError("this result has no folder to export from; fit with output= (a folder)")
    opened = folder if isinstance(folder, Run) else Run.open(Path(folder))
    model = ["model.safetensors"] if to in OF_MODELS else []
    opened.require_finished(*model, "labels.parquet", "summary.json")
    if "network" in allowed and options.get("network") is None:
        options["network"] = getattr(run, "model", None)  # a result still has its network
    if "noisy" in allowed and options.get("noisy") is None and getattr(run, "outcome", None) is not None:
        options["noisy"] = run.outcome.data.source  # and its data
    target = opened.path / NAMES[to] if path is None else Path(path)
    with reading(opened.path):
        write(opened, target, force=force, **options)
    return target
