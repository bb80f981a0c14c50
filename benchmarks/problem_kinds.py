"""Planted problems of three kinds: how many are found, and how many of those found were planted.

    python benchmarks/problem_kinds.py --root DATA     # writes benchmarks/results/problem_kinds.json

    digits     1,797 images of 8 × 8 pixels, pixels as features. Strangers: patches of two photographs. Duplicates:
               copies with a little noise. Mixtures: means of two digits of different classes.
    cifar      8,000 images as frozen features. Strangers: features whose coordinates are drawn from different images.
               Duplicates and mixtures of features likewise.
    trec       questions as TF-IDF vectors, reduced to 100 dimensions. Strangers: words drawn at random. Duplicates: one
               word left out. Mixtures: halves of two questions of different classes.

Of each kind 3 % as many as there are samples are added; a fifth of the given labels is wrong; probabilities are those
of logistic regression, out of sample; 300 samples are verified, none of them planted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisy_sets import arguments_of, run_missing
from robustness_sets import LOADERS, corrupted

RESULTS = Path(__file__).parent / "results" / "problem_kinds.json"
SETS = ["digits", "cifar", "trec"]
KINDS = ["no class", "near duplicate", "ambiguous"]
PART, VERIFIED, SAMPLES = 0.03, 300, 8_000

Array = npt.NDArray[Any]


def patches(count: int, random: np.random.Generator) -> Array:
    """8 × 8 pixels of scikit-learn's photographs, grey, as bright as digits are."""
    from sklearn.datasets import load_sample_images

    images = [image.mean(2) / 16 for image in load_sample_images().images]
    found = []
    for _ in range(count):
        image = images[random.integers(len(images))]
        top, left = (random.integers(0, size - 32) for size in image.shape)
        found.append(image[top : top + 32, left : left + 32].reshape(8, 4, 8, 4).mean((1, 3)).ravel() / 16)
    return np.array(found, dtype=np.float32)


def texts(root: Path, seed: int, random: np.random.Generator) -> tuple[Array, Array, dict[str, Array]]:
    """Questions with planted ones, as vectors."""
    import pandas as pd
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    rows = pd.read_csv(root / "trec_rules.csv")
    rows = rows[rows.split == "train"].sample(frac=1, random_state=seed)
    words, true = [text.split() for text in rows.text], rows.true_label.astype("category").cat.codes.to_numpy()
    number = int(PART * len(words))
    all_words = np.array([word for text in words for word in text], dtype=object)
    other = {each: np.flatnonzero(true != each) for each in np.unique(true)}
    some = random.permutation(len(words))
    drop = [random.integers(len(words[place])) for place in some[:number]]
    made: dict[str, list[str]] = {
        "no class": [" ".join(random.choice(np.unique(all_words), 10)) for _ in range(number)],
        "near duplicate": [
            " ".join(words[place][:at] + words[place][at + 1 :]) for place, at in zip(some, drop, strict=False)
        ],
        "ambiguous": [
            " ".join(words[place] + words[random.choice(other[true[place]])]) for place in some[-number:].tolist()
        ],
    }
    vectors = TfidfVectorizer(sublinear_tf=True).fit(rows.text)
    reduce = TruncatedSVD(100, random_state=0).fit(vectors.transform(rows.text))

    def encoded(found: Any) -> Array:
        result: Array = reduce.transform(vectors.transform(found)).astype(np.float32)
        return result

    planted = {kind: encoded(found) for kind, found in made.items()}
    return encoded(rows.text), true.astype(np.int64), {**planted, "source": some[:number], "mixed": some[-number:]}


