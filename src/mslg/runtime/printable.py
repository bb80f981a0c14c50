"""Text from data made safe for a terminal."""

from __future__ import annotations

import re

# Controls, soft hyphen, zero-width and bidirectional marks, line and paragraph separators: all invisible.
UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


def visible(text: str, keep: str = "") -> str:
    """The text with a code instead of every invisible character but those to keep."""
    return UNSEEN.sub(lambda match: match[0] if match[0] in keep else f"⟪U+{ord(match[0]):04X}⟫", text)


def printable(text: str) -> str:
    """Lines for a terminal, which must not act on what is in the data: escape sequences are shown, not obeyed. What
    cannot be encoded, as names of files may, is replaced."""
    return visible(text, keep="\n\t").encode("utf-8", "replace").decode()
