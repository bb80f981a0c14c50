"""A finished run as the result that `fit` returned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from ..runs.folder import Run
from ..runs.load_model import load_model
from .result import Result


def load_run(
    folder: Path | str | Run, network: str | nn.Module | Callable[[], nn.Module] | None = None, *, prepare: Any = None
) -> Result:
    """The result of a finished run: model, labels, soft labels, history, summary, predict.

    Args:
        folder: of the run.
        network: for a network of your own, a module like it or a function that makes one; needed for the model and its
            predictions only.
        prepare: how to prepare images, where functions of your own did it, as in `mslg.load_model`.

    Returns:
        What `mslg.fit` returned. The model is built when it is first used.
    """
    run = folder if isinstance(folder, Run) else Run.open(Path(folder))
    run.require_finished("model.safetensors", "labels.parquet", "summary.json")
    summary = {key: value for key, value in run.read_json("summary.json").items() if key != "format_version"}
    history = pd.DataFrame(run.history())

    def load() -> tuple[nn.Module, Any]:
        model = load_model(run.path, network, prepare=prepare)
        return model.network, model.new_inputs

    return Result(history, summary, tuple(run.read_json("classes.json")["classes"]), run, None, load)
