"""The command line. One file a verb; torch is imported only by the verbs that need it."""

from __future__ import annotations

import logging
import os
import sys

KNOWN = (ValueError, TypeError, OSError, ArithmeticError, ImportError, MemoryError)  # with a message for the user


def main() -> None:
    """Entry point: every error is one clear message and an exit code; unforeseen ones write a traceback to a file."""
    from ..runtime.signals import raised
    from .app import app

    os.environ.setdefault("PYTHONSAFEPATH", "1")  # worker processes do not look for modules in the current folder
    _log_to_stderr()
    try:
        with raised():
            app()
    except SystemExit as end:
        raise _after_interrupt(end) from None
    except Exception as error:
        from .failure import explain

        print(f"error: {explain(error, foreseen=isinstance(error, KNOWN))}", file=sys.stderr)
        if "-v" in sys.argv or "--verbose" in sys.argv:
            raise
        sys.exit(1)


def _log_to_stderr() -> None:
    from ..runtime.printable import printable
    from .words import in_cli_words

    class Printable(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return printable(in_cli_words(super().format(record)))

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Printable("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("mslg").setLevel(logging.INFO)  # ours alone: other libraries talk a lot


def _after_interrupt(end: SystemExit) -> SystemExit:
    """typer ends with 130 and without a word, whatever the signal was."""
    cause = end.__context__.__cause__ if end.__context__ is not None else None
    if not isinstance(cause, KeyboardInterrupt):
        return end
    print(str(cause) or "interrupted", file=sys.stderr)
    return SystemExit(getattr(cause, "exit_code", 130))
