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
    import torch

    import mslg.data.make_splits
    from mslg.issues import posterior as evidence
    from mslg.issues.error_rate import state
    from mslg.runtime.seeds import generator

    name, seed = job
    mslg.data.make_splits.PARTS = (STEER / (STEER + POOL), POOL / 2 / (STEER + POOL), POOL / 2 / (STEER + POOL))
    result = run(settings(name, seed, root=root, cache=cache, clean=STEER + POOL))
    done = result.outcome
    data, method, history, source = done.data, done.method, done.position.history, done.data.source
    given = source.label[data.train.index]
    wrong = (given != source.true_label[data.train.index]).double()
    pool = evidence.labelled(method, data, (data.select, data.report))
    statements = []
    for split in range(SPLITS):
        order = torch.randperm(POOL, generator=generator(seed, "split", split))
        held_out = pool.at(order[:HELD_OUT])._replace(sample=torch.arange(HELD_OUT))
        others = pool.at(order[HELD_OUT : HELD_OUT + STEER])
        here = _with(data, others, split, pairs=basis == "pairs")
        weighed = evidence.posterior_from(
            held_out if basis == "pairs" else held_out._replace(given=torch.full((HELD_OUT,), -1)),
            here,
            history,
            10,
        )
        odds = weighed.evidence.odds(history.said(data.train.index), given)
        rate = state(weighed, odds, here, history)
        ordered = odds.sort(descending=True)
        stated = rate.calibration.precision(ordered.values, DEPTHS)
        share = rate.as_json(ordered.values, torch.zeros(len(odds), dtype=torch.bool), None)["share"]
        rows = {"all": {**share, "truth": float(wrong.mean())}}
        for depth, at in zip(DEPTHS, stated):
            rows[str(depth)] = {**at.as_json(), "truth": float(wrong[ordered.indices[:depth]].mean())}
        statements.append(rows)
    return {"set": name, "seed": seed, "basis": basis, "statements": statements}


def _with(data: Any, others: Any, split: int, *, pairs: bool) -> Any:
    """The splits as they would be with these clean samples."""
    from dataclasses import replace

    given = others.given if pairs else None
    clean = replace(data.clean, index=others.sample, label=others.verified, given=given)
    return replace(data, clean=clean, seed=data.seed + split)


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
