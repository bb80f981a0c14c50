"""Every example is short, runs on a machine without a network, and shows what it promises."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LONGEST = 60  # lines
NEEDS = {
    "accelerate_recipe": "accelerate",
    "hugging_face_images": "datasets",
    "hugging_face_model": "transformers",
    "hugging_face_text": "datasets",
    "lightning_recipe": "lightning",
    "skorch_recipe": "skorch",
    "trainer_recipe": "transformers",
}  # packages that mslg itself does not need
CLUSTER = {"ray_train"}  # started by what runs on several machines
# What must be found in what an example prints, and the least that its first percentage must be.
SHOWN = {
    "accelerate_recipe": (r"soft ([\d.]+)%", 70),
    "trainer_recipe": (r"soft ([\d.]+)%", 68),
    "hugging_face_model": (r"suggested ([\d.]+)%", 90),
    "audio": (r"mslg +test accuracy ([\d.]+)%", 74),
    "hugging_face_images": (r"test accuracy +([\d.]+) %", 90),
    "hugging_face_text": (r"test accuracy +([\d.]+) %", 78),
    "lightning_recipe": (r"soft ([\d.]+)%", 70),
    "own_loop": (r"trusted least ([\d.]+)% are wrong", 90),
    "skorch_recipe": (r"soft ([\d.]+)%", 70),
    "tabular": (r"MSLG +test accuracy ([\d.]+)%", 90),
    "text": (r"mslgclassifier +test accuracy ([\d.]+)%", 75),
    "text_tokens": (r"predicted ([\d.]+)%", 74),
}


def test_every_example_is_short_and_says_how_to_run_it() -> None:
    assert {path.stem for path in EXAMPLES} == {*SHOWN, *CLUSTER}
    for path in EXAMPLES:
        text = path.read_text()
        assert len(text.splitlines()) <= LONGEST, path.name
        assert f"python examples/{path.name}" in text.split('"""')[1], path.name


def test_every_example_is_in_the_table() -> None:
    page = (ROOT / "docs" / "examples.md").read_text()
    assert set(re.findall(r"python examples/(\w+)\.py", page)) >= set(SHOWN)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_it_runs_and_shows_what_it_promises(name: str, tmp_path: Path) -> None:
    package = NEEDS.get(name)
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed; install it with: pip install {package}")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    pattern, least = SHOWN[name]
    found = re.search(pattern, done.stdout + done.stderr)
    assert found is not None, done.stdout
    assert float(found[1]) >= least


PAGES = {
    "accelerate_recipe": "integrations",
    "hugging_face_model": "hugging-face",
    "lightning_recipe": "lightning",
    "skorch_recipe": "integrations",
    "trainer_recipe": "hugging-face",
}


@pytest.mark.parametrize("name", PAGES)
def test_the_recipes_on_the_page_are_those_that_run(name: str) -> None:
    code = (ROOT / "examples" / f"{name}.py").read_text().split('"""\n', 1)[1].strip()
    assert f"```py\n{code}\n```" in (ROOT / "docs" / f"{PAGES[name]}.md").read_text()


@pytest.mark.parametrize("page", ["own-loop", "hugging-face", "lightning"])
def test_from_an_empty_file_to_labels_takes_less_than_40_lines(page: str) -> None:
    first = re.search(
        r"^```py(?:thon)?\n(.*?)^```", (ROOT / "docs" / f"{page}.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert first is not None
    assert len(first[1].splitlines()) < 40
