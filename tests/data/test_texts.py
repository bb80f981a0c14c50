"""Texts as rows of numbers."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from mslg.data.texts import TextStore, Vocabulary

TEXTS = ["the cat sat", "the dog sat on the mat", "a bird flew"]


def test_a_row_is_what_the_formula_says() -> None:
    vocabulary = Vocabulary.of(TEXTS)
    assert vocabulary.words == ("bird", "cat", "dog", "flew", "mat", "on", "sat", "the")
    counts = Counter(TEXTS[1].split())
    expected = []
    for word in vocabulary.words:
        texts = sum(word in text.split() for text in TEXTS)
        weight = math.log((1 + len(TEXTS)) / (1 + texts)) + 1
        expected.append((1 + math.log(counts[word])) * weight if counts[word] else 0.0)
    row = torch.tensor(expected)
    torch.testing.assert_close(vocabulary.encode([TEXTS[1]])[0], row / row.norm())


def test_the_most_frequent_words_are_kept() -> None:
    assert Vocabulary.of(TEXTS, most=2).words == ("sat", "the")
    with pytest.raises(ValueError, match="words is 0; the vocabulary needs at least 1 word"):
        Vocabulary.of(TEXTS, most=0)


def test_what_is_no_text_is_told() -> None:
    with pytest.raises(ValueError, match=r"the texts of codes.csv have no words of two letters or more, such as '1'"):
        Vocabulary.of(["1", "2"], name="codes.csv")


def test_a_vocabulary_from_its_file_encodes_to_the_same_bits(tmp_path: Path) -> None:
    vocabulary = Vocabulary.of(TEXTS)
    (tmp_path / "vocabulary.json").write_text(json.dumps({"format_version": 1, **vocabulary.as_dict()}))
    again = Vocabulary.read(tmp_path / "vocabulary.json")
    assert again == vocabulary
    assert torch.equal(again.encode(TEXTS), vocabulary.encode(TEXTS))


def test_texts_are_handed_out_as_rows_and_shown_as_texts() -> None:
    vocabulary = Vocabulary.of(TEXTS)
    store = TextStore(np.array(TEXTS, dtype=object), vocabulary)
    picked = store.at(np.array([2, 0]))
    assert (len(picked), picked.text(1)) == (2, "the cat sat")
    (rows,) = picked.batches([torch.tensor([1, 0])])
    assert torch.equal(rows, vocabulary.encode([TEXTS[0], TEXTS[2]]))
    assert rows.dtype == torch.float32
