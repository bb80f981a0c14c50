"""`mslg issues`: label issues from any model's probabilities, without training."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .words import in_cli_words


def issues(
    labels: Annotated[
        str,
        typer.Argument(
            help="The given labels: .csv or .parquet with the column label (id, path, text), .npy, a folder."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder of the run to write.")],
    pred_probs: Annotated[
        list[Path] | None,
        typer.Option(
            "--pred-probs", help="Out-of-sample probabilities, .npy .npz .parquet .csv; repeat for more models."
        ),
    ] = None,
    verified: Annotated[
        str | None,
        typer.Option(help="Verified labels of some samples: .csv or .parquet with id and label, .npy, a folder."),
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="Embeddings, .npy: similar samples, duplicates, samples of no class.")
    ] = None,
    classes: Annotated[str | None, typer.Option(help="Class of each column of unnamed probabilities: a,b,c.")] = None,
    fdr: Annotated[float | None, typer.Option(help="The same as --flag fdr=…: a false discovery rate.")] = None,
    flag: Annotated[
        str | None, typer.Option(help="Which labels are flagged: balanced (default), expected, likelier, fdr=0.1, 500.")
    ] = None,
    annotators: Annotated[
        bool,
        typer.Option(
            "--annotators",
            help="LABELS are votes: id, annotator, label, or a column per annotator. Needs no --pred-probs.",
        ),
    ] = False,
    report: Annotated[bool, typer.Option(" /--no-report", help="Do not write report.html.", show_default=False)] = True,
    root: Annotated[Path | None, typer.Option(help="The folder of a named data set's files.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a run that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON on stdout.")] = False,
) -> None:
    """Find label issues with the probabilities of any model, without training.

    The folder is a run like those of mslg fit, without a model: mslg report, apply, export --to csv and review-next
    work on it. With --verified, the labels of about 100 random samples that somebody checked, it also says how many
    labels are wrong.

    Examples:

    mslg issues labels.csv --pred-probs probs.npy --verified checked.csv -o runs/mine

    mslg issues photos --pred-probs a.parquet --pred-probs b.parquet --features embeddings.npy -o runs/photos

    mslg issues labels.npy --pred-probs probs.npy -o runs/mine --flag fdr=0.1

    mslg issues votes.csv --annotators --pred-probs probs.npy --verified checked.csv -o runs/votes
    """
    if not pred_probs and not annotators:
        raise typer.BadParameter(
            "pass the probabilities of a model, or --annotators if LABELS are votes", param_hint="--pred-probs"
        )
    if output.exists() and not force:
        raise FileExistsError(f"{output} already exists; choose another name, or replace it with --force")

    from ..fitting.find_label_issues import find_label_issues
    from ..issues.flagging import Flagging

    flagging = Flagging.parse("balanced" if flag is None and fdr is None else flag, fdr)
    options: dict[str, Any] = {"fdr": flagging.fdr, "flag": flagging.flag, "root": root, "annotators": annotators}
    found = find_label_issues(
        labels,
        pred_probs or None,
        verified=verified,
        features=features,
        classes=None if classes is None else [name.strip() for name in classes.split(",")],
        **options,
    )
    run = found.save(output, force=force)
    page = None
    if report:
        from ..review.report import write_report

        page = write_report(run.path)
    if as_json:
        print(json.dumps({"run": str(run.path), **found.summary, "warnings": found.warnings}, ensure_ascii=False))
        return
    print(in_cli_words(found.statement), file=sys.stderr)
    print(f"labels: {run.path / 'labels.parquet'}", file=sys.stderr)
    if page is not None:
        print(f"report: {page}", file=sys.stderr)
