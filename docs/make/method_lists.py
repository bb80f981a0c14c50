"""Lists of methods in files that are otherwise written by hand: each is filled in from the registry."""

from __future__ import annotations

import re
from pathlib import Path

from mslg.methods import METHODS

ROOT = Path(__file__).parent.parent.parent
NEEDS = {
    (): "nothing",
    ("clean set",): "clean samples",
    ("noise rate",): "the noise rate, or samples with given and verified labels",
    ("transition matrix",): "the transition matrix, or samples with given and verified labels",
}


def filled() -> dict[str, str]:
    """The text of each file by its path below the repository."""
    navigation = "".join(f'    {{ "{name}" = "methods/{name}.md" }},\n' for name in METHODS.built_in)
    return {
        "zensical.toml": _replaced("zensical.toml", r'(  \{ "Methods" = \[[^\n]*\n)(.*?)(  \] \},\n)', navigation),
        "docs/choosing.md": _replaced(
            "docs/choosing.md", r"(<!-- needs of the methods[^\n]*\n\n)(.*?)(\n<!-- end -->)", _table_of_needs()
        ),
    }


def _table_of_needs() -> str:
    groups: dict[tuple[str, ...], list[str]] = {needs: [] for needs in NEEDS}
    for name, entry in METHODS.built_in.items():
        groups.setdefault(entry.needs, []).append(f"[{name}](methods/{name}.md)")
    rows = [f"| {NEEDS.get(needs, ' and '.join(needs))} | {', '.join(links)} |" for needs, links in groups.items()]
    return "\n".join(["| needs | methods |", "|---|---|", *rows, ""])


def _replaced(path: str, pattern: str, text: str) -> str:
    before = (ROOT / path).read_text()
    after, times = re.subn(pattern, lambda found: found[1] + text + found[3], before, flags=re.DOTALL)
    if times != 1:
        raise ValueError(f"{path} has {times} places for a list of methods, marked by {pattern}; it must have one")
    return after
