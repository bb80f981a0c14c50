"""What the fingerprint of the data costs beside reading it, in processor time.

python benchmarks/fingerprint_cost.py            # prints a table
python benchmarks/fingerprint_cost.py --write    # and writes benchmarks/results/fingerprint_cost.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image

from mslg.data.open import open_named
from mslg.data.readers.options import Reading

RESULT = Path(__file__).parent / "results" / "fingerprint_cost.json"
ROUNDS = 5


def write_npz(folder: Path, dtype: str, rows: int) -> str:
    x = np.random.default_rng(0).normal(size=(rows, 32)).astype(dtype)
    np.savez(folder / "data.npz", X=x, y=np.arange(rows) % 10)
    return "data.npz"


def write_table(folder: Path, kind: str, rows: int) -> str:
    x = np.random.default_rng(0).normal(size=(rows, 32)).astype("f4")
    table = pd.DataFrame(x, columns=[f"x{column}" for column in range(32)]).assign(label=np.arange(rows) % 10)
    table.to_csv(folder / "data.csv", index=False) if kind == "csv" else table.to_parquet(folder / "data.parquet")
    return f"data.{kind}"


def write_images(folder: Path, count: int, size: int) -> str:
    noise = np.random.default_rng(0)
    for number in range(count):
        place = folder / "photos" / f"class{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        smooth = Image.fromarray(noise.integers(0, 255, (size // 8, size // 8, 3), dtype=np.uint8))
        smooth.resize((size, size)).save(place / f"{number}.jpg")
    return "photos"


CASES: dict[str, Callable[[Path], str]] = {
    "npz, float32, 1,000,000 × 32": lambda folder: write_npz(folder, "f4", 1_000_000),
    "npz, float64, 200,000 × 32": lambda folder: write_npz(folder, "f8", 200_000),
    "Parquet, 100,000 × 32": lambda folder: write_table(folder, "parquet", 100_000),
    "CSV, 10,000 × 32": lambda folder: write_table(folder, "csv", 10_000),
    "JPEG files, 100 of 256 × 256": lambda folder: write_images(folder, 100, 256),
}


def measure(write: Callable[[Path], str]) -> dict[str, float]:
    """Seconds of processor time, medians: opening the data (decoding it, if it is images), and the fingerprint."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / write(Path(folder)))
        read, taken = [], []
        for _ in range(ROUNDS):
            begun = time.process_time()
            source: Any = open_named(path, reading=Reading(workers=0)).train
            if path.endswith("photos"):
                for _ in source.store.batches(torch.arange(len(source)).split(64)):
                    pass
            opened = time.process_time()
            source.fingerprint()
            read.append(opened - begun)
            taken.append(time.process_time() - opened)
    return {"reading": statistics.median(read), "fingerprint": statistics.median(taken)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for name, write in CASES.items():
        found[name] = {key: round(value, 4) for key, value in measure(write).items()}
        share = 100 * found[name]["fingerprint"] / found[name]["reading"]
        print(
            f"{name:<32}{found[name]['reading']:>9.4f} s {found[name]['fingerprint']:>9.4f} s {share:>6.2f} %",
            flush=True,
        )
    if given.write:
        RESULT.write_text(json.dumps({"format_version": 1, "rounds": ROUNDS, "seconds": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
