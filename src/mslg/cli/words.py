"""Messages in the words of the command line: `pass clean= (--clean)` becomes `pass --clean`."""

from __future__ import annotations

import re

OPTION_OF_ARGUMENT = re.compile(r"\b\w+=\S* \((--[a-z][a-z-]*(?: \w+)?)\)")
ARGUMENT_OF_OPTION = re.compile(r"(--[a-z][a-z-]*) \(\w+=\w+\)")


def in_cli_words(text: str) -> str:
    """The text without the Python argument, where it names an option beside it."""
    return ARGUMENT_OF_OPTION.sub(r"\1", OPTION_OF_ARGUMENT.sub(r"\1", text))
