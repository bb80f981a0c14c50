"""Names resolve to what is built in, what installed packages register, and what a user may import."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mslg import registry
from mslg.data.readers import DATASETS
from mslg.methods import METHODS
from mslg.methods.elr import ELR
from mslg.networks import NETWORKS
from mslg.noise import NOISES
from mslg.registry import Entry, Registry, UnknownName, UntrustedCode, unknown

PLUGIN = """
from mslg.methods.cross_entropy import CrossEntropy

class Mine(CrossEntropy):
    needs = frozenset({"noise rate"})

def not_a_method():
    pass
"""

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package on sys.path that registers these entry points, as pip would."""

    def put(package: str, entry_points: str) -> None:
        folder = tmp_path / package
        info = folder / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (folder / f"{package}.py").write_text(PLUGIN)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entry_points)
        monkeypatch.syspath_prepend(str(folder))
        registry.entry_points_of.cache_clear()

    yield put
    registry.entry_points_of.cache_clear()
    for name in ("first_plugin", "second_plugin"):
        sys.modules.pop(name, None)


def test_a_class_is_taken_as_it_is_and_keeps_its_registered_name() -> None:
    assert METHODS.resolve(ELR) == ("elr", ELR, frozenset())
    assert METHODS.resolve("elr").object is ELR
    assert METHODS.resolve("mslg.methods.elr:ELR", allow_import=False).name == "elr"

    class Own(ELR):
        needs = frozenset({"clean set"})

    name, found, needs = METHODS.resolve(Own, allow_import=False)
    assert name.startswith("tests.registry.test_registry:")
    assert found is Own
    assert needs == {"clean set"}


@pytest.mark.parametrize("name", METHODS.built_in)
def test_the_list_says_what_the_class_needs(name: str) -> None:
    said, true = set(METHODS[name].needs), set(METHODS.resolve(name).needs)
    assert said == true, f"{name} needs {true or 'nothing'}: say so in METHODS (src/mslg/methods/__init__.py)"


def test_names_of_installed_packages_resolve_wherever_they_come_from(install: Install) -> None:
    install(
        "first_plugin", "[mslg.methods]\nmine = first_plugin:Mine\n[mslg.noises]\nown = first_plugin:not_a_method\n"
    )
    assert "mine" in METHODS
    assert METHODS["mine"].summary == "from the package first_plugin"
    assert [*METHODS][-1] == "mine"
    assert len(METHODS) == len(METHODS.built_in) + 1
    assert "first_plugin" not in sys.modules, "listing imports nothing"
    for name in ("mine", "first_plugin:Mine"):
        assert METHODS.resolve(name, allow_import=False)[::2] == ("mine", {"noise rate"})
    assert NOISES.resolve("own").object.__name__ == "not_a_method"


def test_a_name_is_registered_once(install: Install) -> None:
    install("first_plugin", "[mslg.methods]\nelr = first_plugin:Mine\n[mslg.noises]\nown = first_plugin:Mine\n")
    install("second_plugin", "[mslg.noises]\nown = second_plugin:Mine\n")
    with pytest.raises(
        ValueError, match=r"'elr' is built in \(mslg.methods.elr:ELR\), and the package first_plugin .*"
    ):
        METHODS.resolve("elr")
    clash = (
        r"'own' comes from the package (\w+) \(\1:Mine\), and the package (\w+) registers \2:Mine under the same name"
    )
    with pytest.raises(ValueError, match=clash):
        list(NOISES)


@pytest.mark.parametrize("registry", [METHODS, NOISES, DATASETS, NETWORKS], ids=lambda registry: registry.kind)
def test_code_named_by_a_file_is_not_imported(registry: Registry, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "planted.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UntrustedCode, match=rf"'planted:X' is code outside mslg.*{registry.option}.*--trust-code"):
        registry.resolve("planted:X", allow_import=False)
    with pytest.raises(SystemExit, match="imported"):
        registry.resolve("planted:X")


def test_what_does_not_resolve_says_what_to_write(install: Install) -> None:
    with pytest.raises(UnknownName) as raised:
        METHODS.resolve("msgl")
    assert str(raised.value).startswith("unknown method 'msgl'. Did you mean 'mslg'? Allowed: mslg, ")
    assert str(raised.value).endswith(", … (mslg list methods), or package.module:Class")
    assert str(raised.value).count(",") == 9
    with pytest.raises(TypeError, match=r"the method is 3; pass a class or function, a registered name"):
        METHODS.resolve(3)
    with pytest.raises(TypeError, match=r"is not a subclass of mslg.Method"):
        METHODS.resolve(dict)
    with pytest.raises(ImportError, match=r"there is no module nowhere for the noise nowhere:fn; write package"):
        NOISES.resolve("nowhere:fn")
    install("first_plugin", "")
    with pytest.raises(ValueError, match=r"has no class or function 'mine' .* Did you mean 'first_plugin:Mine'\?"):
        METHODS.resolve("first_plugin:mine")
    with pytest.raises(ValueError, match="'elr' is not an import path"):
        registry.load("elr")


def test_few_names_are_all_shown_and_many_are_not() -> None:
    assert str(unknown("kind", "x", ["a", "b"])) == "unknown kind 'x'. Allowed: a, b"
    assert str(unknown("class", "c7x", [f"c{n}" for n in range(40)])).endswith(", … (40 in all)")
    assert "(mslg list" not in str(Registry("format", {"csv": Entry("a:b", "")}).unknown("cvs"))


def test_listing_imports_no_torch() -> None:
    code = (
        "import sys; from mslg.cli.app import app\n"
        "try: app(['list'])\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "gold-correction" in done.stdout
