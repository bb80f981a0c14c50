"""Time and memory of `mslg.find_label_issues` and of the folder it writes, for very many samples or classes.

    python benchmarks/issues_scale.py --write      # writes benchmarks/results/issues_scale.json

Probabilities are made up in a memory-mapped file, so that the memory measured is that beyond the input; each size in a
process of its own, with as many threads as --threads.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "issues_scale.json"
SIZES = [(100_000, 100), (1_000_000, 100), (50_000, 10_000)]
VERIFIED = 1_000


def made(folder: Path, samples: int, classes: int) -> tuple[Any, Any, Any]:
    """Labels, of which a fifth is wrong, probabilities on disk, and the true labels."""
    import numpy as np

    random = np.random.default_rng(0)
    true = random.integers(0, classes, samples)
    given = np.where(random.random(samples) < 0.2, random.integers(0, classes, samples), true)
    file = np.lib.format.open_memmap(folder / "p.npy", mode="w+", dtype=np.float32, shape=(samples, classes))
    step = max(1, 2**22 // classes)
    for start in range(0, samples, step):
        here = slice(start, min(start + step, samples))
        logits = random.standard_normal((here.stop - start, classes), dtype=np.float32)
        logits[np.arange(here.stop - start), true[here]] += np.float32(np.log(classes) + 1)
        np.exp(logits, out=logits)
        file[here] = logits / logits.sum(1, keepdims=True)
    file.flush()
    return given, folder / "p.npy", true


def _status(field: str) -> int:
    """Kilobytes of one field of this process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def measure(samples: int, classes: int, folder: Path) -> dict[str, Any]:
    """One size, in this process."""
    import threading

    import numpy as np

    import mslg

    given, true = np.load(folder / "given.npy"), np.load(folder / "true.npy")
    known = np.where(np.arange(samples) < VERIFIED, true, -1)
    mslg.find_label_issues(given[:200] % 3, np.full((200, 3), 1 / 3))  # imports
    before, most, stop = _status("RssAnon"), [0], threading.Event()

    def watch() -> None:  # pages of the input that are in memory do not count: they are the file's
        while not stop.wait(0.02):
            most[0] = max(most[0], _status("RssAnon"))

    thread = threading.Thread(target=watch)
    thread.start()
    begun = time.perf_counter()
    found = mslg.find_label_issues(given, folder / "p.npy", verified=known)
    finding = time.perf_counter() - begun
    found_most = most[0]
    begun = time.perf_counter()
    found.save(folder / "run")
    saving = time.perf_counter() - begun
    stop.set()
    thread.join()
    wrong = (given != true)[VERIFIED:]
    count = found.summary["label_errors"]["count"]
    return {
        "samples": samples,
        "classes": classes,
        "seconds": {"find": finding, "save": saving, "processor": sum(os.times()[:2])},
        "megabytes": {"find": (found_most - before) / 1024, "save": (most[0] - before) / 1024},
        "input_megabytes": samples * classes * 4 / 2**20,
        "wrong": int(wrong.sum()),
        "stated": count,
        "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--write", action="store_true")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--sizes", nargs="+", default=[f"{samples}x{classes}" for samples, classes in SIZES])
    options.add_argument("--one", nargs=3, metavar=("SAMPLES", "CLASSES", "FOLDER"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one is not None:
        print(json.dumps(measure(int(chosen.one[0]), int(chosen.one[1]), Path(chosen.one[2]))))
        return
    rows = []
    for size in chosen.sizes:
        samples, classes = map(int, size.split("x"))
        with tempfile.TemporaryDirectory() as folder:
            import numpy as np

            given, _, true = made(Path(folder), samples, classes)
            np.save(Path(folder) / "given.npy", given)
            np.save(Path(folder) / "true.npy", true)
            command = [sys.executable, __file__, "--one", str(samples), str(classes), folder]
            environment = {**os.environ, "OMP_NUM_THREADS": str(chosen.threads)}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(json.dumps(rows[-1]), flush=True)
    if chosen.write:
        from mslg.runtime.machine import versions

        RESULTS.write_text(json.dumps({"versions": versions(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
