"""Label issues from the probabilities of any model: `mslg.find_label_issues`, cleanlab, and plain self-confidence.

    python benchmarks/any_model.py --root DATA     # writes benchmarks/results/any_model.json

Three models of scikit-learn (model_probabilities.py), and all three together, are asked out of sample; 100, 300 or
1,000 random samples are verified, or none. All lists are judged on the samples that are not verified:

    average precision of the ranking                 cleanlab: the best of its three scores
    F1 of the flags                                  cleanlab: the best of its five filters
    labels right once the suggestions are taken      cleanlab: the likeliest class where its filter calls an issue,
    likewise

cleanlab's best is chosen with hindsight, by the row's mean over seeds. Self-confidence flags where the predicted class
is not the given one. Coverage: how many of the 90 % intervals of `find_label_issues` hold the truth, of the number of
wrong labels and of the precision of the first 50, 100, 200, 500 and 1,000 on the list and of the flagged ones.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from model_probabilities import MODELS, SETS, ModelOutput, output_of
from noisy_sets import arguments_of, run_missing

RESULTS = Path(__file__).parent / "results" / "any_model.json"
VERIFIED = [0, 100, 300, 1000]
DEPTHS = [50, 100, 200, 500, 1000]
FILTERS = ["prune_by_noise_rate", "prune_by_class", "both", "confident_learning", "predicted_neq_given"]
SCORES = ["self_confidence", "normalized_margin", "confidence_weighted_entropy"]
ALL = "all three"


def cell(job: tuple[str, int], *, root: str, cache: Path) -> dict[str, Any]:
    """All models and numbers of verified samples on one set."""
    import torch

    torch.set_num_threads(1)
    name, seed = job
    outputs = {model: output_of(name, model, seed, root=Path(root), cache=cache) for model in MODELS}
    rows = []
    for model in [*MODELS, ALL]:
        chosen = list(outputs.values()) if model == ALL else [outputs[model]]
        probs = np.mean([each.probs / each.probs.sum(1, keepdims=True) for each in chosen], 0)
        others = _cleanlab(chosen[0].given, probs)
        for verified in VERIFIED:
            rows.append({"model": model, "verified": verified, **measured(chosen, probs, others, verified, seed)})
    given, true = chosen[0].given, chosen[0].true
    return {"set": name, "seed": seed, "wrong": float((given != true).mean()), "rows": rows}


def measured(outputs: list[ModelOutput], probs: Any, others: Any, verified: int, seed: int) -> dict[str, Any]:
    """All lists for one model, or several together, whose mean the probabilities are."""
    from sklearn.metrics import average_precision_score

    from mslg import find_label_issues

    given, true = outputs[0].given, outputs[0].true
    checked = np.random.default_rng([seed, 7]).permutation(len(given))[:verified]
    known = np.full(len(given), -1)
    known[checked] = true[checked]
    begun = time.perf_counter()
    found = find_label_issues(given, [each.probs for each in outputs], verified=known, classes=_names(probs))
    taken = time.perf_counter() - begun
    rest = known < 0
    wrong = (given != true)[rest]

    def judged(flags: Any, suggested: Any) -> dict[str, float]:
        flags, suggested = flags[rest], suggested[rest]
        return {
            "f1": float(2 * (flags & wrong).sum() / max(1, flags.sum() + wrong.sum())),
            "right": float((suggested == true[rest]).mean()),
        }

    def precision(odds: Any) -> float:
        return float(average_precision_score(wrong, odds[rest]))

    ranked = found.ranked
    ours = np.zeros(len(given))
    ours[rest] = ranked.log_odds.numpy()
    flags, suggested = np.zeros(len(given), dtype=bool), given.copy()
    flags[rest], suggested[rest] = ranked.flagged.numpy(), ranked.suggested.numpy()
    predicted = probs.argmax(1)
    return {
        "mslg": {"ap": precision(ours), **judged(flags, suggested)},
        "cleanlab": {
            "ap": {kind: precision(-quality) for kind, quality in others["scores"].items()},
            "filters": {kind: judged(each, np.where(each, predicted, given)) for kind, each in others["flags"].items()},
        },
        "self-confidence": {
            "ap": precision(-probs[np.arange(len(given)), given]),
            **judged(predicted != given, predicted),
        },
        "intervals": _intervals(found, wrong),
        "seconds": taken,
    }


def _names(probs: Any) -> list[str]:
    return [str(number) for number in range(probs.shape[1])]


def _cleanlab(given: Any, probs: Any) -> dict[str, dict[str, Any]]:
    """Its scores and its flags, which know nothing of verified samples."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    return {
        "flags": {kind: find_label_issues(given, probs, filter_by=kind, n_jobs=1) for kind in FILTERS},
        "scores": {kind: get_label_quality_scores(given, probs, method=kind) for kind in SCORES},
    }


def _intervals(found: Any, wrong: Any) -> dict[str, dict[str, float]]:
    """Of each stated quantity: estimate, low, high, and the truth."""
    calibration, ranked = found.ranked.error_rate.calibration, found.ranked
    if calibration is None:
        return {}
    order = ranked.order.long()
    stated = {"count": (calibration.wrong_share(len(wrong)), float(wrong.mean()))}
    depths = [depth for depth in DEPTHS if depth <= len(wrong)]
    for depth, interval in zip(depths, calibration.precision(ranked.log_odds[order], depths), strict=True):
        stated[str(depth)] = interval, float(wrong[order[:depth].numpy()].mean())
    flagged = order[ranked.flagged[order]]
    if len(flagged):
        interval = calibration.precision(ranked.log_odds[flagged], [len(flagged)])[0]
        stated["flagged"] = interval, float(wrong[flagged.numpy()].mean())
    return {key: {**interval.as_json(), "truth": truth} for key, (interval, truth) in stated.items()}


def main() -> None:
    options = arguments_of(__doc__, sets=SETS, seeds=[0, 1, 2, 3], output=RESULTS)
    options.set_defaults(cache=Path("runs/any_model"), processes=1)
    cells = run_missing(cell, options.parse_args())
    print(f"{len(cells)} cells; python benchmarks/results_pages.py makes the page")


if __name__ == "__main__":
    main()
