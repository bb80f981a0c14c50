"""The docs hang together: pages are in the navigation, links lead somewhere, what is generated is up to date."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import mslg

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
WITH_LINKS = [*sorted(ROOT.glob("*.md")), *PAGES]
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\[\]]*(?:\[[^\]]*\][^\[\]]*)*\]\((?P<target>[^()\s]+)\)")


def named(entries: list[Any]) -> Iterator[str]:
    """The paths in a navigation, whatever section they are in."""
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from named(value)


def test_the_navigation_has_every_page_once_and_no_other() -> None:
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    there = [page.relative_to(DOCS).as_posix() for page in PAGES]
    assert Counter(named(navigation)) == Counter(there)


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings that both the site and a code host give them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found: dict[str, list[str]] = {"site": [], "host": []}
    for words in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", words).replace("`", "").replace("*", "")
        ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
        site = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())
        host = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        for kind, slug, joint in (("site", site, "_"), ("host", host, "-")):
            times = found[kind].count(slug)
            found[kind].append(f"{slug}{joint}{times}" if times else slug)
    return set(found["site"]) & set(found["host"])


@pytest.mark.parametrize("page", WITH_LINKS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_inside_leads_somewhere(page: Path) -> None:
    broken = []
    for found in LINK.finditer(CODE.sub("", page.read_text())):
        target = found["target"]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        goal = (page.parent / path).resolve() if path else page
        inside = page.parent == ROOT or goal.is_relative_to(DOCS)  # what lies elsewhere is not on the site
        if not goal.exists() or not inside or (anchor and anchor not in slugs(goal)):
            broken.append(target)
    assert not broken


@pytest.fixture(scope="module")
def made() -> Iterator[None]:
    """The scripts that make pages, importable."""
    sys.path.insert(0, str(DOCS / "make"))
    yield
    sys.path.remove(str(DOCS / "make"))


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    "path", ["docs/reference/cli.md", "docs/reference/api.md", "docs/choosing.md", "zensical.toml"]
)
def test_what_is_made_from_the_code_is_up_to_date(path: str) -> None:
    import reference

    assert (ROOT / path).read_text() == reference.pages()[path], "run: make docs-sources"


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("name", ["one_step", "architecture"])
def test_every_figure_is_what_its_script_draws(name: str) -> None:
    script = import_module(name)
    assert script.PLACE.read_text() == script.draw(), f"run: python docs/make/{name}.py"


def test_the_architecture_names_only_what_exists() -> None:
    package = Path(mslg.__file__).parent
    figure = (DOCS / "images" / "architecture.svg").read_text()
    named = set(
        re.findall(r"`(?!tests/|docs/|src/)([a-z_]+/[\w./-]*|[a-z_]+\.py)`", (DOCS / "architecture.md").read_text())
    )
    named |= {path for line in re.findall(r'class="path"[^>]*>([^<]+)<', figure) for path in line.split()}
    assert len(named) > 40
    assert sorted(path for path in named if not (package / path).exists()) == []


def test_the_reference_has_every_public_name() -> None:
    text = (DOCS / "reference" / "api.md").read_text()
    assert [name for name in mslg.__all__ if f"### `mslg.{name}`" not in text] == []


def test_every_command_is_in_the_reference_with_an_example() -> None:
    text = (DOCS / "reference" / "cli.md").read_text()
    sections = re.split(r"^## `mslg ([\w-]+)`$", text, flags=re.MULTILINE)[1:]
    assert len(sections) >= 24
    for name, section in zip(sections[::2], sections[1::2], strict=True):
        assert f"```sh\nmslg {name}" in section


def test_the_help_of_fit_is_grouped() -> None:
    from mslg.runs.settings import DATA, METHOD, OUTPUT, REVIEW, TRAINING

    text = (DOCS / "reference" / "cli.md").read_text()
    section = text.partition("## `mslg fit`")[2].partition("\n## ")[0]
    groups = re.findall(r"^\| (.+?) \| meaning \| default \|$", section, re.MULTILINE)
    assert groups == [DATA, METHOD, TRAINING, REVIEW, OUTPUT]


@pytest.mark.slow
def test_the_site_is_built_without_a_complaint_and_needs_no_other_host(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="zensical is not installed: make docs installs it")
    pytest.importorskip("latex2mathml", reason="latex2mathml is not installed: make docs installs it")
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    environment = {**os.environ, "PYTHONPATH": str(DOCS / "make"), "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        text = page.read_text()
        fetched = re.findall(r'(?:src|<link[^>]*href)="(https?://[^"]+)"', text)
        assert not fetched, page
        assert 'class="arithmatex"' not in text, page
        assert not [formula for formula in re.findall(r"<math.*?</math>", text, re.DOTALL) if "\\" in formula], page
    assert "<math" in (tmp_path / "site" / "how-it-works.html").read_text()
