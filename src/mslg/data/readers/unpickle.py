"""Read pickled arrays without running code from the file."""

from __future__ import annotations

import codecs
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch

# NumPy has renamed modules, so files contain old and new names.
ALLOWED = {
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    *(("numpy", name) for name in ("ndarray", "dtype")),
    ("_codecs", "encode"),
}


class _Restricted(pickle.Unpickler):
    """Rebuilds NumPy arrays and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it loads {module}.{name}, which no array needs")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def unpickle(path: Path) -> dict[str, Any]:
    """A pickled dict of arrays and lists, such as a CIFAR batch. Anything that would run code is refused."""
    try:
        with path.open("rb") as file:
            content = _Restricted(file, encoding="bytes").load()
    except FileNotFoundError:
        raise
    except Exception as error:  # a broken or hostile file may raise nearly anything
        raise ValueError(f"{path} is refused: it is no plain batch of arrays ({error}); download it again") from error
    return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in _dict(content, path).items()}


def load_arrays(path: Path) -> dict[str, Any]:
    """A dict of NumPy arrays saved by torch, such as CIFAR-N's. Anything that would run code is refused."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    rebuild = np._core.multiarray._reconstruct  # type: ignore[attr-defined]
    allowed: list[Any] = [
        (rebuild, "numpy.core.multiarray._reconstruct"),
        (rebuild, "numpy._core.multiarray._reconstruct"),
        np.ndarray,
        np.dtype,
        type(np.dtype("int64")),
        codecs.encode,
    ]
    try:
        with torch.serialization.safe_globals(allowed):
            content = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # a broken or hostile file may raise nearly anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} is refused: it is no plain dict of arrays ({reason}); download it again") from error
    return _dict(content, path)


def _dict(content: Any, path: Path) -> dict[Any, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"{path} contains a {type(content).__name__}; a dict of arrays was expected")
    return content
