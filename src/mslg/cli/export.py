"""`mslg export`: a run's model, labels or data for other programs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    to: Annotated[str, typer.Option(help="onnx, pt2, safetensors, huggingface, label-studio, csv or imagefolder.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A file or folder; by default one in the run's folder.")
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="onnx, pt2: package.module:factory of a network that was made in Python.")
    ] = None,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="onnx, pt2: import the network's code that the run's folder names.")
    ] = False,
    soft: Annotated[bool, typer.Option("--soft", help="csv: soft labels too, one column p_CLASS per class.")] = False,
    all_: Annotated[
        bool, typer.Option("--all", help="label-studio: all training samples, not only flagged ones.")
    ] = False,
    decisions: Annotated[
        Path | None, typer.Option(help="label-studio, imagefolder, huggingface: a reviewer's decisions.csv or .json.")
    ] = None,
    document_root: Annotated[
        Path | None, typer.Option(help="label-studio: the folder from which it serves local files.")
    ] = None,
    suggested: Annotated[
        bool,
        typer.Option(
            "--suggested", help="imagefolder, huggingface: suggested labels of unreviewed samples, not given ones."
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="imagefolder, huggingface: the folder of the data, if it is neither below this one nor beside the run."
        ),
    ] = None,
    link: Annotated[
        bool, typer.Option("--link", help="imagefolder, huggingface: link image files instead of copying them.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file or folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the path as JSON on stdout.")] = False,
) -> None:
    """Write a run's model, labels or data for other programs.

    imagefolder and huggingface write the labels of mslg apply: unreviewed samples keep their given label unless
    --suggested is set.

    Examples:

    mslg export runs/first --to onnx

    mslg export runs/first --to csv -o labels.csv --soft

    mslg export runs/first --to huggingface -o hub

    mslg export runs/photos --to imagefolder -o relabelled/ --suggested --link

    mslg export runs/photos --to label-studio -o tasks.json --document-root /data
    """
    from ..review.export import export as write

    if trust_code and network is None:
        from ..runs.load_model import named_network

        network = named_network(run)
    given: dict[str, Any] = {
        "network": network,
        "soft": soft,
        "all": all_,
        "decisions": decisions,
        "document_root": document_root,
        "suggested": suggested,
        "link": link,
        "data": data,
    }
    options = {name: value for name, value in given.items() if value not in (None, False)}
    path = write(run, to=to, path=output, force=force, **options)
    if as_json:
        print(json.dumps({"output": str(path), "format": to}, ensure_ascii=False))
    else:
        print(f"written: {path}", file=sys.stderr)
