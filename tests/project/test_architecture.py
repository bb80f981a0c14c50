"""The architecture is a test: the map is true, imports go downwards, private names stay private, files stay small."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import mslg
from mslg.data.readers import DATASETS
from mslg.methods import METHODS
from mslg.networks import NETWORKS
from mslg.noise import NOISES
from mslg.runs.settings import DEFAULT_METHOD

PACKAGE = Path(mslg.__file__).parent
TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
ENTRIES, MODULE_LINES, FUNCTION_LINES = 16, 420, 90


class Module(NamedTuple):
    """A file of the package, its dotted name, and its syntax tree."""

    path: Path
    name: str
    tree: ast.Module

    @property
    def short(self) -> str:
        return self.path.relative_to(PACKAGE).as_posix()

    @property
    def entry(self) -> str:
        """The folder or file at the root of the package that it belongs to."""
        return self.path.relative_to(PACKAGE).parts[0].removesuffix(".py")

    def imports(self) -> Iterator[tuple[str, str]]:
        """Every import of this package, anywhere in the file: a module's dotted name, and the name taken from it."""
        folder = ["mslg", *self.path.relative_to(PACKAGE).parts[:-1]]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                above = folder[: len(folder) - node.level + 1] if node.level else []
                source = ".".join([*above, *([node.module] if node.module else [])])
                for alias in node.names if source.split(".")[0] == "mslg" else []:
                    inner = f"{source}.{alias.name}"
                    yield (inner, "") if inner in NAMES else (source, alias.name)
            elif isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "mslg")


def dotted(path: Path) -> str:
    parts = ("mslg", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = sorted(PACKAGE.rglob("*.py"))
NAMES = {dotted(path) for path in PATHS}
MODULES = [Module(path, dotted(path), ast.parse(path.read_text())) for path in PATHS if path.parent != PACKAGE] + [
    Module(path, dotted(path), ast.parse(path.read_text()))
    for path in PATHS
    if path.parent == PACKAGE and path.stem not in ("__init__", "__main__")
]


def map_in(page: Path) -> list[tuple[str, str]]:
    """The entries of the package's map on a page, from the top layer down: names, and what is said of them."""
    block = re.search(r"^```text\nsrc/mslg/\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None, f"{page} has no map: a block ```text that begins with src/mslg/"
    return re.findall(r"^  (\S+) +(.+)$", block[1], re.MULTILINE)


MAP = map_in(ROOT / "README.md")
LAYERS = [name.removesuffix("/").removesuffix(".py") for name, _ in MAP]
each_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.short)


def test_the_map_shows_the_tree() -> None:
    there = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in PACKAGE.iterdir()
        if path.name not in ("__init__.py", "__main__.py", "py.typed", "__pycache__")
    }
    assert {name for name, _ in MAP} == there, "correct the map in README.md and docs/architecture.md"
    assert len(there) <= ENTRIES


def test_both_maps_are_the_same() -> None:
    page = ROOT / "docs" / "architecture.md"
    assert map_in(page) == MAP
    headings = re.findall(r"^### `(\S+?)`", page.read_text(), re.MULTILINE)
    assert headings == [name for name, _ in MAP], "docs/architecture.md has a section for every entry, in order"


@each_module
def test_imports_go_downwards(module: Module) -> None:
    for source, name in module.imports():
        other = source.split(".")[1] if "." in source else None
        if other is None:
            assert name == "__version__", f"{module.short} imports the package itself: name the module instead"
        elif other != module.entry:
            assert LAYERS.index(other) > LAYERS.index(module.entry), f"{module.short} must not import {source}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module.name: {source for source, _ in module.imports()} - {module.name, "mslg"} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle of imports: {' → '.join(reversed(error.args[1]))}")


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def defined(tree: ast.Module) -> set[str]:
    """The private names that a module makes: functions, classes, variables, attributes of self."""
    names = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    return {name for name in names if private(name)}


OWN = {module.name: defined(module.tree) for module in MODULES}
PRIVATE = set().union(*OWN.values())


@each_module
def test_private_names_stay_in_their_module(module: Module) -> None:
    imported = {name for _, name in module.imports() if private(name)}
    touched = {
        node.attr
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr in PRIVATE - OWN[module.name]
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    }
    assert not imported | touched, f"{module.short} uses private names of other modules: make them public or move them"


@each_module
def test_methods_do_not_import_methods(module: Module) -> None:
    registered = {METHODS[name].path.partition(":")[0] for name in METHODS} - {module.name}
    if module.entry == "methods":
        assert not {source for source, _ in module.imports()} & registered, "what two methods share belongs below them"


@each_module
def test_no_method_is_named_outside_its_place(module: Module) -> None:
    if module.entry in ("methods", "cli") or module.short.startswith("runs/controls/"):
        return
    default = {"mslg"}  # the package's own name
    if module.short == "runs/settings.py":
        default.add(DEFAULT_METHOD)  # of fit and of recipes: named in this one place
    literals = {
        node.value for node in ast.walk(module.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert not literals & (set(METHODS) - default)


def test_modules_and_functions_stay_small() -> None:
    lines = {module.short: len(module.path.read_text().splitlines()) for module in MODULES}
    assert not {name: count for name, count in lines.items() if count > MODULE_LINES}
    functions = {
        f"{module.short}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    long = {name: count for name, count in functions.items() if count > FUNCTION_LINES}
    longest = sorted(functions.items(), key=lambda item: -item[1])[:5]
    assert not long, f"more than {FUNCTION_LINES} lines; the longest are {longest}"


def test_tests_mirror_the_package() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("*.py")} - {Path()}
    own = {"project", "contracts", "support", "benchmarks"}
    there = {path.with_suffix("").relative_to(PACKAGE) for path in (*PACKAGE.glob("*.py"), *PACKAGE.rglob("*/"))}
    strange = [str(folder) for folder in folders if folder.parts[0] not in own and folder not in there]
    assert not strange, "there is no such folder or file in the package"


def test_no_test_module_is_imported() -> None:
    pattern = re.compile(r"^\s*(?:from|import) (?:tests)?[\w.]*\btest_\w+", re.MULTILINE)  # also in scripts in strings
    files = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("*.py")}
    found = {name for name, path in files.items() if pattern.search(path.read_text())}
    assert not found, "helpers of tests live in tests/support"


@pytest.mark.parametrize("registry", [METHODS, NOISES, DATASETS, NETWORKS], ids=lambda registry: registry.kind)
def test_every_name_leads_somewhere(registry: object) -> None:
    for name in registry:  # type: ignore[attr-defined]
        assert callable(registry.load(name))  # type: ignore[attr-defined]


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
