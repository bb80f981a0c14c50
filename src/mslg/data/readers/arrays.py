"""NumPy archives: `X` and `y`, optionally `id`, `verified`, `X_test`, `y_test`, `y_true` and `classes`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...registry import unknown
from ..source import make_source
from .bundle import Bundle

KEYS = ("X", "y", "id", "verified", "X_test", "y_test", "y_true", "classes")


def npz(path: Path) -> Bundle:
    """Read an `.npz`. Object arrays are refused: reading them would run code from the file."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; pass the path of an .npz archive with X and y")
    arrays = _arrays(path)
    missing = [key for key in ("X", "y") if key not in arrays]
    if missing:
        raise ValueError(f"{path} has no array {' and no array '.join(missing)}; it has {', '.join(arrays) or 'none'}")
    for key in arrays:
        if key not in KEYS:
            raise unknown(f"array in {path.name}", key, KEYS)
    classes = [str(name) for name in arrays["classes"]] if "classes" in arrays else None
    if classes is None and "y_test" in arrays and arrays["y"].dtype.kind in "biu":
        classes = [str(c) for c in range(int(max(arrays["y"].max(), arrays["y_test"].max())) + 1)]
    train = make_source(
        arrays["X"],
        arrays["y"],
        classes=classes,
        ids=[str(name) for name in arrays["id"]] if "id" in arrays else None,
        true_labels=arrays.get("y_true"),
        verified_labels=arrays.get("verified"),
        name=path.name,
    )
    if "X_test" not in arrays:
        return Bundle(train)
    if "y_test" not in arrays:
        raise ValueError(f"{path} has X_test but no y_test; add the labels of the test samples, or remove both")
    return Bundle(
        train, make_source(arrays["X_test"], arrays["y_test"], classes=train.classes, name=f"{path.name} (test)")
    )


def unlabelled_arrays(path: Path) -> tuple[np.ndarray[Any, Any], list[str] | None]:
    """The inputs of an `.npz` (`X`) or an `.npy`, and the ids if it has some."""
    if path.suffix == ".npy":
        try:
            return np.load(path, allow_pickle=False), None
        except (ValueError, OSError, EOFError) as error:
            raise ValueError(f"{path} cannot be read as a plain array ({error}); save it with numpy.save") from error
    arrays = _arrays(path)
    if "X" not in arrays:
        raise ValueError(f"{path} has no array X; it has {', '.join(arrays) or 'none'}")
    return arrays["X"], [str(name) for name in arrays["id"]] if "id" in arrays else None


def _arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(
            f"{path} cannot be read as an .npz of plain arrays ({error}); "
            "save it with numpy.savez(path, X=inputs, y=labels), labels as numbers or text"
        ) from error
