"""Write settings as TOML, the counterpart of the standard library's `tomllib`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def dumps(tables: Mapping[str, Any]) -> str:
    """TOML for a mapping of plain values and nested tables. None is left out."""
    plain = {key: value for key, value in tables.items() if not isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items() if value is not None]
    for name, table in tables.items():
        if isinstance(table, Mapping):
            lines += _table(_key(name), table)
    return "\n".join(lines).lstrip("\n") + "\n"


def _table(name: str, table: Mapping[str, Any]) -> list[str]:
    lines = ["", f"[{name}]"]
    inner = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            inner += _table(f"{name}.{_key(key)}", value)
        elif value is not None:
            lines.append(f"{_key(key)} = {_value(value)}")
    return lines + inner


def _key(key: str) -> str:
    return key if key and all(c.isascii() and (c.isalnum() or c in "-_") for c in key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return _text(str(value))


def _text(text: str) -> str:
    # JSON escapes strings as TOML does, except for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
