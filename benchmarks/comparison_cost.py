"""What the comparison with the controls costs, in the run that it follows, and whether its race changes the verdict:
processor time of `mslg.fit` without it, with it, and with controls that are trained for as long as the run.

    OMP_NUM_THREADS=1 python benchmarks/comparison_cost.py        # writes benchmarks/results/comparison_cost.json

Feature vectors and digits with 40 % of the labels replaced at random, as in whole_run.py, and small made-up images;
1,000 or 700 verified samples, so that some are held out, and a test set, on which the verdict rests: with few samples
it would depend on chance. One thread, one process, the three ways in turn.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from whole_run import Problem, digits, features, network

RESULT = Path(__file__).parent / "results" / "comparison_cost.json"


def images() -> Problem:
    """9,000 pictures of ten classes, 1,000 of them verified."""
    import numpy as np

    random = np.random.default_rng(0)
    true = random.integers(10, size=9000)
    centre = 0.4 * random.normal(size=(10, 3, 16, 16))
    inputs = (centre[true] + random.normal(size=(9000, 3, 16, 16))).astype("f4")
    given = np.where(random.random(9000) < 0.4, random.integers(10, size=9000), true)
    return Problem(inputs[1000:], given[1000:], true[1000:], inputs[:1000], true[:1000], 128, 12)


def more_verified(problem: Problem, count: int) -> Problem:
    """The same with more samples verified, out of the noisy ones."""
    import numpy as np

    extra = count - len(problem.clean_label)
    return problem._replace(
        inputs=problem.inputs[extra:],
        given=problem.given[extra:],
        true=problem.true[extra:],
        clean_inputs=np.concatenate([problem.clean_inputs, problem.inputs[:extra]]),
        clean_label=np.concatenate([problem.clean_label, problem.true[:extra]]),
    )


def as_true(problem: Problem) -> Problem:
    """Without noise: no method can help there."""
    return problem._replace(given=problem.true)


def cnn() -> Any:
    from mslg.networks.cnn import CNN8

    return CNN8(10, width=8)


# By name: the samples, how many of them are for testing, and the network.
PROBLEMS: dict[str, tuple[Callable[[], Problem], int, Callable[[], Any]]] = {
    "20,000 feature vectors, 15 epochs": (partial(features, 24_000, epochs=15), 4000, partial(network, 256)),
    "the same with right labels": (lambda: as_true(features(24_000, epochs=15)), 4000, partial(network, 256)),
    "700 digits, 30 epochs": (lambda: more_verified(digits(), 700), 397, partial(network, 64)),
    "4,000 images, 8-layer CNN of width 8, 12 epochs": (images, 4000, cnn),
}


def run(
    problem: Problem, testing: int, make: Callable[[], Any], seed: int, preset: str | None, **settings: Any
) -> tuple[float, str]:
    """Seconds, and the verdict."""
    import mslg

    begun = time.process_time()
    result = mslg.fit(
        make,
        (problem.inputs[testing:], problem.given[testing:]),
        (problem.clean_inputs, problem.clean_label),
        test=(problem.inputs[:testing], problem.true[:testing]),
        epochs=problem.epochs,
        batch_size=problem.batch,
        progress=False,
        seed=seed,
        preset=preset,
        **settings,
    )
    return time.process_time() - begun, result.summary.get("comparison", {}).get("short", "")


def measured(rounds: int, names: Iterable[str]) -> dict[str, Any]:
    """By problem and preset: the cost of the comparison in runs, short and of full length, and the verdicts."""
    from mslg.runs.controls import comparison

    found = {}
    for name in names:
        make_problem, testing, make = PROBLEMS[name]
        problem = make_problem()
        for preset in (None, "fast"):
            taken: dict[str, list[float]] = {"run": [], "race": [], "long": []}
            verdicts: dict[str, list[str]] = {"race": [], "long": []}
            for seed in range(rounds):
                taken["run"].append(run(problem, testing, make, seed, preset, compare=False)[0])
                for kind, few in (("race", comparison.FEW_EPOCHS), ("long", problem.epochs)):
                    kept, comparison.FEW_EPOCHS = comparison.FEW_EPOCHS, few
                    seconds, verdict = run(problem, testing, make, seed, preset, compare=True)
                    comparison.FEW_EPOCHS = kept
                    taken[kind].append(seconds)
                    verdicts[kind].append(verdict)
            alone = statistics.median(taken["run"])
            found[f"{name}, {preset or 'default'}"] = {
                "seconds of the run": round(alone, 2),
                "comparison, in runs": round(statistics.median(taken["race"]) / alone - 1, 2),
                "controls of the run's length": round(statistics.median(taken["long"]) / alone - 1, 2),
                "same verdicts": sum(a[:11] == b[:11] for a, b in zip(verdicts["race"], verdicts["long"], strict=True)),
                "verdicts": verdicts,
            }
            print(name, preset or "default", found[f"{name}, {preset or 'default'}"], flush=True)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3, help="seeds")
    options.add_argument("--only", nargs="+", choices=PROBLEMS, help="problems to measure again (default: all)")
    options.add_argument("--output", type=Path, default=RESULT)
    arguments = options.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("mslg").setLevel(logging.ERROR)
    kept = json.loads(arguments.output.read_text())["problems"] if arguments.only and arguments.output.exists() else {}
    found = {"rounds": arguments.rounds, "problems": kept | measured(arguments.rounds, arguments.only or PROBLEMS)}
    arguments.output.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
