"""Does the stated error rate hold? 90 % intervals against the truth, over many splits.

    python benchmarks/error_rate.py --root DATA          # writes benchmarks/results/error_rate.json

A run for each noise and seed with 600 clean samples that steer and a pool of held-out ones; then the statement is made
ten times, each with another 400 held-out samples of the pool and 600 others whose two labels are counted, as if the
clean set had been drawn anew. What is stated (the number of wrong labels; the precision of the list at several depths)
is compared with the truth, which the statement never sees. With `--basis injected` the clean samples carry no given
label, as with a clean set that was collected apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noisy_sets import arguments_of, run, run_missing, settings

RESULTS = Path(__file__).parent / "results" / "error_rate.json"
SETS = [
    "features uniform 0.05",
    "features uniform 0.2",
    "features uniform 0.4",
    "features uniform 0.6",
    "features pair 0.2",
    "features pair 0.4",
    "features feature-dependent 0.2",
    "features feature-dependent 0.4",
    "features feature-dependent-released 0.4",
    "features feature-dependent-released 0.6",
]
DEPTHS = [200, 1000, 5000, 10000]
STEER, HELD_OUT, POOL = 600, 400, 4000
SPLITS = 10


def cell(job: tuple[str, int], *, root: str, cache: Path, basis: str) -> dict[str, Any]:
    """One run, and its statements over resampled splits."""
    from dataclasses import replace

    import torch

    import mslg.data.make_splits
    from mslg.issues.evidence import Evidence
    from mslg.issues.ranked_list import rank_labels
    from mslg.runtime.seeds import generator

    name, seed = job
    mslg.data.make_splits.PARTS = (STEER / (STEER + POOL), POOL / 2 / (STEER + POOL), POOL / 2 / (STEER + POOL))
    result = run(settings(name, seed, root=root, cache=cache, clean=STEER + POOL))
    data, issues = result.outcome.data, result.outcome.issues
    wrong = (data.train.label != data.source.true_label[data.train.index]).double()
    pool = issues.evidence.held_out
    statements = []
    for split in range(SPLITS):
        order = torch.randperm(POOL, generator=generator(seed, "split", split))
        held_out = pool.at(order[:HELD_OUT])._replace(sample=torch.arange(HELD_OUT))
        others = pool.at(order[HELD_OUT : HELD_OUT + STEER])
        here = Evidence(held_out, (others.given, others.verified), seed=data.seed + split)
        if basis == "injected":
            unknown = held_out._replace(given=torch.full((HELD_OUT,), -1))
            here = replace(here, held_out=unknown, pairs=None)
        ranked = rank_labels(issues.predictions, here)
        worst = ranked.order.long()
        calibration = ranked.error_rate.calibration
        rows = {"all": {**calibration.wrong_share(len(worst)).as_json(), "truth": float(wrong.mean())}}
        for depth, at in zip(DEPTHS, calibration.precision(ranked.log_odds[worst], DEPTHS), strict=True):
            rows[str(depth)] = {**at.as_json(), "truth": float(wrong[worst[:depth]].mean())}
        statements.append(rows)
    return {"set": name, "seed": seed, "basis": basis, "statements": statements}


def main() -> None:
    options = arguments_of(__doc__, sets=SETS, seeds=[20], output=RESULTS)
    options.add_argument("--basis", choices=("pairs", "injected"), default="pairs")
    arguments = options.parse_args()
    print(table(run_missing(cell, arguments, basis=arguments.basis)))


def table(cells: list[dict[str, Any]]) -> str:
    """Of each noise: how many intervals hold the truth, and the mean absolute error, as Markdown."""
    heads = ["all", *map(str, DEPTHS)]
    lines = ["| set | " + " | ".join("wrong labels" if h == "all" else f"first {int(h):,}" for h in heads) + " |"]
    lines.append("|---|" + "---:|" * len(heads))
    names = [*dict.fromkeys(each["set"] for each in cells), "together"]
    for name in names:
        found = [rows for each in cells if name in (each["set"], "together") for rows in each["statements"]]
        words = []
        for head in heads:
            numbers = [rows[head] for rows in found]
            inside = sum(n["low"] - 1e-9 <= n["truth"] <= n["high"] + 1e-9 for n in numbers)
            error = sum(abs(n["estimate"] - n["truth"]) for n in numbers) / len(numbers)
            words.append(f"{inside} of {len(numbers)}, {error:.3f}")
        lines.append(f"| {name} | " + " | ".join(words) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
