"""The command line. One file a verb; torch is imported only by the verbs that need it."""

from __future__ import annotations

import logging
import sys


def main() -> None:
    """Entry point: errors that a user can mend are one clear message and an exit code, not a traceback."""
    from .app import app

    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("mslg").setLevel(logging.INFO)  # ours alone: other libraries talk a lot
    try:
        app()
    except (ValueError, TypeError, OSError, ArithmeticError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        if "-v" in sys.argv or "--verbose" in sys.argv:
            raise
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
