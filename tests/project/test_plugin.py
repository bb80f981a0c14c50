"""examples/plugin, a package of its own: its method, noise, data set and network are used like the built-in ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pytest

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"
NAMES = {"methods": "label-smoothing", "noises": "one-way", "datasets": "moons", "networks": "two-layers"}
DATA = ("moons", "--noise", "one-way", "--rate", "0.3", "--network", "two-layers", "--epochs", "3", "--no-compare")
BY_PATH = "mslg_example_plugin.label_smoothing:LabelSmoothing"
SWEEP = """
[data]
source = "moons"
noise = "one-way"
rate = 0.3
[network]
name = "two-layers"
[train]
epochs = 2
[sweep]
seeds = [0]
[rows.smooth]
method = { name = "label-smoothing", smoothing = 0.2 }
[rows.plain]
method = { name = "cross-entropy" }
[columns.one]
data = { rate = 0.2 }
"""


def put_on_path(folder: Path) -> Path:
    """What an installer leaves: the package, and beside it the entry points that it registers."""
    about = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    shutil.copytree(PLUGIN / "src", folder, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    info = folder / "mslg_example_plugin-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n")
    groups = (
        "\n".join([f"[{group}]", *(f"{name} = {path}" for name, path in points.items())])
        for group, points in about["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("\n".join(groups))
    return folder


def pip_install(folder: Path) -> Path:
    """Build and install the plugin as a user would, without a network."""
    source = folder.parent / "source"
    shutil.copytree(PLUGIN, source)  # a build writes beside the sources
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(folder), str(source)], check=True)
    return folder


@pytest.fixture(
    scope="module",
    params=[put_on_path, pytest.param(pip_install, marks=pytest.mark.slow)],
    ids=["on the path", "installed"],
)
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process in which the plugin is installed."""
    folder = request.param(tmp_path_factory.mktemp("plugin") / "site")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1"}


def mslg(*words: str, environment: dict[str, str], folder: Path) -> str:
    command = [sys.executable, "-m", "mslg", *words]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_listed(environment: dict[str, str], tmp_path: Path) -> None:
    listed = json.loads(mslg("list", "--json", environment=environment, folder=tmp_path))
    for kind, name in NAMES.items():
        row = {"name": name, "summary": "from the package mslg-example-plugin", "needs": []}
        assert row in listed[kind]


def test_the_command_line_uses_it_by_name(environment: dict[str, str], tmp_path: Path) -> None:
    words = ("fit", *DATA, "--method", NAMES["methods"], "--set", "smoothing=0.2", "-o", "run", "--quiet")
    mslg(*words, environment=environment, folder=tmp_path)
    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert config["method"]["name"] == "label-smoothing"
    assert config["method"]["smoothing"] == 0.2
    labels = pd.read_parquet(tmp_path / "run" / "labels.parquet")
    assert labels["id"].str.startswith("train-").all()


def test_the_command_line_uses_it_by_import_path(environment: dict[str, str], tmp_path: Path) -> None:
    mslg("fit", *DATA, "--method", BY_PATH, "-o", "run", "--quiet", environment=environment, folder=tmp_path)
    # A registered class is recorded under its name, so that the run can be resumed without trusting a path.
    assert tomllib.loads((tmp_path / "run" / "config.toml").read_text())["method"]["name"] == "label-smoothing"


def test_a_data_set_is_opened_by_import_path(environment: dict[str, str], tmp_path: Path) -> None:
    code = "from mslg.data.open import open_named; open_named('mslg_example_plugin.moons:moons')"
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.slow
def test_a_sweep_uses_it(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(SWEEP)
    mslg("sweep", "grid.toml", "-o", "sweep", "-j", "1", environment=environment, folder=tmp_path)
    table = mslg("table", "sweep", environment=environment, folder=tmp_path)
    assert "smooth" in table


def test_python_takes_the_class(environment: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import mslg, torch\n"
        "from mslg_example_plugin.label_smoothing import LabelSmoothing\n"
        "from mslg_example_plugin.moons import moons\n"
        "network = lambda: torch.nn.Linear(2, 2)\n"
        "mslg.fit(network, moons().train, method=LabelSmoothing, epochs=1, progress=False)\n"
    )
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.slow
def test_its_own_tests_pass(environment: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(PLUGIN / "tests", tmp_path / "tests")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
