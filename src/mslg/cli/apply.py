"""`mslg apply`: a run and a reviewer's decisions in; a cleaned data set out."""

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
        typer.Argument(help="The decisions.csv or .json that the report's page has saved, or Label Studio's JSON."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .parquet or .csv; or with --to another file or folder.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="parquet, csv, label-studio or imagefolder; else the name of OUTPUT tells.")
    ] = None,
    accept_rest: Annotated[
        bool, typer.Option("--accept-rest", help="Give flagged samples that nobody reviewed the suggested label.")
    ] = False,
    link: Annotated[bool, typer.Option("--link", help="Link the files of an image folder instead of copying.")] = False,
    document_root: Annotated[Path, typer.Option(help="The folder that Label Studio serves local files from.")] = Path(
        "/"
    ),
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON on stdout.")] = False,
) -> None:
    """Write the data with its labels corrected: as decided, else as given. Removed samples are left out.

    Examples:

    mslg apply runs/first decisions.csv -o cleaned.parquet

    mslg apply runs/first decisions.csv --to imagefolder -o cleaned/ --link

    mslg apply runs/first decisions.csv --to label-studio -o tasks.json

    mslg apply runs/first -o cleaned.csv --accept-rest
    """
    if output is None:
        raise typer.BadParameter("name a file or a folder for the cleaned data with -o")

    from ..review.cleaned import cleaned, format_of, write
    from ..review.cleaned.samples import has_paths
    from ..runs.folder import Run

    kind = format_of(output, to)
    opened = Run.open(run)
    pieces, counts = cleaned(opened, decisions, accept_rest=accept_rest)
    renamed = write(
        output,
        pieces,
        kind,
        classes=opened.read_json("classes.json")["classes"],
        files=has_paths(opened),
        link=link,
        document_root=document_root,
        force=force,
    )
    if as_json:
        told = {"output": str(output), "format": kind, "samples": counts.samples, "labels": dict(counts.by_source)}
        told |= {"changed": counts.changed, "removed": counts.removed, "folders": renamed}
        print(json.dumps(told, ensure_ascii=False))
        return
    parts = ", ".join(f"{count} {source}" for source, count in counts.by_source.most_common())
    print(
        f"{counts.samples} samples with labels: {parts}; {counts.changed} differ from the given ones", file=sys.stderr
    )
    print(f"{counts.removed} removed; written to {output}", file=sys.stderr)
    for name, folder in renamed.items():
        print(f"class '{name}' is in the folder '{folder}'", file=sys.stderr)
