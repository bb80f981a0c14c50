"""Inputs that are dicts: token ids for a network with an embedding. The report shows the texts themselves.

Docstrings of NumPy and pandas, 30 % of them under the wrong name. Run it: python examples/text_tokens.py
"""

import ast
import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import mslg

LONGEST = 40


class Texts(torch.utils.data.Dataset):
    """Items are (inputs, label). What `text` says is what a person is shown in the report."""

    def __init__(self, texts: list[str], labels: np.ndarray, number_of: dict[str, int]) -> None:
        self.texts, self.targets = texts, labels
        self.numbers = [[number_of.get(word, 0) for word in text.split()[:LONGEST]] for text in texts]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, place: int) -> tuple[dict[str, Tensor], int]:
        tokens = torch.tensor(self.numbers[place] + [0] * (LONGEST - len(self.numbers[place])))
        return {"tokens": tokens, "length": (tokens > 0).sum(0, keepdim=True).clamp(min=1)}, int(self.targets[place])

    def text(self, place: int) -> str:
        return self.texts[place]


class MeanOfWords(nn.Module):
    def __init__(self, words: int) -> None:
        super().__init__()
        self.vectors, self.head = nn.Embedding(words, 32, padding_idx=0), nn.Linear(32, 2)

    def forward(self, tokens: Tensor, length: Tensor) -> Tensor:
        return self.head(self.vectors(tokens).sum(1) / length)


random, found = np.random.default_rng(0), {}
for label, library in enumerate(("numpy", "pandas")):
    for path in sorted(Path(importlib.util.find_spec(library).origin).parent.glob("*/*.py")):
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
        found |= {text: label for node in nodes if len(text := ast.get_docstring(node) or "") > 60}
texts = random.permutation(sorted(found))[:2300].tolist()
true = np.array([found[text] for text in texts])
given = np.where(random.random(len(true)) < 0.3, 1 - true, true)
number_of = {word: place for place, (word, _) in enumerate(Counter(" ".join(texts).split()).most_common(3000), 1)}
noisy, clean = Texts(texts[300:], given[300:], number_of), Texts(texts[:300], true[:300], number_of)
options = {"epochs": 10, "optimizer": "adam", "learning_rate": 0.01, "true_labels": true[300:], "progress": False}
last = mslg.fit(lambda: MeanOfWords(3001), noisy, clean, output="runs/tokens", force=True, **options).summary["last"]
print(f"labels right: given {last['given/accuracy']:.1%}, predicted {last['predictions/accuracy']:.1%}")
print(f"to review: {mslg.write_report('runs/tokens')}")
