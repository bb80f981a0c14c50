"""A practitioner's folder of photos, by defaults only, against cleanlab on the same features.

    python benchmarks/practitioner.py --data FOLDER --work WORK [--seeds 0 1 2] [--samples 6000] [--minutes 25]

FOLDER holds train/<class>/NNNN.jpg (CIFAR-10 as JPEG files, numbered within their class in the original
order), cifar10_train_labels.npy and cifar10_human_aggregate.npy. For each noise a folder of photos is made, sorted into
the classes that the noise gave them, and `mslg fit` runs on it as a newcomer would: no option but --clean. cleanlab
gets the same frozen features: logistic regression with C chosen by cross-validation, out-of-sample probabilities, and
its defaults; both are judged on the samples that are not verified. Every cell is a line of
benchmarks/results/practitioner.jsonl, or of --ledger; cells that are there are not run again. Settings were chosen on
seeds from 100 on, which draw other photos.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score

LEDGER = Path(__file__).parent / "results" / "practitioner.jsonl"
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
PAIRS = {0: 2, 2: 0, 1: 9, 9: 1, 3: 5, 5: 3, 4: 7, 7: 4, 6: 3, 8: 0}
NOISES = ("human", "human-40", "pairs-40", "features-40")
DEPTHS = (50, 200, 500, 1000)  # of which the stated precision is judged
# The most telling ones first: a run may be cut short.
CLEAN = (
    ("none", 0),
    ("both", 300),
    ("both", 20),
    ("separate", 100),
    ("both", 100),
    ("separate", 300),
    ("separate", 20),
)


def files(data: Path, labels: np.ndarray) -> list[Path]:
    """The training images in the original order."""
    seen, found = [0] * len(CLASSES), []
    for label in labels:
        found.append(data / "train" / CLASSES[label] / f"{seen[label]:04d}.jpg")
        seen[label] += 1
    return found


def noisy_labels(
    noise: str, true: np.ndarray, human: np.ndarray, features: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """The labels that the photos are sorted by."""
    given = true.copy()
    if noise == "human":
        return human.copy()
    if noise == "human-40":  # people's own confusions, at 40 %
        counts = np.array([[np.sum((true == row) & (human == column)) for column in range(10)] for row in range(10)])
        np.fill_diagonal(counts, 0)
        share = counts / counts.sum(1, keepdims=True)
        for place in np.flatnonzero(random.random(len(true)) < 0.4):
            given[place] = random.choice(10, p=share[true[place]])
        return given
    if noise == "pairs-40":
        changed = random.random(len(true)) < 0.4
        given[changed] = [PAIRS[label] for label in true[changed]]
        return given
    # The samples nearest to another class's mean get that class's label.
    means = np.stack([features[true == label].mean(0) for label in range(10)])
    distance = ((features[:, None] - means[None]) ** 2).sum(2)
    own = distance[np.arange(len(true)), true].copy()
    distance[np.arange(len(true)), true] = np.inf
    margin = distance.min(1) - own
    worst = np.argsort(margin)[: round(0.4 * len(true))]
    given[worst] = distance.argmin(1)[worst]
    return given


def make_folders(
    work: Path, images: list[Path], given: np.ndarray, true: np.ndarray, clean: np.ndarray, both: bool
) -> Path | None:
    """photos/<given class>/ and verified/<true class>/; with `both`, verified photos are copies of training ones."""
    shutil.rmtree(work, ignore_errors=True)
    is_clean = np.isin(np.arange(len(images)), clean)
    for name in CLASSES:
        for top in ("photos", "verified"):
            (work / top / name).mkdir(parents=True)
    for place, image in enumerate(images):
        if both or not is_clean[place]:
            os.link(image, work / "photos" / CLASSES[given[place]] / f"{place:05d}.jpg")
        if is_clean[place]:
            os.link(image, work / "verified" / CLASSES[true[place]] / f"checked-{place:05d}.jpg")
    return work / "verified" if len(clean) else None


def scores(
    rank: np.ndarray, flagged: np.ndarray, suggested: np.ndarray, given: np.ndarray, true: np.ndarray
) -> dict[str, Any]:
    """What the list is worth; rank 0 is the worst label."""
    wrong = given != true
    found = int((wrong & flagged).sum())
    return {
        "wrong": int(wrong.sum()),
        "average_precision": float(average_precision_score(wrong, -rank)),
        "precision_at_200": float(wrong[rank < 200].mean()),
        "flagged": int(flagged.sum()),
        "precision": found / max(1, int(flagged.sum())),
        "recall": found / max(1, int(wrong.sum())),
        "right_before": float((~wrong).mean()),
        "right_after": float((np.where(flagged, suggested, given) == true).mean()),
    }


def run_mslg(work: Path, verified: Path | None, true: np.ndarray) -> dict[str, Any]:
    """`mslg fit` with its defaults, without the comparison, which does not change the list."""
    from mslg.fitting.fit import fit_settings

    begun = time.perf_counter()
    clean = "auto" if verified is None else str(verified)
    out = work / "run"
    result = fit_settings(
        {"data": {"source": str(work / "photos"), "clean": clean}}, output=out, progress=False, compare=False
    )
    seconds = time.perf_counter() - begun
    labels = pd.read_parquet(out / "labels.parquet")
    place = labels["id"].str.extract(r"(\d{5})\.jpg")[0].astype(int).to_numpy()
    number = {name: at for at, name in enumerate(CLASSES)}
    given, suggested = (labels[f"{kind}_label"].map(number).to_numpy() for kind in ("given", "suggested"))
    found = scores(labels["rank"].to_numpy(), labels["is_label_issue"].to_numpy(), suggested, given, true[place])
    stated = result.summary["label_errors"]
    if stated.get("basis") == "pairs" and "count" in stated:
        count = stated["count"]
        found["stated"] = [count["low"], count["estimate"], count["high"]]
        found["covered"] = bool(count["low"] <= found["wrong"] <= count["high"])
        wrong = (given != true[place])[np.argsort(labels["rank"].to_numpy())]
        found["precision_stated"] = [  # of the first N: low, high, and the truth
            [
                each["depth"],
                round(each["low"], 4),
                round(each["high"], 4),
                round(float(wrong[: each["depth"]].mean()), 4),
            ]
            for each in stated["precision"]
            if each["depth"] in DEPTHS
        ]
    return {**found, "seconds": seconds, "places": place}


def cleanlab_list(features: np.ndarray, given: np.ndarray) -> dict[str, Any]:
    """Logistic regression with cross-validated C on standardised features, cleanlab's defaults."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    begun = time.perf_counter()
    rows = StandardScaler().fit_transform(features)
    chosen = LogisticRegressionCV(Cs=[1e-4, 1e-3, 1e-2, 1e-1], cv=3, max_iter=100).fit(rows, given).C_[0]
    model = make_pipeline(StandardScaler(), LogisticRegression(C=chosen, max_iter=200))
    probs = cross_val_predict(model, features, given, cv=5, method="predict_proba")
    flagged = find_label_issues(given, probs)
    quality = get_label_quality_scores(given, probs)
    seconds = time.perf_counter() - begun
    return {"quality": quality, "flagged": flagged, "class": probs.argmax(1), "seconds": seconds, "C": float(chosen)}


