"""The scikit-learn API: classifiers for partly wrong labels."""

from __future__ import annotations

from .mslg_classifier import MSLGClassifier as MSLGClassifier
from .noisy_label_classifier import NoisyLabelClassifier as NoisyLabelClassifier
