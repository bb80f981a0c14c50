"""Names from the data made safe to display: short, and without invisible or direction-changing characters."""

from __future__ import annotations

from markupsafe import Markup

from ...runtime.printable import visible

LONGEST = 80


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
