"""A whole run against what a user would do instead: processor time from arrays to the list of labels, and the list.

    python benchmarks/whole_run.py --rounds 3        # writes benchmarks/results/whole_run.json
    python benchmarks/whole_run.py --only files --data FOLDER --rounds 1

Made-up feature vectors of 10 classes (`--samples` of them, 256 columns) and the digits of scikit-learn, 40 % of the
labels replaced at random, 1,000 and 200 verified samples. One thread; all rows in one process, interleaved; medians.
Imports are not part of it. Rows:

    bare loop           the training loop of a tutorial, cross entropy, no list
    default, fast       mslg.fit with an output folder: training, the list, labels.parquet; no controls, no page
    cleanlab            five-fold cross-validation of the bare loop, then cleanlab's scores
    MLPClassifier, LogisticRegression
                        of scikit-learn, fitted once: no list

`files` are 20,000 JPEG files (FOLDER/train/<class>/NNNN.jpg, CIFAR-10 as files), 1,000 of them verified, with a frozen
backbone: see `whole_run_files.py`. Every row then includes reading and encoding them.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

RESULT = Path(__file__).parent / "results" / "whole_run.json"
CLASSES = 10
FOLDS = "cleanlab, five folds"


class Problem(NamedTuple):
    """Noisy training samples, verified ones, and how long to train on them."""

    inputs: Any
    given: Any
    true: Any
    clean_inputs: Any
    clean_label: Any
    batch: int
    epochs: int


def features(samples: int, *, epochs: int) -> Problem:
    """Feature vectors around the centres of their classes."""
    import numpy as np

    random = np.random.default_rng(0)
    true = random.integers(CLASSES, size=samples + 1000)
    centre = 0.15 * random.normal(size=(CLASSES, 256))
    return _noisy((centre[true] + random.normal(size=(len(true), 256))).astype("f4"), true, 1000, 256, epochs)


def digits() -> Problem:
    """1,797 images of 8 × 8 pixels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return _noisy((data.data / 16).astype("f4"), data.target, 200, 64, 30)


def _noisy(inputs: Any, true: Any, clean: int, batch: int, epochs: int) -> Problem:
    import numpy as np

    random = np.random.default_rng(1)
    drawn = random.integers(CLASSES, size=len(true))
    given = np.where(random.random(len(true)) < 0.4, drawn, true)
    return Problem(inputs[clean:], given[clean:], true[clean:], inputs[:clean], true[:clean], batch, epochs)


def network(columns: int) -> Any:
    """What both a user's loop and `mslg.fit` train."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(columns, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, CLASSES)
    )


def bare_loop(problem: Problem, rows: Any = None) -> Any:
    """A network trained on these rows, by default on all."""
    import torch
    from torch import nn

    inputs, given = torch.from_numpy(problem.inputs), torch.from_numpy(problem.given)
    if rows is not None:
        inputs, given = inputs[rows], given[rows]
    model = network(inputs.shape[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, problem.epochs)
    for _ in range(problem.epochs):
        for index in torch.randperm(len(inputs)).split(problem.batch):
            if len(index) > 1:
                loss = nn.functional.cross_entropy(model(inputs[index]), given[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        scheduler.step()
    return model.eval()


def cleanlab(problem: Problem) -> Any:
    """Label quality by cleanlab, from five folds."""
    import numpy as np
    import torch
    from cleanlab.rank import get_label_quality_scores
    from sklearn.model_selection import StratifiedKFold

    probs = np.zeros((len(problem.given), CLASSES))
    for others, own in StratifiedKFold(5, shuffle=True, random_state=0).split(problem.inputs, problem.given):
        model = bare_loop(problem, others)
        with torch.no_grad():
            probs[own] = model(torch.from_numpy(problem.inputs[own])).softmax(1).numpy()
    return get_label_quality_scores(problem.given, probs)


def fitted(problem: Problem, **settings: Any) -> Any:
    """Label quality by `mslg.fit`."""
    import mslg

    with tempfile.TemporaryDirectory() as folder:
        result = mslg.fit(
            partial(network, problem.inputs.shape[1]),
            (problem.inputs, problem.given),
            (problem.clean_inputs, problem.clean_label),
            epochs=problem.epochs,
            batch_size=problem.batch,
            progress=False,
            output=Path(folder) / "run",
            **settings,
        )
        return result.labels["label_quality"].to_numpy()


def of_scikit_learn(problem: Problem, name: str) -> None:
    """A classifier of scikit-learn, fitted on the given labels."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    made = {
        "MLPClassifier": lambda: MLPClassifier((256,), batch_size=problem.batch, max_iter=problem.epochs),
        "LogisticRegression": lambda: LogisticRegression(max_iter=100),
    }[name]()
    made.fit(problem.inputs, problem.given)


