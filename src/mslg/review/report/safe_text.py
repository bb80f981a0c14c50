"""Names from the data made safe to display: short, and without invisible or direction-changing characters."""

from __future__ import annotations

import re

from markupsafe import Markup

LONGEST = 80
# Controls, soft hyphen, zero-width and bidirectional marks, line and paragraph separators: all invisible.
UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


def visible(text: str) -> str:
    """The text with a code instead of every invisible character."""
    return UNSEEN.sub(lambda match: f"⟪U+{ord(match[0]):04X}⟫", text)


def short(text: str, longest: int = LONGEST) -> str:
    """The text shortened in the middle."""
    text = text if len(text) <= 2 * longest else text[:longest] + "…" + text[-longest:]  # a long one is not searched
    text = visible(text)
    if len(text) <= longest:
        return text
    tail = longest // 4
    return f"{text[: longest - tail - 1]}…{text[-tail:]}"


def named(text: str, longest: int = LONGEST, kind: str = "name") -> Markup:
    """A name as HTML: isolated from the direction of the surrounding text, with the long form as a tooltip."""
    shown = short(text, longest)
    if shown == text:
        return Markup('<bdi class="{}">{}</bdi>').format(kind, shown)
    return Markup('<bdi class="{}" title="{}">{}</bdi>').format(kind, short(text, 1000), shown)
