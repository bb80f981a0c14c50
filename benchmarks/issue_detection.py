"""Which list finds wrong labels best? Ours, cleanlab's, and the plain network's loss.

    python benchmarks/issue_detection.py --root DATA           # writes benchmarks/results/issue_detection.json
    python benchmarks/issue_detection.py --root DATA --again   # ours once more, beside the others as they are

All three may use the same 1,000 clean samples (digits: 200). Ours: the issue list of a run of the default method.
cleanlab: `find_label_issues` with probabilities of five networks, each trained on four fifths of the noisy samples and
on the clean ones and asked about the last fifth; the issues it finds come first in its order, the others follow by its
label quality scores. Loss: one network trained on noisy and clean samples together, its loss on each given label.

Measured on the training samples, whose true labels no method sees: average precision of the list, precision at the
true number of wrong labels, and how many labels are right once each list's suggestions are taken.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from noisy_sets import arguments_of, run, run_missing, settings

RESULTS = Path(__file__).parent / "results" / "issue_detection.json"
SETS = [
    "features uniform 0.2",
    "features uniform 0.4",
    "features pair 0.4",
    "features feature-dependent 0.4",
    "digits uniform 0.4",
    "digits pair 0.4",
]
FOLDS = 5
OURS = "default"


def measured(odds: Any, suggested: Any, given: Any, true: Any) -> dict[str, float]:
    """Of a list: higher odds come first."""
    from sklearn.metrics import average_precision_score

    wrong = given != true
    first = np.argsort(-odds, kind="stable")[: int(wrong.sum())]
    return {
        "average_precision": float(average_precision_score(wrong, odds)),
        "precision_at_errors": float(wrong[first].mean()),
        "suggested_accuracy": float((suggested == true).mean()),
    }


def cell(job: tuple[str, int], *, root: str, cache: Path, others: dict[str, Any] | None = None) -> dict[str, Any]:
    """All lists on one noisy set; ours alone, if there are `others` already."""
    import torch

    from mslg.data.samples import Samples
    from mslg.fitting.fit import fit
    from mslg.runs.run_data import open_run_data
    from mslg.runs.settings import DEFAULT_METHOD, Settings

    name, seed = job
    clean_samples = 200 if name.startswith("digits") else 1000
    recipe = settings(name, seed, root=root, cache=cache, clean=clean_samples, method=DEFAULT_METHOD)
    opened = None if others is not None else open_run_data(Settings.of(recipe))[1]
    taken: dict[str, float] = {}
    begun = time.perf_counter()
    result = run(recipe)
    taken[OURS] = time.perf_counter() - begun
    data = result.outcome.data
    source = data.source
    index = data.train.index
    given, true = source.label[index].numpy(), source.true_label[index].numpy()
    classes = {word: place for place, word in enumerate(source.classes)}
    labels = result.labels
    ours = np.array([classes[word] for word in labels["suggested_label"]])
    rows = {OURS: measured(-labels["rank"].to_numpy().astype(float), ours, given, true)}
    if others is not None:
        return {**others, "lists": {**others["lists"], **rows}, "seconds": {**others["seconds"], **taken}}
    assert opened is not None

    options = {**recipe["train"], "progress": False}
    begun = time.perf_counter()
    plain = fit(opened.network, source, opened.clean, method="noisy-plus-clean", **options)
    probs = _said(plain.method, data, Samples(source.store, index, source.label[index]))
    taken["loss"] = time.perf_counter() - begun
    rows["loss"] = measured(-np.log(probs[np.arange(len(given)), given] + 1e-12), probs.argmax(1), given, true)

    begun = time.perf_counter()
    parts = [part for part in (data.clean, data.select, data.report) if part is not None]
    clean = torch.cat([part.index for part in parts])
    verified = source.at(clean).with_label(source.verified_label[clean])
    fold = np.random.default_rng(seed).permutation(len(index)) % FOLDS
    probs = np.zeros((len(index), len(classes)))
    for part in range(FOLDS):
        rest = source.at(torch.cat([index[torch.from_numpy(fold != part)], clean]).sort().values)
        learned = fit(opened.network, rest, verified, method="noisy-plus-clean", **options)
        out = index[torch.from_numpy(fold == part)]
        probs[fold == part] = _said(learned.method, data, Samples(source.store, out, source.label[out]))
    rows["cleanlab"] = _cleanlab(given, probs, true)
    taken["cleanlab"] = time.perf_counter() - begun
    return {"set": name, "seed": seed, "wrong": float((given != true).mean()), "lists": rows, "seconds": taken}


def _said(method: Any, data: Any, samples: Any) -> Any:
    from mslg.training.evaluation import predictions

    method.eval()
    return predictions(method, data, samples).exp().double().numpy()


def _cleanlab(given: Any, probs: Any, true: Any) -> dict[str, float]:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    probs = probs / probs.sum(1, keepdims=True)
    found = find_label_issues(given, probs, return_indices_ranked_by="self_confidence", n_jobs=1)
    quality = get_label_quality_scores(given, probs)
    odds = -quality - 2.0  # those that it does not call issues come after all that it does
    odds[found] = np.linspace(2.0, 1.0, len(found))
    suggested = given.copy()
    suggested[found] = probs[found].argmax(1)
    return measured(odds, suggested, given, true)


def main() -> None:
    options = arguments_of(__doc__, sets=SETS, seeds=[10, 11, 12, 13], output=RESULTS)
    options.add_argument("--again", action="store_true", help="only our lists, which the method makes")
    arguments = options.parse_args()
    if arguments.again:
        again(arguments)
    print(table(run_missing(cell, arguments)))


def again(arguments: Any) -> None:
    """Make our list of every cell once more; methods of the others have not changed."""
    kept = json.loads(arguments.output.read_text())
    arguments.cache.mkdir(parents=True, exist_ok=True)
    for number, before in enumerate(kept["cells"]):
        if before["set"] in arguments.sets and before["seed"] in arguments.seeds:
            job = before["set"], before["seed"]
            kept["cells"][number] = cell(job, root=arguments.root, cache=arguments.cache, others=before)
            arguments.output.write_text(json.dumps(kept, indent=1) + "\n")


def table(cells: list[dict[str, Any]]) -> str:
    """Means over seeds, as Markdown."""
    lines = ["| set | list | average precision | precision at the number of errors | labels right after |"]
    lines.append("|---|---|---:|---:|---:|")
    for name in dict.fromkeys(each["set"] for each in cells):
        here = [each for each in cells if each["set"] == name]
        for method in (OURS, "cleanlab", "loss"):
            keys = ("average_precision", "precision_at_errors", "suggested_accuracy")
            means = [statistics.mean(each["lists"][method][key] for each in here) for key in keys]
            lines.append(f"| {name} | {method} | " + " | ".join(f"{100 * mean:.1f}" for mean in means) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
