"""`mslg fit`: noisy data and clean data in; a model, corrected labels and a run's folder out."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..runs.settings import assignments, checked, load_recipe, merged, run_recipe

# The groups of options that --help shows.
DATA, METHOD, TRAINING = "Data", "Method and network", "Training"
REVIEW, OUTPUT = "Review", "Output and resuming"


def fit(
    data: Annotated[
        str | None,
        typer.Argument(
            help="An image folder, a .csv or .parquet manifest, an .npz, or a data set's name (mslg list datasets)."
        ),
    ] = None,
    clean: Annotated[
        str | None,
        typer.Option(
            help="Clean data like DATA; or a number of verified samples to take out of it; or auto.",
            rich_help_panel=DATA,
        ),
    ] = None,
    root: Annotated[
        str | None, typer.Option(help="Where the files of a named data set are.", rich_help_panel=DATA)
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Other labels for DATA, by id: a .csv or .parquet of mslg noise or mslg apply.", rich_help_panel=DATA
        ),
    ] = None,
    corrupt: Annotated[
        str | None, typer.Option(help="Images that cannot be read: error (default) or skip.", rich_help_panel=DATA)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that decode images; by default up to 4.", rich_help_panel=DATA)
    ] = None,
    noise: Annotated[
        str | None, typer.Option(help="Corrupt the labels first: see mslg list noises.", rich_help_panel=DATA)
    ] = None,
    rate: Annotated[float | None, typer.Option(help="The share of labels to corrupt.", rich_help_panel=DATA)] = None,
    method: Annotated[str | None, typer.Option(help="See: mslg list methods.", rich_help_panel=METHOD)] = None,
    preset: Annotated[
        str | None, typer.Option(help="A named set of the method's settings, such as released.", rich_help_panel=METHOD)
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            help="See: mslg list networks; or torchvision:NAME, timm:NAME, package.module:factory.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="Run this network once over the data and train a head on its features: named like NETWORK.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    augment: Annotated[
        str | None,
        typer.Option(help="What is done to images, such as 'flip crop-4 normalise-0.5'.", rich_help_panel=METHOD),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="A recipe's name or a TOML file; other options win over it.", rich_help_panel=METHOD),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting: key=value. May be repeated.", rich_help_panel=METHOD)
    ] = None,
    noise_rate: Annotated[
        float | None,
        typer.Option(help="For methods that must be told the share of wrong labels.", rich_help_panel=METHOD),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training data.", rich_help_panel=TRAINING)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples a step.", rich_help_panel=TRAINING)] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of the network.", rich_help_panel=TRAINING)] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="float32, or bf16 or (GPUs only) fp16: half precision.", rich_help_panel=TRAINING),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same result.", rich_help_panel=TRAINING)] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …", rich_help_panel=TRAINING)] = "auto",
    time_budget: Annotated[
        str | None, typer.Option(help="Train no longer than this, such as 45s, 30m or 2h.", rich_help_panel=TRAINING)
    ] = None,
    from_run: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Go on from this finished run, with its settings where no others are given.",
            rich_help_panel=REVIEW,
        ),
    ] = None,
    decisions: Annotated[
        list[Path] | None,
        typer.Option(
            help="A reviewer's decisions.csv: reviewed samples join the clean set. May be repeated.",
            rich_help_panel=REVIEW,
        ),
    ] = None,
    fdr: Annotated[
        float | None,
        typer.Option(
            help="Call labels issues as long as at most this part of them is right after all, such as 0.1.",
            rich_help_panel=REVIEW,
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            " /--no-compare",
            help="Do not train the controls that tell whether it helped.",
            show_default=False,
            rich_help_panel=REVIEW,
        ),
    ] = True,
    report: Annotated[
        bool,
        typer.Option(
            " /--no-report",
            help="Do not write report.html, the page on which to review the labels.",
            show_default=False,
            rich_help_panel=REVIEW,
        ),
    ] = True,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The run's folder.", rich_help_panel=OUTPUT)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run.", rich_help_panel=OUTPUT)
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing run.", rich_help_panel=OUTPUT)] = False,
    checkpoint_minutes: Annotated[
        float, typer.Option(help="Time between checkpoints inside an epoch.", rich_help_panel=OUTPUT)
    ] = 10.0,
    loggers: Annotated[
        list[str] | None,
        typer.Option(
            "--log", help="Log epochs there too: tensorboard, wandb or mlflow. May be repeated.", rich_help_panel=OUTPUT
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON on stdout.", rich_help_panel=OUTPUT)
    ] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Only warnings and errors.", rich_help_panel=OUTPUT)
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Details, and tracebacks of errors.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Train on noisy labels and learn better ones.

    Examples:

    mslg fit data.npz --clean clean.npz -o runs/first

    mslg fit photos/ --clean verified/ -o runs/photos

    mslg fit digits --noise uniform --rate 0.4 --clean 100 -o runs/digits --epochs 20

    mslg fit -o runs/first --resume

    mslg fit --from runs/first --decisions decisions.csv -o runs/second

    torchrun --nproc-per-node 4 -m mslg fit photos/ --clean verified/ -o runs/photos
    """
    first = os.environ.get("RANK", "0") == "0"  # of several processes that torchrun has started
    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    logging.getLogger("mslg").setLevel(level if first else logging.ERROR)
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":  # one of them died, and all were started again
        resume, force = True, False
    layers: list[Any] = []
    if recipe is not None:
        layers.append(load_recipe(recipe, noise=noise, rate=rate))
    if from_run is not None:
        layers.append(_to_go_on_from(from_run))
    if resume and output is not None:
        if (output / "config.toml").exists():
            layers.append(_of_run(output))
        elif data is None and recipe is None and from_run is None:
            raise FileNotFoundError(f"there is no run in {output} to go on with; start one: mslg fit DATA -o {output}")
    given = {
        "data": {
            "source": data,
            "clean": _number(clean),
            "noise": noise,
            "rate": rate,
            "features": features,
            "root": root,
            "corrupt": corrupt,
            "labels": labels,
        },
        "network": {"name": network},
        "method": {"name": method, "preset": preset},
        "train": {
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "precision": precision,
            "seed": seed,
            "noise_rate": noise_rate,
            "augment": None if augment is None else augment.split(),
            "from_run": None if from_run is None else str(from_run),
            "fdr": fdr,
        },
    }
    layers.append(given)
    name = merged(*layers)["method"].get("name", "mslg")
    layers.append(assignments(settings or [], name))
    resolved = merged(*layers)
    if "source" not in resolved["data"]:
        raise typer.BadParameter("name the data: a folder, a file or a data set (mslg list datasets)")
    if output is None:
        raise typer.BadParameter("name a folder for the run with -o")

    from ..fitting.fit import fit as fit_data

    try:
        result = run_recipe(
            resolved,
            fit_data,
            workers=workers,
            output=output,
            resume=resume,
            force=force,
            decisions=decisions,
            device=device,
            checkpoint_minutes=checkpoint_minutes,
            time_budget=None if time_budget is None else seconds(time_budget),
            compare=compare,
            loggers=loggers or (),
            progress=not quiet,
        )
    except KeyboardInterrupt:
        print(f"interrupted; go on with: mslg fit -o {output} --resume", file=sys.stderr)
        raise typer.Exit(130) from None
    if not first:
        return
    page = None
    if report:
        from ..review.report import write_report

        page = write_report(output)
    if as_json:
        print(json.dumps(result.summary))
    elif not quiet:
        _tell(result, output)
        if page is not None:
            print(f"review them on this page: {page}", file=sys.stderr)


