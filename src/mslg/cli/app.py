"""The verbs, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from .apply import apply
from .check import check
from .demo import demo
from .doctor import doctor
from .export import export
from .fit import fit
from .issues import issues
from .list import list_
from .noise import noise
from .plot import plot
from .predict import predict
from .report import report
from .review import review
from .review_next import review_next
from .start import start
from .sweep import sweep
from .table import table
from .verify import verify

app = typer.Typer(
    name="mslg",
    help="Train on labels that are partly wrong, and find out which ones are.",
    epilog="Start with: mslg demo, or with your own data: mslg start DATA",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(start)
app.command()(fit)
app.command()(issues)
app.command()(report)
app.command()(review)
app.command()(apply)
app.command("review-next")(review_next)
app.command()(predict)
app.command()(export)
app.command()(check)
app.command()(verify)
app.command()(noise)
app.command()(sweep)
app.command()(table)
app.command()(plot)
app.command("list")(list_)
app.command()(doctor)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"mslg {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Train on labels that are partly wrong, and find out which ones are."""
