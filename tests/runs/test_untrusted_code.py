"""Code that a file names is never imported unless the user names it too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import mslg
from mslg.cli.app import app
from mslg.networks import NETWORKS
from mslg.networks.libraries import refuse_loading
from mslg.registry import UntrustedCode, import_only
from mslg.runs.recipes import refuse_code
from tests.support.blobs import blobs, small_network

RECIPE = """
[data]
source = "digits"
clean = 50
[method]
name = "cross-entropy"
[network]
name = "evil:run"
[train]
epochs = 2
"""
SWEEP = """
[sweep]
seeds = [0]
[data]
source = "digits"
[rows.bad]
method = { name = "evil:run" }
[columns.only]
data = { clean = 50 }
"""


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module that leaves a mark when it is imported."""
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('mark').touch()\ndef run(*_, **__): ...\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mark"


def test_a_model_folder_cannot_name_code(evil: Path, tmp_path: Path) -> None:
    data = blobs()
    mslg.fit(
        small_network, (data.x, data.given), method="cross-entropy", epochs=2, output=tmp_path / "run", progress=False
    )
    path = tmp_path / "run" / "model.json"
    about = json.loads(path.read_text())
    (tmp_path / "run" / "checksums.json").unlink()  # a stranger would write a right one
    for name in ("evil:run", "os:system"):
        path.write_text(json.dumps({**about, "network": {"name": name, "command": "touch mark"}}))
        with pytest.raises(UntrustedCode, match=f"'{name}' is code outside mslg"):
            mslg.load_model(tmp_path / "run")
    assert not evil.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [(RECIPE, ["fit", "--recipe", "r.toml", "-o", "out"]), (SWEEP, ["sweep", "r.toml", "-o", "out"])],
    ids=["recipe", "sweep"],
)
def test_a_recipe_cannot_name_code(text: str, words: list[str], evil: Path) -> None:
    Path("r.toml").write_text(text)
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, UntrustedCode)
    assert "r.toml names the code evil:run" in str(result.exception)
    assert not evil.exists()
    assert not Path("out").exists()


def test_a_name_that_the_user_typed_is_allowed() -> None:
    refuse_code({"network": {"name": "own:net"}}, {"network": {"name": "own:net"}}, "r.toml")
    refuse_code({"network": {"name": "torchvision:resnet18"}, "data": {"source": "hf:folder"}}, {}, "r.toml")
    refuse_code({"data": {"features": "packaged:efficientnet-lite0"}}, {}, "r.toml")
    with pytest.raises(UntrustedCode, match=r"--network own:net.* or pass --trust-code"):
        refuse_code({"network": {"name": "own:net"}}, {"network": {"name": "other:net"}}, "r.toml")


@pytest.mark.parametrize(
    "settings",
    [
        {"data": {"clean": "evil:run"}},
        {"data": {"features": "hf:run"}},
        {"data": {"noise": "timm:run"}},
        {"method": {"name": "torchvision:run"}},
        {"noise": {"network": "evil:run"}},
    ],
    ids=str,
)
def test_every_setting_that_may_name_code_is_checked(settings: dict[str, dict[str, str]]) -> None:
    with pytest.raises(UntrustedCode, match="names the code"):
        refuse_code(settings, {}, "r.toml")


def test_a_file_called_like_the_code_does_not_make_it_a_path(evil: Path) -> None:
    Path("evil:run").touch()
    with pytest.raises(UntrustedCode, match="evil:run"):
        refuse_code({"network": {"name": "evil:run"}}, {}, "r.toml")


def test_the_registry_itself_imports_nothing_that_was_not_typed(evil: Path) -> None:
    with import_only([]), pytest.raises(UntrustedCode, match="'evil:run' is code outside mslg"):
        NETWORKS.resolve("evil:run")
    assert not evil.exists()
    with import_only(["evil:run"]):
        assert callable(NETWORKS.resolve("evil:run").object)
    assert evil.exists()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose network the user has named on the command line."""
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        _fit_own()
    return folder / "run"


@pytest.fixture
def own_run(finished: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(finished.parent)
    return finished


def _fit_own() -> None:
    data = blobs()
    np.savez("data.npz", X=data.x, y=data.given, verified=data.true)
    words = ["fit", "data.npz", "--clean", "20", "--network", OWN, "--method", "cross-entropy", "--epochs", "2"]
    result = CliRunner().invoke(app, [*words, "-o", "run", "-q", "--no-report", "--no-compare"])
    assert result.exit_code == 0, result.exception


OWN = "mslg.testing.problem:small_network"


@pytest.mark.parametrize(
    "words",
    [
        ["fit", "-o", "run", "--resume"],
        ["fit", "--from", "run", "-o", "next", "--epochs", "2"],
        ["fit", "--recipe", "run/config.toml", "-o", "again"],
        ["review-next", "run"],
        ["export", "run", "--to", "pt2"],
    ],
    ids=lambda words: f"{words[0]} {words[1]}",
)
def test_a_run_asks_for_the_code_that_it_was_started_with_by_name(own_run: Path, words: list[str]) -> None:
    (own_run / "done").unlink()  # a finished run has nothing to resume
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, UntrustedCode)
    assert OWN in str(refused.exception)
    assert "--network" in str(refused.exception)
    assert "--trust-code" in str(refused.exception)
    (own_run / "done").touch()
    quick = ["-q", "--no-report", "--no-compare"] if words[0] == "fit" else []
    for consent in (["--network", OWN], ["--trust-code", *(["--force"] if words[0] != "review-next" else [])]):
        if words[:2] == ["fit", "-o"] and "--force" in consent:
            consent = consent[:1]
        taken = CliRunner().invoke(app, [*words, *quick, *consent])
        assert taken.exit_code == 0, taken.exception


def test_a_run_made_in_python_says_what_made_its_network(tmp_path: Path) -> None:
    data = blobs()
    about = {"method": "cross-entropy", "epochs": 2, "output": tmp_path / "run", "progress": False}
    mslg.fit(small_network, (data.x, data.given), **about)
    with pytest.raises(ValueError, match=f"made in Python by {OWN}, and code named in a folder is not imported"):
        mslg.load_model(tmp_path / "run")
    assert mslg.load_model(tmp_path / "run", OWN).classes


def test_timm_takes_no_argument_that_loads_a_file() -> None:
    with pytest.raises(ValueError, match="checkpoint_path is no setting of timm:any here"):
        refuse_loading("timm:any", {"checkpoint_path": "evil.pth"})


def test_a_module_in_the_current_folder_is_not_taken_for_an_installed_one(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("from pathlib import Path\nPath('mark').touch()\n")
    code = "import sys; sys.argv = ['mslg', '--version']; import runpy; sys.path[0] = ''\n"
    code += "try: runpy.run_module('mslg', run_name='__main__')\nexcept SystemExit: pass\nassert '' not in sys.path"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
