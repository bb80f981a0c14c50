"""The scikit-learn API: classifiers to fit on labels that are partly wrong."""

from __future__ import annotations

from .mslg_classifier import MSLGClassifier as MSLGClassifier
from .noisy_label_classifier import NoisyLabelClassifier as NoisyLabelClassifier