def vectors(name: str, root: Path, seed: int, random: np.random.Generator) -> tuple[Array, Array, dict[str, Array]]:
    """Samples, their classes, and planted ones with the positions of the samples they were made from."""
    if name == "trec":
        return texts(root, seed, random)
    if name == "digits":
        from sklearn.datasets import load_digits

        data = load_digits()
        inputs, true = (data.data / 16).astype(np.float32), data.target.astype(np.int64)
    else:
        inputs, true, *_ = LOADERS["cifar"](root)
        some = random.permutation(len(true))[:SAMPLES]
        inputs, true = inputs[some], true[some]
    number, spread = int(PART * len(true)), inputs.std(0)
    source, mixed = random.permutation(len(true))[: 2 * number].reshape(2, number)
    partner = np.array([random.choice(np.flatnonzero(true != true[place])) for place in mixed])
    strangers = (
        patches(number, random)
        if name == "digits"
        else np.stack([column[random.integers(0, len(true), number)] for column in inputs.T], 1)
    )
    noise = 0.05 * spread * random.normal(size=(number, inputs.shape[1]))
    planted = {
        "no class": strangers,
        "near duplicate": (inputs[source] + noise).astype(np.float32),
        "ambiguous": (inputs[mixed] + inputs[partner]) / 2,
        "source": source,
        "mixed": mixed,
    }
    return inputs, true, planted


def cell(job: tuple[str, int], *, root: str, cache: Path) -> dict[str, Any]:
    """One set with planted samples."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    from mslg import find_label_issues

    name, seed = job
    random = np.random.default_rng([seed, 3])
    inputs, true, planted = vectors(name, Path(root), seed, random)
    given = corrupted(inputs, true, "uniform", 0.2, seed)
    number, classes = len(planted["source"]), int(true.max()) + 1
    labels = [given, random.integers(0, classes, number), given[planted["source"]], given[planted["mixed"]]]
    all_given = np.concatenate(labels)
    rows = np.concatenate([inputs, *(planted[kind] for kind in KINDS)])
    kind = np.concatenate(
        [np.full(len(true), "", dtype=object), *(np.full(number, each, dtype=object) for each in KINDS)]
    )
    order = random.permutation(len(rows))
    probs = cross_val_predict(
        LogisticRegression(C=1.0, max_iter=200), rows[order], all_given[order], cv=5, method="predict_proba"
    )
    known = np.full(len(rows), -1)
    checked = random.permutation(len(true))[:VERIFIED]
    known[checked] = true[checked]
    found = find_label_issues(all_given[order], probs, verified=known[order], features=rows[order])
    kinds = found.kinds
    assert kinds is not None
    assert kinds.no_class is not None
    assert kinds.duplicate_of is not None
    place = np.empty(len(order), dtype=int)
    place[order] = np.arange(len(order))
    flags = {"no class": kinds.is_no_class, "near duplicate": kinds.duplicate_of >= 0, "ambiguous": kinds.is_ambiguous}
    truth = {each: (kind == each)[order] for each in KINDS}
    truth["near duplicate"][place[planted["source"]]] = True  # both of a pair are duplicates of each other
    measured: dict[str, dict[str, float] | None] = {}
    for each in KINDS:
        flagged = flags[each]
        if flagged is None:  # found that it cannot be judged
            measured[each] = None
            continue
        hit = flagged & truth[each]
        measured[each] = {
            "planted": int(truth[each].sum()),
            "flagged": int(flagged.sum()),
            "precision": float(hit.sum() / max(1, flagged.sum())),
            "recall": float(hit.sum() / truth[each].sum()),
        }
    return {"set": name, "seed": seed, "samples": len(rows), "kinds": measured, "recognised": kinds.recognised}


def main() -> None:
    options = arguments_of(__doc__, sets=SETS, seeds=[0, 1, 2, 3], output=RESULTS)
    options.set_defaults(processes=1)
    for each in run_missing(cell, options.parse_args()):
        words = [
            f"{kind} {row['precision']:.2f} {row['recall']:.2f}" if row else f"{kind} off"
            for kind, row in each["kinds"].items()
        ]
        print(each["set"], each["seed"], "; ".join(words))


if __name__ == "__main__":
    main()