def seconds(text: str) -> float:
    """A duration such as 45s, 30m, 2h or 90 (seconds)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None:
        raise typer.BadParameter(f"'{text}' is no duration; write 45s, 30m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _of_run(output: Path) -> Any:
    import tomllib

    return checked(tomllib.loads((output / "config.toml").read_text()))


def _to_go_on_from(run: Path) -> Any:
    """The settings of an earlier run, but for its length and its own start."""
    if not (run / "config.toml").exists():
        raise FileNotFoundError(f"{run} is not a run's folder: it has no config.toml; name a finished run with --from")
    settings = _of_run(run)
    for key in ("epochs", "from_run"):
        settings["train"].pop(key, None)
    return settings


def _number(clean: str | None) -> str | int | None:
    return int(clean) if clean is not None and clean.isdigit() else clean


def _tell(result: Any, output: Path) -> None:
    last = result.summary.get("last", {})
    for key, words in {
        "test/accuracy": "test accuracy",
        "report/accuracy": "accuracy on held-out clean samples",
        "given/accuracy": "given labels that are right",
        "predictions/accuracy": "predicted labels that are right",
        "labels/accuracy": "labels in the table that are right",
    }.items():
        if last.get(key) is not None:
            print(f"{words:<36} {100 * last[key]:5.1f} %", file=sys.stderr)
    held_out = result.summary.get("clean_samples", {}).get("report")
    if not held_out and "test/accuracy" not in last:
        print(
            "no accuracy: there is no test set, and fewer than 200 clean samples are all needed for the label learning",
            file=sys.stderr,
        )
    comparison = result.summary.get("comparison", {})
    if comparison and comparison["helped"] is not False:  # otherwise it was a warning
        print(comparison["verdict"], file=sys.stderr)
    issues, samples = result.summary["label_issues"], result.summary.get("training_samples", 0)
    where = output / "labels.parquet"
    print(f"{issues} of {samples} labels look wrong, worst first by rank: {where}", file=sys.stderr)
    for line in _error_rate(result.summary["label_errors"]):
        print(line, file=sys.stderr)


def _error_rate(stated: Mapping[str, Any]) -> Iterator[str]:
    """How many labels are wrong and how many of those listed, in words."""
    if "count" not in stated:
        yield f"how many of them really are cannot be said: {stated['why']}"
        return
    count, flagged = stated["count"], stated["flagged"]
    yield f"about {count['estimate']:,.0f} labels are wrong ({count['low']:,.0f} to {count['high']:,.0f})"
    if "estimate" in flagged:
        shares = [f"{100 * flagged[key]:.0f}" for key in ("estimate", "low", "high")]
        yield f"of those that look wrong about {shares[0]} % are ({shares[1]} to {shares[2]} %)"
    if stated["basis"] == "injected":
        yield "(worked out without clean samples that carry their given label too: see the docs on the error rate)"
