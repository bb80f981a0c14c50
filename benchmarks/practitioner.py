"""A practitioner's folder of photos, by defaults only, against cleanlab on the same features.

    python benchmarks/practitioner.py --data FOLDER --work WORK [--seeds 1] [--samples 6000] [--minutes 25]

FOLDER holds train/<class>/NNNN.jpg (CIFAR-10 as JPEG files, numbered within their class in the original
order), cifar10_train_labels.npy and cifar10_human_aggregate.npy. For each noise a folder of photos is made, sorted into
the classes that the noise gave them, and `mslg fit` runs on it as a newcomer would: no option but --clean. cleanlab
gets the same frozen features: logistic regression with C chosen by cross-validation, out-of-sample probabilities, and
its defaults. Every cell is a line of WORK/practitioner.jsonl; cells that are there are not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
PAIRS = {0: 2, 2: 0, 1: 9, 9: 1, 3: 5, 5: 3, 4: 7, 7: 4, 6: 3, 8: 0}
NOISES = ("human", "human-40", "pairs-40", "features-40")
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
    return {**found, "seconds": seconds, "places": place.tolist()}


def run_cleanlab(features: np.ndarray, given: np.ndarray, true: np.ndarray) -> dict[str, Any]:
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
    rank = np.argsort(np.argsort(quality, kind="stable"), kind="stable")
    found = scores(rank, flagged, probs.argmax(1), given, true)
    return {**found, "seconds": time.perf_counter() - begun, "C": float(chosen)}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=6000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=25)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MSLG_CACHE", str(options.work / "cache"))
    ledger = options.work / "practitioner.jsonl"
    done = {json.loads(line)["cell"] for line in ledger.read_text().splitlines()} if ledger.exists() else set()
    labels = np.load(options.data / "cifar10_train_labels.npy").astype(np.int64)
    human = np.load(options.data / "cifar10_human_aggregate.npy").astype(np.int64)
    images = files(options.data, labels)
    begun = time.monotonic()
    for seed in range(options.seeds):
        random = np.random.default_rng(seed)
        chosen = random.permutation(len(labels))[: options.samples]
        mine, true = [images[place] for place in chosen], labels[chosen]
        start = time.perf_counter()
        features = features_of(mine, options.work)
        print(f"features of seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)
        drawn = np.random.default_rng([seed, 2]).permutation(len(true))
        for layout, count in (("cleanlab", 0), *CLEAN):
            for noise in NOISES:
                given = noisy_labels(noise, true, human[chosen], features, np.random.default_rng([seed, 1]))
                cell = f"{noise}/{layout}/{count}/{seed}"
                if cell in done:
                    continue
                if time.monotonic() - begun > 60 * options.minutes:
                    print("the time is used up; run again to continue")
                    return
                if layout == "cleanlab":
                    found = run_cleanlab(features, given, true)
                else:
                    verified = make_folders(
                        options.work / "cell", mine, given, true, drawn[:count], both=layout == "both"
                    )
                    found = run_mslg(options.work / "cell", verified, true)
                    place = np.array(found.pop("places"))
                    if count:  # cleanlab on the same training samples, for the same rows of the list
                        found["training"] = len(place)
                with ledger.open("a") as file:
                    file.write(json.dumps({"cell": cell, **found}) + "\n")
                print(
                    cell,
                    {key: round(value, 3) if isinstance(value, float) else value for key, value in found.items()},
                    flush=True,
                )
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(options.work / "all")


if __name__ == "__main__":
    main()
