"""`mslg review-next`: the samples of a run whose review would help most."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

TEXTS = ("id", "given_label", "suggested_label", "annotator")


def review_next(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    count: Annotated[int, typer.Option("-n", "--count", help="Number of samples.")] = 50,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .csv file to write.")] = None,
    network: Annotated[
        str | None, typer.Option(help="package.module:factory of the network, if the run was started with one.")
    ] = None,
    trust_code: Annotated[bool, typer.Option("--trust-code", help="Import code that the run's folder names.")] = False,
    workers: Annotated[int | None, typer.Option(help="Processes that decode images; up to 4 by default.")] = None,
    page: Annotated[bool, typer.Option("--page", help="Add a tab with these samples to the run's page.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Pick the samples whose true labels are expected to reduce the clean loss most.

    The most useful comes first. The gain of a sample is the expected reduction of the clean loss if its label were
    replaced by the true one, to first order, as a multiple of that of a random sample. Further samples with the same
    kind of mistake are discounted. The rank is that of labels.parquet.

    Examples:

    mslg review-next runs/first -n 50

    mslg review-next runs/first -n 50 --page

    mslg review-next runs/first -n 200 -o next.csv
    """
    if output is not None and output.exists() and not force:
        raise FileExistsError(f"{output} already exists; choose another name, or replace it with --force")

    from ..fitting.review_next import review_next as choose

    rows = choose(run, network, count=count, workers=workers, trust_code=trust_code, page=page)
    if page:
        print(f"{len(rows)} samples added to the page as a tab: mslg review {run}", file=sys.stderr)
    if output is not None:
        from ..runtime.files import write_atomically

        write_atomically(output, _as_csv(rows).encode())
        print(f"{len(rows)} samples to review next: {output}", file=sys.stderr)
    if as_json:
        print(json.dumps({"format_version": 1, "samples": rows.to_dict(orient="records")}, ensure_ascii=False))
    elif output is None and not page and sys.stdout.isatty():
        _show(rows)
    elif output is None and not page:
        print(_as_csv(rows), end="")


def _as_csv(rows: Any) -> str:
    from ..runtime.cells import escaped

    texts = {name: rows[name].map(escaped) for name in TEXTS if name in rows}
    text: str = rows.assign(**texts).to_csv(index=False)
    return text


def _show(rows: Any) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from ..runtime.printable import printable

    names = [name for name in TEXTS if name in rows]
    table = Table("rank", *(name.replace("_", " ") for name in names), "gain")
    for row in rows.itertuples():
        texts = [getattr(row, name) for name in names]
        table.add_row(str(row.rank), *(escape(printable(text)) for text in texts), f"{row.gain:.3g}")
    Console().print(table)
