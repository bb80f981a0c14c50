"""Plots of transition matrices, written to files without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.files import write_atomically

READABLE = 25  # with more classes, numbers and names are left out of the plot


def draw_transitions(matrices: Mapping[str, Any], classes: Sequence[str], path: Path) -> None:
    """Transition matrices side by side, each under its title; rows true, columns given, cells in percent."""
    from matplotlib.figure import Figure

    side = max(3.2, 0.46 * min(len(classes), READABLE))
    figure = Figure(figsize=(len(matrices) * (side + 1.1), side + 1.0), dpi=110, layout="constrained")
    axes = figure.subplots(1, len(matrices), squeeze=False)[0]
    for axis, (title, matrix) in zip(axes, matrices.items(), strict=True):
        _draw_matrix(axis, np.asarray(matrix), classes)
        axis.set_title(title, fontsize=11)
    content = BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    write_atomically(path, content.getvalue())


def _draw_matrix(axis: Any, matrix: Any, classes: Sequence[str]) -> None:
    axis.imshow(matrix, cmap="Blues", vmin=0, vmax=1)
    axis.set_xlabel("given label")
    axis.set_ylabel("true label")
    if len(classes) > READABLE:
        return
    ticks = range(len(classes))
    axis.set_xticks(ticks, classes, rotation=90, fontsize=8)
    axis.set_yticks(ticks, classes, fontsize=8)
    for row in ticks:
        for column in ticks:
            if (value := 100 * matrix[row, column]) >= 0.5:
                color = "white" if value > 55 else "#1b2a41"
                axis.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=7, color=color)
