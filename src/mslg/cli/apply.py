"""`mslg apply`: from a run and a reviewer's decisions to a cleaned data set."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def apply(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    decisions: Annotated[
        Path | None,
        typer.Argument(help="decisions.csv or .json from the report, or the JSON export of Label Studio."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A .parquet or .csv file, or with --to another file or folder."),
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="parquet, csv, label-studio or imagefolder; by default what OUTPUT ends in.")
    ] = None,
    suggested: Annotated[
        bool, typer.Option("--suggested", help="Use the suggested labels of unreviewed samples, not the given ones.")
    ] = False,
    link: Annotated[bool, typer.Option("--link", help="imagefolder: link the files instead of copying them.")] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="imagefolder: the folder of the files, if it is neither below this one nor beside the run."),
    ] = None,
    document_root: Annotated[
        Path, typer.Option(help="label-studio: the folder from which it serves local files.")
    ] = Path("/"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file or folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON on stdout.")] = False,
) -> None:
    """Write the data with corrected labels.

    Reviewed samples get the label decided on; removed ones are left out. Unreviewed samples keep their given label
    unless --suggested is set.

    Examples:

    mslg apply runs/first decisions.csv -o cleaned.parquet

    mslg apply runs/first decisions.csv --to imagefolder -o cleaned/ --link

    mslg apply runs/first decisions.csv --to label-studio -o tasks.json

    mslg apply runs/first -o cleaned.csv --suggested
    """
    if output is None:
        raise typer.BadParameter("name a file or a folder for the cleaned data with -o")

    from ..review.cleaned.write import format_of, write_cleaned
    from ..runs.folder import Run
    from ..runtime.printable import printable

    kind = format_of(output, to)
    counts, folders = write_cleaned(
        Run.open(run),
        output,
        kind,
        decisions=decisions,
        suggested=suggested,
        link=link,
        document_root=document_root,
        force=force,
        data=data,
    )
    if as_json:
        found = {"output": str(output), "format": kind, "samples": counts.samples, "labels": dict(counts.by_source)}
        found |= {"changed": counts.changed, "removed": counts.removed, "folders": folders}
        print(json.dumps(found, ensure_ascii=False))
        return
    parts = ", ".join(f"{count} {source}" for source, count in counts.by_source.most_common())
    print(
        f"{counts.samples} samples with labels: {parts}; {counts.changed} differ from the given ones", file=sys.stderr
    )
    print(f"{counts.removed} removed; written to {output}", file=sys.stderr)
    for name, folder in folders.items():
        print(printable(f"class '{name}' is in the folder '{folder}'"), file=sys.stderr)
