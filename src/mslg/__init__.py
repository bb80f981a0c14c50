"""Train on labels that are partly wrong: meta soft label generation, its rivals, and a list of the labels to fix."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Imported on first use: `import mslg` and `mslg --help` must not wait for torch.
_LAZY = {
    "fit": "mslg.fitting",
    "Result": "mslg.fitting",
    "review_next": "mslg.reviewing",
    "write_report": "mslg.report",
    "export": "mslg.exporting",
    "load_model": "mslg.loading",
    "Batch": "mslg.batch",
    "Bilevel": "mslg.bilevel",
    "LabelTable": "mslg.labels",
    "MSLG": "mslg.methods.mslg",
    "MSLGClassifier": "mslg.estimator",
    "NoisyLabelClassifier": "mslg.estimator",
    "mslg_step": "mslg.methods.mslg_step",
    "Method": "mslg.method",
    "Task": "mslg.method",
    "METHODS": "mslg.methods",
    "NOISES": "mslg.noise",
    "DATASETS": "mslg.datasets",
    "NETWORKS": "mslg.networks",
}

if TYPE_CHECKING:
    from .batch import Batch
    from .bilevel import Bilevel
    from .datasets import DATASETS
    from .estimator import MSLGClassifier, NoisyLabelClassifier
    from .exporting import export
    from .fitting import Result, fit
    from .labels import LabelTable
    from .loading import load_model
    from .method import Method, Task
    from .methods import METHODS
    from .methods.mslg import MSLG
    from .methods.mslg_step import mslg_step
    from .networks import NETWORKS
    from .noise import NOISES
    from .report import write_report
    from .reviewing import review_next

__all__ = [
    "DATASETS",
    "METHODS",
    "MSLG",
    "NETWORKS",
    "NOISES",
    "Batch",
    "Bilevel",
    "LabelTable",
    "MSLGClassifier",
    "Method",
    "NoisyLabelClassifier",
    "Result",
    "Task",
    "export",
    "fit",
    "load_model",
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
