"""Whole runs on blobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mslg
from mslg.fitting.result import Result
from tests.support.blobs import blobs, small_network

SETTINGS: dict[str, Any] = {"epochs": 4, "batch_size": 16, "seed": 3, "progress": False, "device": "cpu"}


def fitted(output: Path, **more: Any) -> Result:
    """A short run into a folder; settings can be replaced."""
    data = blobs()
    clean = (data.clean_x, data.clean_y)
    return mslg.fit(small_network, (data.x, data.given), clean, output=output, **{**SETTINGS, **more})
