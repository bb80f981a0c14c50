"""Code that a file names is never imported unless the user names it too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mslg
from mslg.cli.app import app
from mslg.registry import UntrustedCode
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
    with pytest.raises(UntrustedCode, match=r"--network own:net.* or pass --trust-code"):
        refuse_code({"network": {"name": "own:net"}}, {"network": {"name": "other:net"}}, "r.toml")
