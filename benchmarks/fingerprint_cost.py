"""What the fingerprint of the data costs beside reading it, in processor time.

python benchmarks/fingerprint_cost.py            # prints a table
python benchmarks/fingerprint_cost.py --write    # and writes benchmarks/results/fingerprint_cost.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import torch
from PIL import Image

from mslg.data.image_stores import ImageStore
from mslg.data.open import open_named
from mslg.data.readers import image_files
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
    "Parquet, float32, 500,000 × 32": lambda folder: write_table(folder, "parquet", 500_000),
    "CSV, 10,000 × 32": lambda folder: write_table(folder, "csv", 10_000),
    "JPEG files, 2,000 of 32 × 32": lambda folder: write_images(folder, 2000, 32),
    "JPEG files, 200 of 512 × 512": lambda folder: write_images(folder, 200, 512),
}


def measure(write: Callable[[Path], str]) -> dict[str, float]:
    """Seconds of processor time, medians: opening the data (and decoding it, if it is images), and the fingerprint."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / write(Path(folder)))
        rounds = [in_a_process(path) for _ in range(ROUNDS + 1)][1:]  # from the second on, files are in memory
    return {
        "reading": statistics.median(reading for reading, _ in rounds),
        "fingerprint": statistics.median(fingerprint for _, fingerprint in rounds),
    }


def in_a_process(path: str) -> tuple[float, float]:
    """A process of its own, as a run reads its data once: memory that was used before makes reading faster."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(one_round, (path,))


def one_round(path: str) -> tuple[float, float]:
    """Seconds for reading, and for the fingerprint."""
    begun = time.process_time()
    source: Any = open_named(path, reading=Reading(workers=0)).train
    images = isinstance(source.store, ImageStore)
    if images:
        for _ in source.store.batches(torch.arange(len(source)).split(64)):
            pass
    reading = time.process_time() - begun
    begun = time.process_time()
    source.fingerprint()
    fingerprint = time.process_time() - begun
    if images:  # the checksums of the files have been taken while they were read
        contents = [source.store.path(position).read_bytes() for position in range(len(source))]
        begun = time.process_time()
        for start in range(0, len(contents), 64):
            rows = torch.arange(start, min(start + 64, len(contents)))
            source.store.seen.compare(rows, torch.tensor([crc32(content) for content in contents[start : start + 64]]))
        checksums = time.process_time() - begun
        reading, fingerprint = reading - checksums, fingerprint + checksums
    return reading, fingerprint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    image_files.IN_MEMORY = 0  # read lazily, as large sets are
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
