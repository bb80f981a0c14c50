"""Frozen encoders that come inside a package, by a linear model on their features.

python benchmarks/encoders.py photos --data FOLDER     # FOLDER as for benchmarks/practitioner.py
python benchmarks/encoders.py texts --data FOLDER      # FOLDER/trec_rules.csv; needs wordllama
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression


def photos(data: Path) -> None:
    """Accuracy of a linear head on 1,500 clean samples by the side of the pictures, on 1,000 others."""
    from sklearn.preprocessing import StandardScaler

    from mslg.networks.packaged import DEFAULT, packaged_network
    from practitioner import files

    labels = np.load(data / "cifar10_train_labels.npy").astype(np.int64)
    images, chosen = files(data, labels), np.random.default_rng(0).permutation(len(labels))[:2500]
    network: Any = packaged_network(DEFAULT, "DEFAULT", {}, 10).eval()
    for side in (96, 128, 160, 224):
        rows = []
        for start in range(0, len(chosen), 50):
            pixels = [
                np.array(Image.open(images[place]).convert("RGB").resize((side, side), Image.Resampling.BICUBIC))
                for place in chosen[start : start + 50]
            ]
            batch = (torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float() - 127) / 128
            with torch.inference_mode():
                rows.append(network.extract_features(batch).mean((2, 3)))
        features = StandardScaler().fit_transform(torch.cat(rows).numpy())
        model = LogisticRegression(C=0.001, max_iter=300).fit(features[:1500], labels[chosen[:1500]])
        print(side, f"{model.score(features[1500:], labels[chosen[1500:]]):.3f}", flush=True)


def texts(data: Path) -> None:
    """TF-IDF, wordllama and both: the list by self-confidence, and a model of 200 clean texts."""
    import scipy.sparse as sparse
    import wordllama
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics import average_precision_score
    from sklearn.model_selection import cross_val_predict

    table = pd.read_csv(data / "trec_rules.csv")
    train, test = (table[table["split"] == split] for split in ("train", "test"))
    # The package looks for its tokenizer in another folder than it installs it to.
    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    vectorizer = TfidfVectorizer(max_features=4096, sublinear_tf=True).fit(train["text"])
    words = [vectorizer.transform(part["text"]) for part in (train, test)]
    dense = [model.embed(part["text"].tolist(), norm=True) for part in (train, test)]
    both = [sparse.hstack([left, sparse.csr_matrix(right)]).tocsr() for left, right in zip(words, dense, strict=True)]
    given, true = train["label"].to_numpy(), train["true_label"].to_numpy()
    column = np.searchsorted(np.unique(given), given)
    for name, (rows, others) in {"tf-idf": words, "wordllama": dense, "both": both}.items():
        learner = LogisticRegression(C=10, max_iter=400)
        probs = cross_val_predict(learner, rows, given, cv=5, method="predict_proba")
        precision = average_precision_score(given != true, -probs[np.arange(len(given)), column])
        random, right = np.random.default_rng(0), []
        for _ in range(5):
            chosen = random.choice(len(given), 200, replace=False)
            right.append(learner.fit(rows[chosen], true[chosen]).score(others, test["true_label"]))
        print(name, f"average precision {precision:.3f}, 200 clean {np.mean(right):.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", choices=["photos", "texts"])
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()
    {"photos": photos, "texts": texts}[options.which](options.data)


if __name__ == "__main__":
    main()
