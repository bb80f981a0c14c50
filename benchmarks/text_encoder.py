"""Is a light pretrained text encoder a better input than TF-IDF?

    pip install wordllama            # its wheel holds weights and tokenizer
    python benchmarks/text_encoder.py TEXTS.csv

TEXTS.csv has text, label, true_label and split (train, test). Logistic regression on either input, for several C: test
accuracy after training on the given and on the true labels, and average precision of the list of wrong labels by
out-of-fold self-confidence.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import StandardScaler

from mslg.data.texts import Vocabulary


def embedded(texts: list[str]) -> np.ndarray:
    import wordllama

    # As a cache, as version 0.4.0.post1 looks for its tokenizer in a folder of another name and would download it.
    folder = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    return StandardScaler().fit_transform(np.asarray(model.embed(texts), dtype=np.float32))


def main() -> None:
    data = pd.read_csv(sys.argv[1])
    train = (data["split"] == "train").to_numpy()
    texts, given, true = data["text"].tolist(), data["label"].to_numpy(), data["true_label"].to_numpy()
    words = Vocabulary.of(data["text"][train].tolist()).sparse(texts)
    inputs = {"TF-IDF": (words, (0.1, 1, 10)), "wordllama": (embedded(texts), (0.0003, 0.003, 0.03, 0.3))}
    for name, (rows, strengths) in inputs.items():
        for strength in strengths:
            model = LogisticRegression(C=strength, max_iter=300)
            on_given, on_true = (
                (model.fit(rows[train], label[train]).predict(rows[~train]) == true[~train]).mean()
                for label in (given, true)
            )
            probs = cross_val_predict(model, rows[train], given[train], cv=4, method="predict_proba")
            own = probs[np.arange(train.sum()), np.searchsorted(np.unique(given[train]), given[train])]
            precision = average_precision_score((given != true)[train], -own)
            print(f"{name:10} C {strength:<7g} test accuracy {on_given:.3f} ({on_true:.3f}) precision {precision:.3f}")


if __name__ == "__main__":
    main()
