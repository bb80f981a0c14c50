"""`mslg start`: check random samples first, to learn how many labels are wrong."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer


def start(
    data: Annotated[str, typer.Argument(help="Data as for mslg fit.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A folder for the page and your decisions.")] = Path(
        "check"
    ),
    root: Annotated[str | None, typer.Option(help="The folder of a named data set.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Which samples are drawn.")] = 0,
    label_column: Annotated[str | None, typer.Option(help="Name of the column of labels.")] = None,
    text_column: Annotated[str | None, typer.Option(help="Name of the column of texts.")] = None,
    path_column: Annotated[str | None, typer.Option(help="Name of the column of image paths.")] = None,
    id_column: Annotated[str | None, typer.Option(help="Name of the column of ids.")] = None,
    browser: Annotated[bool, typer.Option(" /--no-browser", help="Only print the address.", show_default=False)] = True,
    serve: Annotated[bool, typer.Option(" /--no-serve", help="Only write the page.", show_default=False)] = True,
) -> None:
    """Check 100 random samples: the recommended first step.

    Opens a page in the browser and saves your decisions as you make them. They tell how many labels are wrong, with an
    interval, and are the clean set, with given and verified labels, for mslg fit.

    Examples:

    mslg start photos/ -o check

    mslg fit photos/ --clean check/decisions.csv -o runs/first
    """
    from ..data.open import open_named, reading_of
    from ..review.report.next_commands import fit_command, reading_options
    from ..review.start import DECISIONS, write_start

    logging.getLogger("mslg").setLevel(logging.WARNING)
    columns = {"label_column": label_column, "text_column": text_column, "path_column": path_column}
    columns["id_column"] = id_column
    bundle = open_named(data, root=root, reading=reading_of(columns))
    options = reading_options({"root": root, **columns})
    page, about = write_start(bundle.train, data, output, seed=seed, options=options)
    print(
        f"{len(about['samples'])} of {len(bundle.train):,} samples to check, drawn at random: {page}", file=sys.stderr
    )
    print(f"afterwards: {fit_command(data, options, output / DECISIONS)}", file=sys.stderr)
    if serve:
        from .review import serve_page

        serve_page(output, port=0, browser=browser)
