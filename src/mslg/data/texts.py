"""Texts as inputs: TF-IDF vectors over the most frequent words.

The vocabulary and its weights come from the training texts. Clean, test and later texts are encoded with the same ones,
which a run stores in `vocabulary.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

Texts = Sequence[str] | np.ndarray[Any, Any]

WORDS = 4096  # the size of a vocabulary


@dataclass(frozen=True)
class Vocabulary:
    """Words and their inverse document frequencies."""

    words: tuple[str, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, texts: Texts, *, most: int = WORDS, name: str = "the data") -> Vocabulary:
        """The most frequent words of these texts."""
        if most < 1:
            raise ValueError(f"words is {most}; the vocabulary needs at least 1 word, and usually thousands")
        vectorizer = _vectorizer(max_features=most)
        try:
            vectorizer.fit(texts)
        except ValueError as error:
            raise ValueError(
                f"the texts of {name} have no words of two letters or more, such as '{texts[0][:40]}'; "
                "if they are not texts, encode them as numbers and pass those"
            ) from error
        # Rounded as in the file, so that a vocabulary read from it encodes to the same bits.
        weights = [float(f"{weight:.6g}") for weight in vectorizer.idf_]
        return cls(tuple(map(str, vectorizer.get_feature_names_out())), tuple(weights))

    @classmethod
    def read(cls, path: Path | str) -> Vocabulary:
        """From the `vocabulary.json` of a run."""
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(tuple(content["words"]), tuple(content["weights"]))

    def as_dict(self) -> dict[str, Any]:
        """The content of `vocabulary.json`."""
        return {"words": list(self.words), "weights": list(self.weights)}

    def encode(self, texts: Texts) -> Tensor:
        """(texts, words) rows of length 1: logarithmic word counts times the weights."""
        return torch.from_numpy(self.sparse(texts).toarray())

    def sparse(self, texts: Texts) -> Any:
        """The same as a sparse matrix of SciPy."""
        return self._fitted.transform(texts)

    @cached_property
    def _fitted(self) -> Any:
        vectorizer = _vectorizer(vocabulary=self.words, sublinear_tf=True, dtype=np.float32)
        vectorizer.idf_ = np.array(self.weights, dtype=np.float32)
        return vectorizer


class TextStore:
    """Texts, encoded by a vocabulary."""

    def __init__(self, texts: np.ndarray[Any, Any], vocabulary: Vocabulary, rows: Any = None) -> None:
        self.texts, self.vocabulary = texts, vocabulary
        self._rows = vocabulary.sparse(texts) if rows is None else rows

    def __len__(self) -> int:
        return len(self.texts)

    def at(self, positions: np.ndarray[Any, Any]) -> TextStore:
        """The texts at these positions."""
        return TextStore(self.texts[positions], self.vocabulary, self._rows[positions])

    def text(self, position: int) -> str:
        """A text as a person reads it."""
        return str(self.texts[position])

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Tensor]:
        for index in indices:
            yield torch.from_numpy(self._rows[index.numpy()].toarray())


def _vectorizer(**settings: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer  # late: it takes seconds to import

    return TfidfVectorizer(**settings)


def vocabulary_of(store: object) -> Vocabulary | None:
    """The vocabulary of a store of texts; None if it holds no texts."""
    return store.vocabulary if isinstance(store, TextStore) else None
