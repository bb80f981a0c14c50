"""A table: pandas in, names as labels, a pipeline of scikit-learn around the classifier.

Breast cancer (569 real samples, in scikit-learn), labels made wrong with probability 0.3, 60 rows verified.
Run it: python examples/tabular.py
"""

import numpy as np
import pandas as pd
import sklearn
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mslg import MSLGClassifier, NoisyLabelClassifier

sklearn.set_config(enable_metadata_routing=True)  # clean_mask finds its way through the pipeline

data = load_breast_cancer(as_frame=True)
table, true = data.data, pd.Series(data.target_names[data.target])
table, test, true, true_of_test = train_test_split(table, true, test_size=0.4, random_state=0, stratify=true)
random = np.random.default_rng(0)
flipped = true.map({"benign": "malignant", "malignant": "benign"})
given = true.where(random.random(len(true)) > 0.3, flipped)
clean = random.permutation(len(true)) < 60  # these rows are verified
given = given.where(~clean, true)

for name, classifier in {
    "cross entropy": NoisyLabelClassifier(method="cross-entropy", epochs=30, random_state=0),
    "MSLG": MSLGClassifier(epochs=30, random_state=0),
}.items():
    model = make_pipeline(StandardScaler(), classifier)
    model.fit(table, given, clean_mask=clean)
    print(f"{name:<15} test accuracy {model.score(test, true_of_test):.1%}")

issues = model[-1].label_issues_
wrong = (given != true).to_numpy()
found = wrong[issues["row"]].mean()
print(f"{wrong.sum()} of {len(given)} labels are wrong; {len(issues)} look wrong, {found:.0%} of them are")
worst = table.iloc[issues["row"].head()][["mean radius", "mean texture"]].reset_index(drop=True)
print(issues[["given_label", "suggested_label", "label_quality"]].head().reset_index(drop=True).join(worst))
