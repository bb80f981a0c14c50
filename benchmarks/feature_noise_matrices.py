"""Feature-dependent noise on CIFAR-10, as published and as described, side by side.

Both are made from the released student probabilities. The published noise takes the file as it is; the fixed generator
takes the student's own probabilities, recovered from the file by a logarithm, ranks by margin in float64 and draws
among ties. Reads cifar10_student_probs.npy and cifar10_train_labels.npy in the folder that MSLG_TEST_DATA names.

    MSLG_TEST_DATA=folder python benchmarks/feature_noise_matrices.py
    MSLG_TEST_DATA=folder python benchmarks/feature_noise_matrices.py --rate 0.8 -o picture.png --json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mslg.noise.corruption import Corruption
from mslg.noise.feature_dependent import feature_dependent
from mslg.noise.feature_dependent_released import feature_dependent_released, student_probabilities
from mslg.noise.plot import draw_transitions

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "feature_noise.png"


def make(folder: Path, rate: float, seed: int) -> dict[str, Corruption]:
    """Both noises at one rate."""
    label = torch.as_tensor(np.load(folder / "cifar10_train_labels.npy").astype(np.int64))
    released = np.load(folder / "cifar10_student_probs.npy")
    recovered = student_probabilities(released)
    return {
        "feature-dependent-released": feature_dependent_released(
            label, rate, np.random.default_rng(seed), classes=10, probabilities=released
        ),
        "feature-dependent": feature_dependent(
            label, rate, np.random.default_rng(seed), classes=10, probabilities=recovered
        ),
    }


def numbers(found: Corruption) -> dict[str, Any]:
    """What the picture shows, in a few numbers."""
    wrong = found.label[found.label != found.before]
    own = found.realised.argmax(1) == torch.arange(10)
    return {
        "rate": found.rate,
        "wrong_labels_by_class": dict(zip(CLASSES, torch.bincount(wrong, minlength=10).tolist(), strict=True)),
        "classes_whose_own_label_is_the_most_frequent": int(own.sum()),
    }


def main() -> None:
    """Draw the picture and print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=0.6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, default=PICTURE)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if "MSLG_TEST_DATA" not in os.environ:
        sys.exit("set MSLG_TEST_DATA to the folder with cifar10_student_probs.npy and cifar10_train_labels.npy")
    made = make(Path(os.environ["MSLG_TEST_DATA"]), options.rate, options.seed)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    titles = {f"{name}, {100 * found.rate:.0f} %": found.realised.numpy() for name, found in made.items()}
    draw_transitions(titles, CLASSES, options.output)
    found = {name: numbers(corruption) for name, corruption in made.items()}
    if options.json:
        print(json.dumps(found))
        return
    for name, row in found.items():
        print(name)
        for key, value in row.items():
            print(f"  {key.replace('_', ' ')}: {value}")


if __name__ == "__main__":
    main()