ROWS: dict[str, Callable[[Problem], Any]] = {
    "bare loop": lambda problem: bare_loop(problem) and None,
    "fast": partial(fitted, preset="fast"),
    "default": fitted,
    FOLDS: cleanlab,
    "MLPClassifier": partial(of_scikit_learn, name="MLPClassifier"),
    "LogisticRegression": partial(of_scikit_learn, name="LogisticRegression"),
}


def measured(problem: Problem, rounds: int) -> dict[str, dict[str, float]]:
    """By row: seconds of processor time, the same in bare loops, and the list's average precision in percent."""
    import torch
    from sklearn.metrics import average_precision_score

    wrong = problem.given != problem.true
    taken: dict[str, list[float]] = {row: [] for row in ROWS}
    found: dict[str, list[float]] = {row: [] for row in ROWS}
    bare_loop(problem._replace(epochs=1))  # whatever happens only once
    for number in range(rounds):
        for row, act in ROWS.items():
            torch.manual_seed(number)
            begun = time.process_time()
            quality = act(problem)
            taken[row].append(time.process_time() - begun)
            if quality is not None:
                found[row].append(float(average_precision_score(wrong, -quality)))
            print(row, round(taken[row][-1], 2), [round(100 * each, 1) for each in found[row]], flush=True)
    bare = statistics.median(taken["bare loop"])
    return {
        row: {
            "seconds": round(statistics.median(seconds), 2),
            "bare loops": round(statistics.median(seconds) / bare, 2),
            **({"average precision": round(100 * statistics.median(found[row]), 1)} if found[row] else {}),
        }
        for row, seconds in taken.items()
    }


def files(data: Path, samples: int, *, verified: int, epochs: int, rounds: int) -> dict[str, Any]:
    """The rows on image files, each from the files to the list."""
    import numpy as np

    from whole_run_files import OURS, make_photos
    from whole_run_files import measured as measured_on_files

    with tempfile.TemporaryDirectory() as work:
        photos = make_photos(data, Path(work), samples=samples, verified=verified, epochs=epochs)
        empty = np.zeros((0, 1), "f4")
        others = {
            row: lambda inputs, act=act: act(
                Problem(inputs, photos.given, photos.true, empty, photos.true[:0], photos.batch, photos.epochs)
            )
            for row, act in ROWS.items()
            if row not in OURS
        }
        about = {"rounds": rounds, "samples": len(photos.given), "verified": verified, "epochs": epochs}
        return {**about, "rows": measured_on_files(photos, rounds, others)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--samples", type=int, default=49_000, help="feature vectors")
    options.add_argument("--epochs", type=int, default=6, help="on these")
    options.add_argument("--only", choices=("features", "digits", "files"))
    options.add_argument("--data", type=Path, help="the folder of `files`, which are left out without it")
    options.add_argument("--files", type=int, default=20_000, help="how many of them")
    options.add_argument("--output", type=Path, default=RESULT)
    arguments = options.parse_args()
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("mslg").setLevel(logging.ERROR)
    problems = {
        "features": lambda: features(arguments.samples, epochs=arguments.epochs),
        "digits": digits,
    }
    kept = json.loads(arguments.output.read_text(encoding="utf-8")) if arguments.output.exists() else {}
    for name, make in problems.items():
        if arguments.only in (None, name):
            problem = make()
            about = {"rounds": arguments.rounds, "samples": len(problem.given), "epochs": problem.epochs}
            kept[name] = {**about, "rows": measured(problem, arguments.rounds)}
            arguments.output.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    if arguments.data is not None and arguments.only in (None, "files"):
        kept["files"] = files(arguments.data, arguments.files, verified=1000, epochs=12, rounds=arguments.rounds)
        arguments.output.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
