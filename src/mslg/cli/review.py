"""`mslg review`: a run's page on a local server that saves decisions as they are made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def review(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run, or of mslg start.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 0,
    browser: Annotated[bool, typer.Option(" /--no-browser", help="Only print the address.", show_default=False)] = True,
) -> None:
    """Review a run in the browser; every decision is saved to review.csv in its folder at once.

    The server answers this machine only, and only with the token in its address. Stop it with Ctrl-C: nothing is lost.

    Example: mslg review runs/first
    """
    serve_page(run, port=port, browser=browser)


def serve_page(run: Path, *, port: int, browser: bool) -> None:
    """Serve a run's page until interrupted."""
    from ..review.serve import server_of

    server = server_of(run, port=port)
    print(f"review at {server.address}", file=sys.stderr)
    print(f"decisions are saved to {server.path}; stop with Ctrl-C", file=sys.stderr, flush=True)
    if browser:
        import webbrowser

        webbrowser.open(server.address)
    try:
        server.serve_forever()
    finally:
        server.close()
    print(f"stopped; {len(server.read())} decisions are in {server.path}", file=sys.stderr)
