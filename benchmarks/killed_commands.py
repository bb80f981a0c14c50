"""Every command but `fit DATA`, which benchmarks/chaos.py kills by methods: what it is killed at."""

from __future__ import annotations

from pathlib import Path

import numpy as np

QUICK = ["-q", "--no-report", "--no-compare", "--checkpoint-minutes", "0"]
COMMANDS = [
    ["apply", "run", "--to", "imagefolder", "-o", "out", "--force", "--suggested"],
    ["apply", "run", "-o", "out.csv", "--force"],
    ["apply", "run", "-o", "out.parquet", "--force"],
    ["apply", "run", "--to", "label-studio", "-o", "out.json", "--force"],
    ["export", "run", "--to", "safetensors", "-o", "out", "--force"],
    ["export", "run", "--to", "csv", "-o", "out.csv", "--force"],
    ["export", "run", "--to", "imagefolder", "-o", "out", "--force"],
    ["report", "run", "-o", "out.html"],
    ["review-next", "run", "-o", "out.csv", "--force", "--workers", "0"],
    ["review", "run", "--no-browser"],
    ["verify", "run"],
    ["check", "photos", "--workers", "0"],
    ["fit", "--from", "run", "-o", "out", "--force", "--epochs", "2", *QUICK],
    ["issues", "labels.csv", "--pred-probs", "probs.npy", "-o", "out", "--force"],
    ["predict", "run", "photos", "-o", "out.parquet", "--force", "--workers", "0"],
    ["noise", "photos", "--kind", "uniform", "--rate", "0.3", "-o", "out.parquet", "--force"],
    ["sweep", "sweep.toml", "-o", "out", "-j", "2", "-q"],
    ["table", "swept", "--format", "markdown"],
    ["plot", "swept", "-o", "out.png"],
    ["start", "photos", "-o", "out", "--no-serve"],
    ["list", "methods"],
    ["doctor", "data.npz", "--rounds", "1", "--network", "mlp"],
    ["demo", "-o", "out", "--force"],
]
FIRST = [["sweep", "sweep.toml", "-o", "swept", "-j", "1", "-q"]]  # what table and plot need
ENDLESS = {"review": 2.0}  # seconds: it serves until it is stopped
STARTS_OVER = {"sweep": ("out",)}  # a finished one would have nothing to do
SWEEP = """[sweep]
seeds = [0]

[data]
source = "data.npz"
clean = 20

[network]
name = "mlp"

[train]
epochs = 2

[columns.uniform-20.data]
noise = "uniform"
rate = 0.2

[rows."cross entropy".method]
name = "cross-entropy"

[rows.elr.method]
name = "elr"
"""


def write_inputs(place: Path) -> None:
    """What the commands read, beside a run on photos."""
    noise = np.random.default_rng(0)
    given = noise.integers(0, 3, 60)
    x = noise.normal(size=(60, 4)).astype("f4") + given[:, None]
    np.savez(place / "data.npz", X=x, y=given, X_test=x + 0.1, y_test=given)
    odds = np.eye(3)[given] + noise.uniform(size=(60, 3))
    np.save(place / "probs.npy", odds / odds.sum(1, keepdims=True))
    lines = ["id,label", *(f"s{number},{label}" for number, label in enumerate(given))]
    (place / "labels.csv").write_text("\n".join(lines) + "\n")
    (place / "sweep.toml").write_text(SWEEP)
