"""Texts as inputs: each becomes a row of numbers, one for each frequent word, by TF-IDF.

The words and their weights are those of the training texts. Clean and test texts are encoded with the same, and so is
every later text: a run keeps them in `vocabulary.json`.
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
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor

Texts = Sequence[str] | np.ndarray[Any, Any]

WORDS = 4096  # of the vocabulary, the most frequent ones


@dataclass(frozen=True)
class Vocabulary:
    """Words and how much each weighs: a word that is in few texts says more of these."""

    words: tuple[str, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, texts: Texts, *, most: int = WORDS, name: str = "the data") -> Vocabulary:
        """The most frequent words of these texts."""
        if most < 1:
            raise ValueError(f"words is {most}; the vocabulary needs at least 1 word, and usually thousands")
        vectorizer = TfidfVectorizer(max_features=most)
        try:
            vectorizer.fit(texts)
        except ValueError as error:
            raise ValueError(
                f"the texts of {name} have no words of two letters or more, such as '{texts[0][:40]}'; "
                "if they are something else than texts, encode them as numbers and give these"
            ) from error
        # Rounded to what a file shows, so that a vocabulary read from one encodes to the same bits.
        weights = [float(f"{weight:.6g}") for weight in vectorizer.idf_]
        return cls(tuple(map(str, vectorizer.get_feature_names_out())), tuple(weights))

    @classmethod
    def read(cls, path: Path | str) -> Vocabulary:
        """From the `vocabulary.json` of a run."""
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(tuple(found["words"]), tuple(found["weights"]))

    def as_dict(self) -> dict[str, Any]:
        """What the file holds."""
        return {"words": list(self.words), "weights": list(self.weights)}

    def encode(self, texts: Texts) -> Tensor:
        """(texts, words) rows of length 1: the logarithm of a word's count, by its weight."""
        return torch.from_numpy(self.sparse(texts).toarray())

    def sparse(self, texts: Texts) -> Any:
        """The same as a sparse matrix of SciPy: nearly all of it is zero."""
        return self._vectorizer.transform(texts)

    @cached_property
    def _vectorizer(self) -> Any:
        vectorizer = TfidfVectorizer(vocabulary=self.words, sublinear_tf=True, dtype=np.float32)
        vectorizer.idf_ = np.array(self.weights, dtype=np.float32)
        return vectorizer


class TextStore:
    """Texts, handed out as rows of numbers."""

    def __init__(self, texts: np.ndarray[Any, Any], vocabulary: Vocabulary, rows: Any = None) -> None:
        self.texts, self.vocabulary = texts, vocabulary
        self._rows = vocabulary.sparse(texts) if rows is None else rows

    def __len__(self) -> int:
        return len(self.texts)

    def at(self, positions: np.ndarray[Any, Any]) -> TextStore:
        """The texts at these positions."""
        return TextStore(self.texts[positions], self.vocabulary, self._rows[positions])

    def text(self, position: int) -> str:
        """What a person reads."""
        return str(self.texts[position])

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Tensor]:
        for index in indices:
            yield torch.from_numpy(self._rows[index.numpy()].toarray())


def vocabulary_of(store: object) -> Vocabulary | None:
    """The words that the texts of a store were encoded by; None if it holds no texts."""
    return store.vocabulary if isinstance(store, TextStore) else None
