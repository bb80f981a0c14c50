"""Several methods on the same noisy digits, and a figure of the corrected labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import torch

from ..data.make_splits import balanced
from ..data.readers.digits import digits
from ..fitting.fit import fit
from ..fitting.result import Result
from ..networks.mlp import MLP
from ..noise.uniform import uniform
from ..runtime.seeds import numpy_generator
from ..training.progress import for_terminal

RATE = 0.4
CLEAN = 100


@dataclass
class Corrected:
    """Images with their given, suggested and true labels."""

    images: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
    labels: pd.DataFrame
    true: np.ndarray[tuple[int], np.dtype[np.int64]]


def compare(
    methods: Iterable[str], output: Path, *, seed: int = 0, force: bool = False
) -> tuple[dict[str, dict[str, float]], Corrected]:
    """Train each method on the same data. Returns their accuracies, and the corrected labels of the last one."""
    data = digits(seed=seed)
    images = torch.cat(list(data.train.store.batches([torch.arange(len(data.train))])))
    true = data.train.label
    chosen = balanced(true, CLEAN, 10, seed)
    kept = torch.ones(len(true), dtype=torch.bool)
    kept[chosen] = False
    corrupted = uniform(true[kept], RATE, numpy_generator(seed, "noise"), classes=10, fill=True)
    rows: dict[str, dict[str, float]] = {}
    result: Result | None = None
    for name in methods:
        result = fit(
            lambda: MLP(64, 10),
            (images[kept], corrupted.label),
            (images[chosen], true[chosen]),
            method=name,
            test=data.test,
            true_labels=true[kept],
            epochs=20,
            seed=seed,
            output=output / name,
            force=force,
            progress=for_terminal(name),
        )
        last = result.summary["last"]
        rows[name] = {
            "test": last["test/accuracy"],
            "predicted": last["predictions/accuracy"],
            "given": last["given/accuracy"],
        }
    assert result is not None
    return rows, Corrected(images[kept, 0].numpy(), result.labels, true[kept].numpy())


def draw_corrections(corrected: Corrected, path: Path, *, across: int = 10, down: int = 4) -> None:
    """Draw the samples with the worst labels: given label, suggested label, and whether the latter is correct."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    worst = corrected.labels.sort_values("rank").index[: across * down]
    figure, axes = plt.subplots(down, across, figsize=(1.05 * across, 1.42 * down), dpi=110)
    for axis in axes.flat:
        axis.axis("off")
    for axis, sample in zip(axes.flat, worst, strict=False):
        row = corrected.labels.loc[sample]
        right = row["suggested_label"] == str(corrected.true[sample])
        axis.imshow(corrected.images[sample], cmap="gray_r", interpolation="nearest")
        axis.set_title(
            f"given {row['given_label']}\nnow {row['suggested_label']} {'✓' if right else '✗'}",
            fontsize=9,
            color="#1a7f37" if right else "#cf222e",
        )
    figure.suptitle("The 40 labels that are trusted least, and what they would become", fontsize=11)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
