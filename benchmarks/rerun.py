"""Are the committed cells still what the code gives? Runs some of them again and compares every digit.

    python benchmarks/rerun.py --root DATA                    # of features, robustness, memorising and the ladder
    python benchmarks/rerun.py --root DATA --sweep memorising --row elr --column uniform-40 --seed 0
    python benchmarks/rerun.py --root DATA --write            # keeps the outcomes in benchmarks/results/rerun.json

The numbers of a run depend on the code, the versions of its libraries and, in the last digits, on the processor and its
number of threads; everything else is in the recipe. One core, as all cells were made.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mslg.sweeps.ledger import Ledger, commit
from mslg.sweeps.run import open_sweep, run_sweep

RESULTS = Path(__file__).parent / "results"
SWEPT = (
    ("features", "cross-entropy", "uniform-40", 0),
    ("memorising", "mslg released", "uniform-40", 0),
    ("memorising", "default", "uniform-40", 0),
    ("memorising", "elr", "released-40", 1),
    ("memorising", "pencil", "clean", 1),
    ("memorising", "default", "feature-80", 3),
    ("features", "default", "feature-dependent-20", 1),
    ("ladder-published", "difference", "uniform-40", 0),
)
ROBUSTNESS = ("gold correction", "digits pair 40 100", 0)
LEFT_OUT = ("seconds", "commit", "versions")


def of_sweep(name: str, row: str, column: str, seed: int, root: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A cell of a sweep as it was committed, and run again."""
    grid, found = open_sweep(RESULTS / name)
    key = (row, column, seed)
    if key not in found:
        raise SystemExit(f"{RESULTS / name} has no cell {row}, {column}, seed {seed} with the settings of its recipe")
    with TemporaryDirectory() as folder:
        errors = run_sweep(grid, Path(folder), root=root, only=lambda cell: cell.key == key)
        if errors:
            raise SystemExit(f"{row}, {column}, seed {seed} could not be run: {errors[key]}")
        again = Ledger(Path(folder)).read()[key]
    return vars(found[key]), vars(again)


def of_robustness(row: str, setting: str, seed: int, root: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A cell of the robustness suite as it was committed, and run again."""
    import robustness

    known = {(each["row"], each["setting"], each["seed"]): each for each in robustness.read_cells(robustness.RESULTS)}
    again = robustness.cell((row, setting, seed), root=Path(root), epochs=None)
    return known[row, setting, seed], again


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What differs, [then, now] by name; curves that only the newer one has do not count."""
    found = {}
    for name, then in before.items():
        now = after.get(name)
        if name in LEFT_OUT:
            continue
        if isinstance(then, dict) and isinstance(now, dict):
            found |= {f"{name}: {key}": [each, now.get(key)] for key, each in then.items() if now.get(key) != each}
        elif then != now:
            found[name] = [then, now]
    return found


def together(known: list[dict[str, Any]], outcome: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All outcomes, new ones in the place of older ones of the same cell. A note by hand, of why a cell differs, stays
    as long as it differs in the same way."""
    found = {each["cell"]: each for each in known}
    for each in outcome:
        before = found.get(each["cell"], {})
        same = "note" in before and before["differences"] == each["differences"]
        found[each["cell"]] = {**each, "note": before["note"]} if same else each
    return list(found.values())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--root", required=True, help="folder with the data")
    options.add_argument("--sweep", help="run a cell of this sweep instead")
    options.add_argument("--row")
    options.add_argument("--column")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--write", action="store_true")
    arguments = options.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    if arguments.sweep is not None:
        jobs = {", ".join((arguments.sweep, arguments.row, arguments.column, str(arguments.seed))): of_sweep}
        values: list[tuple[Any, ...]] = [(arguments.sweep, arguments.row, arguments.column, arguments.seed)]
    else:
        jobs = {", ".join(map(str, job)): of_sweep for job in SWEPT}
        jobs[", ".join(("robustness", *map(str, ROBUSTNESS)))] = of_robustness
        values = [*SWEPT, ROBUSTNESS]
    outcome = []
    for (name, run), job in zip(jobs.items(), values, strict=True):
        before, after = run(*job, arguments.root)
        apart = differences(before, after)
        made = before.get("commit", "")
        outcome.append({"cell": name, "made": made, "again": commit(), "differences": apart})
        print(f"{name}: {'the same to the last digit' if not apart else f'differs: {apart}'}", flush=True)
    if arguments.write:
        path = RESULTS / "rerun.json"
        path.write_text(json.dumps(together(json.loads(path.read_text()), outcome), indent=1) + "\n")
    raise SystemExit(1 if any(each["differences"] for each in outcome) else 0)


if __name__ == "__main__":
    main()
