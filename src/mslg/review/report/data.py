"""Data inside of a page."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup

ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def as_data(value: Any) -> Markup:
    """JSON that is safe inside of a script element: there is no way out of it, and no way to begin another."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.translate(ESCAPES))


def size_of(value: Any) -> int:
    """The bytes that a value takes in a page, with the comma after it."""
    return len(as_data(value).encode(errors="replace")) + 1
