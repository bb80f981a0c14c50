"""JSON inside a page."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup

ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def embed_json(value: Any) -> Markup:
    """JSON that is safe inside a script element: it can neither end it nor start another."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.translate(ESCAPES))


def embedded_size(value: Any) -> int:
    """The bytes that a value takes in the page, with a comma."""
    return len(embed_json(value).encode(errors="replace")) + 1
