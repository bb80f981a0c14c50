"""Write the reference pages from the code: python docs/make/reference.py"""

from __future__ import annotations

from pathlib import Path

from api_reference import api_page
from cli_reference import cli_page

PLACE = Path(__file__).parent.parent / "reference"
NOTE = "<!-- Made by docs/make/reference.py. -->\n\n"


def pages() -> dict[str, str]:
    """The text of each page by its name."""
    return {"cli.md": NOTE + cli_page() + "\n", "api.md": NOTE + api_page()}


if __name__ == "__main__":
    PLACE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (PLACE / name).write_text(text)
