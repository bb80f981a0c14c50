"""The machine: available processors, and the versions that a result may depend on."""

from __future__ import annotations

import os
import platform
from importlib import metadata

from .. import __version__


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def programs_per_processor() -> float:
    """How many running programs share a processor, over the last minute."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return load / processors()


def versions() -> dict[str, str]:
    """The versions that a result may depend on."""
    names = ("torch", "numpy", "scikit-learn", "safetensors")
    return {
        "mslg": __version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in names},
    }
