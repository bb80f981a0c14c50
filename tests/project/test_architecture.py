"""The architecture is a test: imports go downwards, registries tell the truth, names stay where they belong."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mslg
from mslg.data.readers import DATASETS
from mslg.methods import METHODS
from mslg.networks import NETWORKS
from mslg.noise import NOISES

PACKAGE = Path(mslg.__file__).parent

# From the top down: an entry may import from itself and from those after it.
LAYERS = [
    *("cli", "estimators", "testing", "sweeps", "fitting", "review", "runs", "issues", "methods", "training"),
    *("bilevel", "noise", "networks", "data", "runtime", "registry"),
]
HEIGHT = {name: len(LAYERS) - place for place, name in enumerate(LAYERS)} | {"__main__": len(LAYERS) + 1}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def unit(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The units of this package that a file imports, anywhere in it."""
    found = set()
    here = list(path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[: len(here) - (node.level - 1)]
            parts = [*base, *(node.module.split(".") if node.module else [])]
            found |= {parts[0]} if parts else {alias.name for alias in node.names if alias.name in HEIGHT}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mslg."):
            found.add(node.module.split(".")[1])  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_downwards(path: Path) -> None:
    own = unit(path)
    assert own in HEIGHT, f"{own} has no place in the layers: give it one"
    for other in imported(path) - {own}:
        assert HEIGHT[other] < HEIGHT[own], f"{own} must not import {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_method_is_named_outside_its_place(path: Path) -> None:
    if unit(path) in ("methods", "cli") or path.relative_to(PACKAGE).parts[:2] == ("runs", "controls"):
        return
    default = {"mslg"}  # the package's own name, and the default of fit and of recipes
    literals = {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert not literals & (set(METHODS) - default)


@pytest.mark.parametrize("registry", [METHODS, NOISES, DATASETS, NETWORKS], ids=lambda registry: registry.kind)
def test_every_name_leads_somewhere(registry: object) -> None:
    for name in registry:  # type: ignore[attr-defined]
        assert callable(registry.load(name))  # type: ignore[attr-defined]


def test_files_stay_small() -> None:
    long = {str(path): count for path in FILES if (count := len(path.read_text().splitlines())) > 420}
    assert not long


def test_importing_mslg_does_not_import_torch() -> None:
    code = "import sys, mslg, mslg.methods, mslg.cli.app; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_table_of_finished_cells_does_not_wait_for_torch() -> None:
    names = ("run", "commands", "render", "table", "curves")
    code = f"import sys, {', '.join(f'mslg.sweeps.{name}' for name in names)}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_everything_promised_at_the_top_is_there() -> None:
    for name in mslg.__all__:
        assert getattr(mslg, name) is not None
    with pytest.raises(AttributeError, match="module 'mslg' has no attribute 'fitt'"):
        _ = mslg.fitt
