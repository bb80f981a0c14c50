"""Every method has a page with the sections and the arguments that a reader looks for."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from mslg.methods import METHODS

PAGES = Path(__file__).parents[2] / "docs" / "methods"
HEADINGS = ("When to use it", "Arguments", "Logged metrics", "Differences from the original", "Published numbers")


@pytest.mark.parametrize("name", METHODS.built_in)
def test_every_method_has_its_page(name: str) -> None:
    page = PAGES / f"{name}.md"
    assert page.exists(), f"write docs/methods/{name}.md: see CONTRIBUTING.md, A new method"
    text = page.read_text()
    missing = [f"## {heading}" for heading in HEADINGS if f"## {heading}\n" not in text]
    assert not missing, f"docs/methods/{name}.md lacks {', '.join(missing)}"
    arguments = list(inspect.signature(METHODS.load(name)).parameters)[1:]
    missing = [argument for argument in arguments if f"`{argument}`" not in text]
    assert not missing, f"docs/methods/{name}.md lacks the arguments {', '.join(missing)}"


def test_every_page_is_of_a_method() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} <= {*METHODS.built_in}
