"""Train on labels that are partly wrong: meta soft label generation, its rivals, and a list of the labels to fix."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Imported on first use: `import mslg` and `mslg --help` must not wait for torch.
_LAZY = {
    "fit": "mslg.fitting.fit",
    "find_label_issues": "mslg.fitting.find_label_issues",
    "Issues": "mslg.fitting.find_label_issues",
    "Result": "mslg.fitting.result",
    "review_next": "mslg.fitting.review_next",
    "write_report": "mslg.review.report",
    "export": "mslg.review.export",
    "load_model": "mslg.runs.load_model",
    "load_run": "mslg.fitting.load_run",
    "Batch": "mslg.data.batch",
    "Bilevel": "mslg.bilevel",
    "LabelTable": "mslg.bilevel.label_table",
    "MSLG": "mslg.methods.mslg.method",
    "MSLGClassifier": "mslg.estimators",
    "NoisyLabelClassifier": "mslg.estimators",
    "label_step": "mslg.methods.mslg.step",
    "mslg_step": "mslg.methods.mslg.step",
    "Method": "mslg.training.method",
    "Task": "mslg.training.method",
    "METHODS": "mslg.methods",
    "NOISES": "mslg.noise",
    "DATASETS": "mslg.data.readers",
    "NETWORKS": "mslg.networks",
}

if TYPE_CHECKING:
    from .bilevel import Bilevel
    from .bilevel.label_table import LabelTable
    from .data.batch import Batch
    from .data.readers import DATASETS
    from .estimators import MSLGClassifier, NoisyLabelClassifier
    from .fitting.find_label_issues import Issues, find_label_issues
    from .fitting.fit import fit
    from .fitting.load_run import load_run
    from .fitting.result import Result
    from .fitting.review_next import review_next
    from .methods import METHODS
    from .methods.mslg.method import MSLG
    from .methods.mslg.step import label_step, mslg_step
    from .networks import NETWORKS
    from .noise import NOISES
    from .review.export import export
    from .review.report import write_report
    from .runs.load_model import load_model
    from .training.method import Method, Task

__all__ = [
    "DATASETS",
    "METHODS",
    "MSLG",
    "NETWORKS",
    "NOISES",
    "Batch",
    "Bilevel",
    "Issues",
    "LabelTable",
    "MSLGClassifier",
    "Method",
    "NoisyLabelClassifier",
    "Result",
    "Task",
    "export",
    "find_label_issues",
    "fit",
    "label_step",
    "load_model",
    "load_run",
    "mslg_step",
    "review_next",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'mslg' has no attribute '{name}'")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
