"""Messages name options, not Python arguments."""

from __future__ import annotations

import pytest

from mslg.cli.words import in_cli_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pass clean= (--clean): a set", "pass --clean: a set"),
        ('skip them with corrupt="skip" (--corrupt skip):', "skip them with --corrupt skip:"),
        ("skip them with --no-compare (compare=False)", "skip them with --no-compare"),
        ("leave out from_run= (--from) for a cold start", "leave out --from for a cold start"),
        ("this noise needs a rate (--rate): the share", "this noise needs a rate (--rate): the share"),
        ("x = (1 + 2)", "x = (1 + 2)"),
    ],
)
def test_an_option_replaces_the_argument_beside_it(text: str, words: str) -> None:
    assert in_cli_words(text) == words