def judged_cleanlab(found: dict[str, Any], given: np.ndarray, true: np.ndarray, places: np.ndarray) -> dict[str, Any]:
    """cleanlab's list of the samples at these places."""
    rank = np.argsort(np.argsort(found["quality"][places], kind="stable"), kind="stable")
    own = scores(rank, found["flagged"][places], found["class"][places], given[places], true[places])
    return {**own, "seconds": found["seconds"], "C": found["C"]}


def features_of(images: list[Path], work: Path) -> np.ndarray:
    """The default's own features, from its cache."""
    from mslg.data.open import open_named
    from mslg.networks.features import backbone, extract, preparation

    shutil.rmtree(work / "all", ignore_errors=True)
    (work / "all" / "a").mkdir(parents=True)
    (work / "all" / "b").mkdir()
    for place, image in enumerate(images):
        os.link(image, work / "all" / ("b" if place % 2 else "a") / f"{place:05d}.jpg")
    source = open_named(str(work / "all")).train
    name = "packaged:efficientnet-lite0"
    prepare = preparation(name, source)
    found = extract(source, backbone(name, source, prepare=prepare), prepare=prepare, name=name)
    order = np.argsort([int(key[2:7]) for key in source.ids])
    return np.asarray(found.store.tensors)[order]


def run_cell(
    work: Path, images: list[Path], given: np.ndarray, true: np.ndarray, clean: np.ndarray, layout: str
) -> dict[str, Any]:
    verified = make_folders(work, images, given, true, clean, both=layout == "both")
    return run_mslg(work, verified, true)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--samples", type=int, default=6000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, default=25)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MSLG_CACHE", str(options.work / "cache"))
    lines = options.ledger.read_text().splitlines() if options.ledger.exists() else []
    done = {json.loads(line)["cell"] for line in lines}
    labels = np.load(options.data / "cifar10_train_labels.npy").astype(np.int64)
    human = np.load(options.data / "cifar10_human_aggregate.npy").astype(np.int64)
    images = files(options.data, labels)
    begun = time.monotonic()
    for seed in options.seeds:
        chosen = np.random.default_rng(seed).permutation(len(labels))[: options.samples]
        mine, true = [images[place] for place in chosen], labels[chosen]
        drawn = np.random.default_rng([seed, 2]).permutation(len(true))
        features, lists = None, {}
        for (layout, count), noise in itertools.product(CLEAN, NOISES):
            cell = f"{noise}/{layout}/{count}/{seed}"
            if cell in done:
                continue
            if time.monotonic() - begun > 60 * options.minutes:
                print("the time is used up; run again to continue")
                return
            if features is None:
                start = time.perf_counter()
                features = features_of(mine, options.work)
                print(f"features of seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)
            given = noisy_labels(noise, true, human[chosen], features, np.random.default_rng([seed, 1]))
            if noise not in lists:
                lists[noise] = cleanlab_list(features, given)
            found = run_cell(options.work / "cell", mine, given, true, drawn[:count], layout)
            other = judged_cleanlab(lists[noise], given, true, np.sort(found.pop("places")))
            with options.ledger.open("a") as file:
                file.write(json.dumps({"cell": cell, **found, "cleanlab": other}) + "\n")
            print(cell, *(f"{each['average_precision']:.3f}" for each in (found, other)), flush=True)
    for name in ("all", "cell"):
        shutil.rmtree(options.work / name, ignore_errors=True)


if __name__ == "__main__":
    main()
