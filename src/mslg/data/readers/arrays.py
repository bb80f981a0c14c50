"""NumPy archives: `X` and `y`, optionally `id`, `verified`, `X_test`, `y_test`, `y_true` and `classes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...registry import unknown
from ..labels import MOST_CLASSES
from ..source import make_source
from ..stores import TensorStore
from .array_files import read_npy, read_npz, read_npz_with_checksums
from .bundle import Bundle

KEYS = ("X", "y", "id", "verified", "X_test", "y_test", "y_true", "classes")


def npz(path: Path) -> Bundle:
    """Read an `.npz`. Object arrays are refused: reading them would run code from the file."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; pass the path of an .npz archive with X and y")
    arrays, sums = read_npz_with_checksums(path)
    missing = [key for key in ("X", "y") if key not in arrays]
    if missing:
        raise ValueError(f"{path} has no array {' and no array '.join(missing)}; it has {', '.join(arrays) or 'none'}")
    for key in arrays:
        if key not in KEYS:
            raise unknown(f"array in {path.name}", key, KEYS)
    if ("X_test" in arrays) != ("y_test" in arrays):
        there, lacking = ("X_test", "y_test") if "X_test" in arrays else ("y_test", "X_test")
        raise ValueError(f"{path} has {there} but no {lacking}; add it, or remove both")
    problems = [*_shape_problems(arrays), *_class_problems(arrays)]
    if problems:
        raise ValueError(f"{path}: {'; '.join(problems)}")
    classes = [str(name) for name in arrays["classes"]] if "classes" in arrays else None
    if classes is None and "y_test" in arrays and all(arrays[key].dtype.kind in "biu" for key in ("y", "y_test")):
        highest = max(int(arrays[key].max(initial=0)) for key in ("y", "y_test"))
        classes = [str(c) for c in range(min(highest, MOST_CLASSES) + 1)]
    train = make_source(
        TensorStore(arrays["X"], checksum=sums.get("X")),
        arrays["y"],
        classes=classes,
        ids=[str(name) for name in arrays["id"]] if "id" in arrays else None,
        true_labels=arrays.get("y_true"),
        verified_labels=arrays.get("verified"),
        name=path.name,
    )
    if "X_test" not in arrays:
        return Bundle(train)
    store = TensorStore(arrays["X_test"], checksum=sums.get("X_test"))
    return Bundle(train, make_source(store, arrays["y_test"], classes=train.classes, name=f"{path.name} (test)"))


def _shape_problems(arrays: Mapping[str, np.ndarray[Any, Any]]) -> Iterator[str]:
    """What is wrong with the shapes of the inputs."""
    shapes = {key: arrays[key].shape for key in ("X", "X_test") if key in arrays}
    for key, shape in shapes.items():
        if len(shape) < 2:
            yield f"{key} has the shape {shape}; it must be (samples, features) or images; X[:, None] is one column"
        elif 0 in shape[1:]:
            yield f"{key} has the shape {shape}: there are no values to learn from"
        if arrays[key].dtype.kind not in "biuf":
            yield f"{key} has the type {arrays[key].dtype}; inputs must be numbers: encode them first"
    if "X_test" in shapes and len(shapes["X"]) > 1 and shapes["X_test"][1:] != shapes["X"][1:]:
        yield f"X_test has samples of shape {shapes['X_test'][1:]}, X of {shapes['X'][1:]}; they must be alike"


def _class_problems(arrays: Mapping[str, np.ndarray[Any, Any]]) -> Iterator[str]:
    if "classes" not in arrays:
        return
    names = arrays["classes"]
    if names.ndim != 1:
        yield f"classes has the shape {names.shape}; it must be a list of names"
    elif len(set(map(str, names))) != len(names):
        twice = next(name for name in map(str, names) if list(map(str, names)).count(name) > 1)
        yield f"classes has the name '{twice}' twice; every class needs a name of its own"


def unlabelled_arrays(path: Path) -> tuple[np.ndarray[Any, Any], list[str] | None]:
    """The inputs of an `.npz` (`X`) or an `.npy`, and the ids if it has some."""
    if path.suffix == ".npy":
        return read_npy(path), None
    arrays = read_npz(path)
    if "X" not in arrays:
        raise ValueError(f"{path} has no array X; it has {', '.join(arrays) or 'none'}")
    return arrays["X"], [str(name) for name in arrays["id"]] if "id" in arrays else None
