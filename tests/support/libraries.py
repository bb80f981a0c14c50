"""Libraries of networks that may not be installed, or do not work with this build of torch as they are."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch

_KEPT: list[Any] = []  # operators live as long as the library object that defined them


def torchvision_or_skip() -> None:
    """Make `import torchvision` work, or skip the test. Its operators are missing beside the CPU build of torch."""
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    if not _KEPT:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            try:
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            except RuntimeError:
                break  # a build that brings its own
        _KEPT.append(library)
    try:
        import torchvision  # noqa: F401
    except RuntimeError as error:
        pytest.skip(f"torchvision does not work here: {error}")


def timm_or_skip() -> None:
    """Make `import timm` work, or skip the test."""
    if find_spec("timm") is None:
        pytest.skip("timm is not installed")
    torchvision_or_skip()


def transformers_or_skip() -> Any:
    """The library, or skip the test. It imports torchvision if that is installed."""
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    if find_spec("torchvision") is not None:
        torchvision_or_skip()
    import transformers

    return transformers
