"""Write what the docs take from the code: python docs/make/reference.py (or: make docs-sources)

The reference pages are written whole; navigation and tables of methods are filled into files written by hand.
"""

from __future__ import annotations

from pathlib import Path

from api_reference import api_page
from cli_reference import cli_page
from method_lists import filled

ROOT = Path(__file__).parent.parent.parent
NOTE = "<!-- Made by docs/make/reference.py. -->\n\n"


def pages() -> dict[str, str]:
    """The text of each file by its path below the repository."""
    return {
        "docs/reference/cli.md": NOTE + cli_page() + "\n",
        "docs/reference/api.md": NOTE + api_page(),
        **filled(),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        (ROOT / path).write_text(text)
