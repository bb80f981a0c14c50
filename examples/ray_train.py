"""MSLG on Ray Train: Ray starts the processes, `mslg.fit` trains in all of them together.

pip install "ray[train]" && python examples/ray_train.py
"""

import json
from pathlib import Path

import numpy as np
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from sklearn.datasets import load_digits
from torch import nn

import mslg

FOLDER = Path("runs/ray").resolve()  # every worker must be able to reach it


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def train(settings: dict) -> None:
    """Runs in every worker: all see the same data, each trains on the samples it owns."""
    digits = load_digits()
    inputs, true = (digits.data / 16).astype("float32"), digits.target
    chance = np.random.default_rng(0)
    noisy = np.where(chance.random(1500) < 0.3, chance.integers(0, 10, 1500), true[:1500])
    result = mslg.fit(
        network,
        (inputs[:1200], noisy[:1200]),
        (inputs[1200:1500], true[1200:1500]),
        test=(inputs[1500:], true[1500:]),
        output=FOLDER,
        epochs=settings["epochs"],
        resume=True,  # a worker that Ray has started again goes on
    )
    ray.train.report({"accuracy": result.summary["last"]["test/accuracy"]})


if __name__ == "__main__":
    trainer = TorchTrainer(
        train,
        train_loop_config={"epochs": 10},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(FOLDER.parent / "ray-results")),
    )
    trainer.fit()
    last = json.loads((FOLDER / "summary.json").read_text())["last"]
    print(f"test accuracy {last['test/accuracy']:.1%}")
