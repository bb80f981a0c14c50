"""Real texts: which library does a docstring come from? 30 % of the labels are wrong, 300 are verified.

The texts are in the packages that mslg needs anyway. Run it: python examples/text.py
"""

import ast
import importlib.util
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from mslg import MSLGClassifier, NoisyLabelClassifier
from mslg.networks.mlp import MLP

LIBRARIES = ("matplotlib", "networkx", "numpy", "pandas", "scipy", "sklearn")
random = np.random.default_rng(0)


def docstrings(library: str) -> set[str]:
    """The first 300 characters of 600 of them, out of the source files: nothing is imported."""
    root, found = Path(importlib.util.find_spec(library).origin).parent, set()
    for path in random.permutation(sorted(root.rglob("*.py"))):
        if "test" not in str(path.relative_to(root)) and len(found) < 600:
            nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
            texts = [" ".join((ast.get_docstring(node) or "").split())[:300] for node in nodes]
            found |= {text for text in texts if len(text) > 60}
    return found


def network(words: int, classes: int) -> MLP:
    return MLP(words, classes, hidden=(64,), dropout=0.5)


label_of = {text: label for label, name in enumerate(LIBRARIES) for text in sorted(docstrings(name))[:600]}
texts = random.permutation(sorted(label_of))
codes = np.array([label_of[text] for text in texts])
other = (codes + random.integers(1, 6, len(codes))) % 6
true = np.array(LIBRARIES)[codes]
given = np.array(LIBRARIES)[np.where(random.random(len(codes)) < 0.3, other, codes)]
test, train = np.split(np.arange(len(texts)), [600])
clean = np.arange(len(train)) < 300  # of these the labels are verified
given[train[clean]] = true[train[clean]]

for kind in (NoisyLabelClassifier(method="cross-entropy"), MSLGClassifier()):
    kind.set_params(network=network, epochs=10, random_state=0)
    encode = TfidfVectorizer(max_features=3000, sublinear_tf=True)
    model = make_pipeline(encode, FunctionTransformer(lambda rows: rows.toarray(), accept_sparse=True), kind)
    last = type(kind).__name__.lower()
    model.fit(texts[train], given[train], **{f"{last}__clean_mask": clean})
    print(f"{last:<22} test accuracy {model.score(texts[test], true[test]):.1%}")

issues = model[-1].label_issues_
wrong = (given != true)[train[issues["row"]]]
print(f"{len(issues)} labels look wrong, {wrong.mean():.0%} of them are; the worst:")
for row, label, suggested in issues[["row", "given_label", "suggested_label"]].head().to_numpy():
    print(f"  {label}, rather {suggested}: {texts[train[row]][:80]}")
