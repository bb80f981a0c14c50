"""The machine: available processors, and the versions that a result may depend on."""

from __future__ import annotations

import os
import platform
from importlib import metadata

from .. import __version__


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions() -> dict[str, str]:
    """The versions that a result may depend on."""
    names = ("torch", "numpy", "scikit-learn", "safetensors")
    return {
        "mslg": __version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in names},
    }
