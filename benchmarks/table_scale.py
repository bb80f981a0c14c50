"""What very many samples cost: a step of MSLG on 10,000,000 samples × 1,000 classes, beside one on few.

The tables of the large set are float16 files, several times larger than memory; those of the small ones are in memory,
as they would be for anybody. Inputs are made on the fly, so that the tables are all there is. Times are means over
interleaved steps in one process with one thread, so that a busy machine slows all alike: the whole of what the loop
does for a step, with fetching the batch and folding the predictions into the history. Memory is the anonymous resident
memory (RssAnon: what a process cannot give back) above what it was with the network alone, in a fresh process that
trains, takes a checkpoint and writes a part of `labels.parquet`. The files reserve 75 GB of disk.

    python benchmarks/table_scale.py                     print the numbers
    python benchmarks/table_scale.py --write             and keep them in benchmarks/results/table_scale.json
    python benchmarks/table_scale.py --steps 20 --exported 10000 --samples 1000000     a quick look
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow.parquet as pq
import torch

from mslg.data import sample_table as rows
from mslg.issues.from_training import rank_training_labels
from mslg.issues.label_rows import label_tables
from mslg.issues.labels_file import NAME, write_labels
from mslg.networks.cnn import CNN8
from mslg.networks.mlp import MLP
from mslg.runs.folder import Run
from synthetic import BATCH, Bench, tell

RESULT = Path(__file__).parent / "results" / "table_scale.json"
SAMPLES, CLASSES = 10_000_000, 1_000
FEW, FEW_CLASSES = 50_000, 10
WARM = 10  # steps before those that count
NETWORKS: dict[str, Callable[[int], torch.nn.Module]] = {
    "mlp": lambda classes: MLP(512, classes, hidden=[512]),
    "cnn8": lambda classes: CNN8(classes, width=16),
}
SHAPES = {"mlp": (512,), "cnn8": (3, 32, 32)}


def bench(samples: int, classes: int, network: str, folder: Path) -> Bench:
    """MSLG on so many samples; the label table is float16 where it goes to a file, as the others are by themselves."""
    large = samples * classes * 2 > rows.LARGE
    kind = "float16" if large else "float32"
    return Bench.build(samples, classes, NETWORKS[network], SHAPES[network], folder=folder, table_dtype=kind)


def measure_time(network: str, samples: int, steps: int, folder: Path) -> dict[str, float]:
    """Milliseconds a step on each size: the mean, because predictions go to their table many steps at a time."""
    sizes = {"large": (samples, CLASSES), "few": (FEW, CLASSES), "few, 10 classes": (FEW, FEW_CLASSES)}
    benches = {name: bench(*size, network, folder / name).steps() for name, size in sizes.items()}
    taken: dict[str, list[float]] = {name: [] for name in benches}
    for number in range(WARM + steps):
        for name, stepping in benches.items():
            begun = time.perf_counter()
            next(stepping)
            if number >= WARM:
                taken[name].append(time.perf_counter() - begun)
    return {name: round(1000 * fmean(times), 3) for name, times in taken.items()}


class Watch:
    """The highest anonymous resident memory, looked at all the time."""

    def __init__(self) -> None:
        self.highest = 0
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            self.highest = max(self.highest, anonymous())
            time.sleep(0.002)

    @contextmanager
    def during(self, found: dict[str, Any], name: str, before: int) -> Iterator[None]:
        """Write down the highest while something is done, in MB above what was before, and the seconds it took."""
        self.highest, begun = anonymous(), time.perf_counter()
        yield
        found[name] = {"mb": (max(self.highest, anonymous()) - before) >> 20}
        found[name]["seconds"] = round(time.perf_counter() - begun, 1)


def anonymous() -> int:
    """Bytes of anonymous resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no RssAnon: this benchmark needs Linux")


def measure_memory(network: str, samples: int, steps: int, exported: int, folder: Path) -> dict[str, Any]:
    """Megabytes above the network alone: of the tables, of training, of a checkpoint and of the export."""
    small = bench(1_000, CLASSES, network, folder / "small")
    next(small.steps())  # the network, its optimizer and all that torch loads are there
    del small
    before, watch = anonymous(), Watch()
    found: dict[str, Any] = {}
    with watch.during(found, "set-up", before):
        large = bench(samples, CLASSES, network, folder / "tables")
    with watch.during(found, "training", before):
        stepping = large.steps()
        for _ in range(steps):
            next(stepping)
        del stepping
    run = Run.create(folder / "run", {})
    with watch.during(found, "checkpoint", before):
        run.save(large.method, large.position)
    found["checkpoint"]["file_mb"] = run.checkpoint.stat().st_size >> 20
    found["exports"] = {}
    for count in (exported // 4, exported):
        part = replace(large.data, train=large.data.train.at(torch.arange(count)))
        labels = folder / f"labels-{count}" / NAME
        labels.parent.mkdir()
        with watch.during(found["exports"], str(count), before):
            write_labels(labels.parent, label_tables(rank_training_labels(large.method, part, large.position.history)))
        assert pq.read_metadata(labels).num_rows == count
        found["exports"][str(count)]["file_mb"] = labels.stat().st_size >> 20
    files = [path.stat() for path in folder.rglob("*") if path.is_file()]
    found["files"] = {
        "size_gb": round(sum(stat.st_size for stat in files) / 2**30, 1),
        "on_disk_gb": round(sum(512 * stat.st_blocks for stat in files) / 2**30, 1),
    }
    return found


def in_fresh_process(options: argparse.Namespace) -> dict[str, Any]:
    words = [sys.executable, __file__, "--memory", "--network", "mlp", "--samples", str(options.samples)]
    words += ["--steps", str(options.steps), "--exported", str(options.exported)]
    words += [] if options.folder is None else ["--folder", str(options.folder)]
    answer = subprocess.run(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"keep the numbers in results/{RESULT.name}")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of the large set (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=300, help="that count, with the MLP (default: %(default)s)")
    parser.add_argument("--exported", type=int, default=200_000, help="rows of labels.parquet (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="for the tables, on a real disk (default: a temporary one)")
    parser.add_argument("--network", choices=NETWORKS, help="time only this one (default: both)")
    parser.add_argument("--memory", action="store_true", help="measure memory only, in this process")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=options.folder) as kept:
        folder = Path(kept)
        if options.memory:
            where = options.network or "mlp"
            print(json.dumps(measure_memory(where, options.samples, options.steps, options.exported, folder)))
            return
        times = {}
        for network in [options.network] if options.network else NETWORKS:
            steps = options.steps if network == "mlp" else max(2, options.steps // 5)  # a step takes longer
            with tempfile.TemporaryDirectory(dir=kept) as tables:  # the next network needs the room
                times[network] = {"steps": steps, "ms": measure_time(network, options.samples, steps, Path(tables))}
            print(f"{network}: {times[network]}", file=sys.stderr, flush=True)
    found = {
        "samples": options.samples,
        "classes": CLASSES,
        "batch": BATCH,
        "step": times,
        "memory": in_fresh_process(options),
    }
    tell(found, RESULT if options.write else None)


if __name__ == "__main__":
    main()
