"""`mslg fit`: noisy data and clean data in; a model, corrected labels and a run's folder out."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from ..registry import import_only
from ..runs.finished import read_config, read_json
from ..runs.recipes import assignments, checked, load_recipe, merged, refuse_code, typed_code
from ..runs.settings import DEFAULT_METHOD, METHOD, OUTPUT, REVIEW, Data, Options, Tables, Train
from ..runtime.signals import Interrupted
from .options import with_settings
from .words import in_cli_words


@with_settings(Data, Train, Options)
def fit(
    data: Annotated[
        str | None,
        typer.Argument(
            help="An image folder, a table (.csv, .tsv, .parquet, .xlsx), an .npz, or a data set's name "
            "(mslg list datasets)."
        ),
    ] = None,
    *,
    method: Annotated[
        str | None, typer.Option(help="See: mslg list methods; or package.module:Name.", rich_help_panel=METHOD)
    ] = None,
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
    recipe: Annotated[
        str | None,
        typer.Option(help="A recipe's name or a TOML file; other options override it.", rich_help_panel=METHOD),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting: key=value. May be repeated.", rich_help_panel=METHOD)
    ] = None,
    decisions: Annotated[
        list[Path] | None,
        typer.Option(
            help="A reviewer's decisions.csv: reviewed samples join the clean set. May be repeated.",
            rich_help_panel=REVIEW,
        ),
    ] = None,
    report: Annotated[
        bool,
        typer.Option(
            " /--no-report",
            help="Do not write report.html, the page for reviewing the labels.",
            show_default=False,
            rich_help_panel=REVIEW,
        ),
    ] = True,
    trust_code: Annotated[
        bool,
        typer.Option("--trust-code", help="Import code that a recipe or a run's folder names.", rich_help_panel=OUTPUT),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON on stdout.", rich_help_panel=OUTPUT)
    ] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Only warnings and errors.", rich_help_panel=OUTPUT)
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Details, and tracebacks of errors.", rich_help_panel=OUTPUT)
    ] = False,
    **given: Any,
) -> None:
    """Train on noisy labels and learn better ones.

    Examples:

    mslg fit photos/ --clean check/decisions.csv -o runs/first

    mslg fit data.npz --clean clean.npz -o runs/second

    mslg fit digits --noise uniform --rate 0.4 --clean 100 -o runs/digits --epochs 20

    mslg fit -o runs/first --resume

    mslg fit --from runs/first --decisions decisions.csv -o runs/second

    torchrun --nproc-per-node 4 -m mslg fit photos/ --clean verified/ -o runs/photos
    """
    _set_log_level(quiet, verbose)
    options = _run_options(given)
    typed = _typed(given, data, network, method, preset)
    if _show_finished([typed, recipe, settings, decisions], options, report, as_json, quiet):
        return
    tables = _layered(typed, settings or [], recipe, options, trust_code)
    if "source" not in tables["data"]:
        raise typer.BadParameter("name the data: a folder, a file or a data set (mslg list datasets)")
    named = typed_code(typed) | {pair.partition("=")[2].strip() for pair in settings or []}
    with import_only(None if trust_code else named):
        result = _fit(tables, decisions, options, progress=not quiet)
    if _is_main_process():
        _show(result, options["output"], report=report, as_json=as_json, quiet=quiet)


def _typed(
    given: Mapping[str, Any], data: str | None, network: str | None, method: str | None, preset: str | None
) -> Tables:
    """The settings of the command line, table by table; None where one was not given."""
    return {
        "data": {**_of(Data, given), "source": data, "clean": _number(given["clean"])},
        "network": {"name": network},
        "method": {"name": method, "preset": preset},
        "train": {**_of(Train, given), "augment": given["augment"] and given["augment"].split()},
    }


def _is_main_process() -> bool:
    return os.environ.get("RANK", "0") == "0"  # set by torchrun


def _set_log_level(quiet: bool, verbose: bool) -> None:
    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    logging.getLogger("mslg").setLevel(level if _is_main_process() else logging.ERROR)


def _run_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the run that were given, with the time budget in seconds."""
    options = {key: value for key, value in _of(Options, given).items() if value is not None}
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":  # torchrun restarted all processes after a failure
        options |= {"resume": True, "force": False}
    if options.get("output") is None:
        raise typer.BadParameter("name a folder for the run with -o")
    if "time_budget" in options:
        options["time_budget"] = seconds(options["time_budget"])
    return options


def _fit(tables: Tables, decisions: list[Path] | None, options: Mapping[str, Any], *, progress: bool) -> Any:
    from ..fitting.fit import fit_settings
    from ..runtime.no_dynamo import leave_dynamo_out

    leave_dynamo_out()
    try:
        return fit_settings(tables, decisions=decisions, progress=progress, **options)
    except KeyboardInterrupt as error:
        if _is_main_process():
            place = options["output"]
            there = (place / "config.toml").exists()
            how = f"continue with: mslg fit -o {place} --resume" if there else "the run had not begun"
            print(f"{error or 'interrupted'}; {how}", file=sys.stderr)
        raise typer.Exit(error.exit_code if isinstance(error, Interrupted) else 130) from None


def _show_finished(asked: list[Any], options: Mapping[str, Any], report: bool, as_json: bool, quiet: bool) -> bool:
    """Whether the run is finished and nothing else was asked for: there is nothing to resume, and neither data nor
    network is needed to say so. One that was not compared with its controls can still be."""
    folder = options["output"]
    there = (folder / "config.toml").exists() and (folder / "done").exists()
    typed, *others = asked
    values = [*others, *(value for table in typed.values() for value in table.values())]
    if not options.get("resume") or not there or any(value not in (None, False) for value in values):
        return False
    summary = read_json(folder / "summary.json")
    if options.get("compare") and "comparison" not in summary:
        return False
    if not _is_main_process():
        return True
    if as_json:
        print(json.dumps({key: value for key, value in summary.items() if key != "format_version"}))
    elif not quiet:
        print(f"{folder} is finished: there is nothing to resume", file=sys.stderr)
        page = folder / "report.html"
        if report and page.exists():
            print(f"review its labels on this page: {page}", file=sys.stderr)
    return True


def _show(result: Any, output: Path, *, report: bool, as_json: bool, quiet: bool) -> None:
    """Write the report, and print the results."""
    page = None
    if report:
        from ..review.report import write_report

        page = write_report(output)
    if as_json:
        print(json.dumps(result.summary))
    elif not quiet:
        _print_summary(result, output)
        if page is not None:
            print(f"review them: mslg review {output} (saves as you go), or open {page}", file=sys.stderr)


def seconds(text: str) -> float:
    """A duration such as 45s, 30m, 2h or 90 (seconds)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None:
        raise typer.BadParameter(f"'{text}' is not a duration; write 45s, 30m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _of(table: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that belong to this table."""
    return {item.name: given[item.name] for item in fields(table) if item.name in given}


def _layered(
    typed: Tables, pairs: list[str], recipe: str | None, options: Mapping[str, Any], trust_code: bool
) -> Tables:
    """The settings of the recipe, of the run to start from or resume, and of the command line, in this order."""
    data, start, output = typed["data"], typed["train"]["from_run"], options["output"]
    files: dict[str, Tables] = {}
    if recipe is not None:
        files[recipe] = load_recipe(recipe, noise=data["noise"], rate=data["rate"])
    if start is not None:
        files[str(start)] = _to_start_from(start)
    if options.get("resume"):
        if (output / "config.toml").exists():
            files[str(output)] = _of_run(output)
        elif data["source"] is None and recipe is None and start is None:
            raise FileNotFoundError(f"there is no run in {output} to resume; start one: mslg fit DATA -o {output}")
    layers = [*files.values(), typed]
    if not trust_code:
        for file, tables in files.items():
            refuse_code({name: {**tables[name], **_given(typed, name)} for name in tables}, typed, file)
    name = merged(*layers)["method"].get("name", DEFAULT_METHOD)
    return merged(*layers, assignments(pairs, name))


def _given(tables: Tables, name: str) -> dict[str, Any]:
    return {key: value for key, value in tables.get(name, {}).items() if value is not None}


def _of_run(folder: Path) -> Tables:
    return checked(read_config(folder))


def _to_start_from(run: Path) -> Tables:
    """The settings of an earlier run, except for its length and its own warm start."""
    if not (run / "config.toml").exists():
        raise FileNotFoundError(f"{run} is not a run's folder: it has no config.toml; name a finished run with --from")
    settings = _of_run(run)
    for key in ("epochs", "from_run"):
        settings["train"].pop(key, None)
    return settings


def _number(clean: str | None) -> str | int | None:
    return int(clean) if clean is not None and clean.isdigit() else clean


def _print_summary(result: Any, output: Path) -> None:
    from ..review.report.findings import flag_words, flagged_verb

    last = result.summary.get("last", {})
    if "memorised" in result.summary:
        print(result.summary["memorised"], file=sys.stderr)
    comparison = result.summary.get("comparison", {})
    if comparison and comparison["helped"] is not False:  # otherwise it was a warning
        print(in_cli_words(comparison["verdict"]), file=sys.stderr)
    for key, words in {
        "test/accuracy": "test accuracy",
        "report/accuracy": "accuracy on held-out clean samples",
        "given/accuracy": "given labels that are right",
        "predictions/accuracy": "predicted labels that are right",
        "labels/accuracy": "labels in the table that are right",
    }.items():
        if last.get(key) is not None:
            print(f"{words:<36} {100 * last[key]:5.1f} %", file=sys.stderr)
    clean = result.summary.get("clean_samples", {})
    if not clean.get("report") and "test/accuracy" not in last and not comparison.get("out_of_fold"):
        print(
            "accuracy not measured: there are no test samples, and none of the clean ones are held out", file=sys.stderr
        )
    if not any(clean.values()):
        print("without clean samples, the list is the network's guess about its own training data", file=sys.stderr)
    if "memorised_unknown" in result.summary:
        why = result.summary["memorised_unknown"]
        print(f"whether the network has memorised wrong labels is unknown: {why}", file=sys.stderr)
    issues, samples = result.summary["label_issues"], result.summary.get("training_samples", 0)
    settings = read_config(output)["train"]
    errors = result.summary["label_errors"]
    why = errors.get("flagged", {}).get("why")
    told = f"{issues:,} of {samples:,} labels {flagged_verb(settings)}: {flag_words(settings, errors['basis'])}"
    print(told if why is None else in_cli_words(why), file=sys.stderr)
    for line in _error_rate(errors, issues, flagged_verb(settings), output):
        print(line, file=sys.stderr)
    print(f"all labels, ranked from the worst: {output / 'labels.parquet'}", file=sys.stderr)


def _error_rate(stated: Mapping[str, Any], issues: int, verb: str, output: Path) -> Iterator[str]:
    """The number of wrong labels where it is known, and the precision of the flagged ones."""
    from ..issues.statement import why_unknown

    if "count" not in stated or stated["basis"] != "pairs":
        if not issues:
            yield "none being flagged does not mean that all labels are right"
        yield f"how many are wrong in total is unknown: {why_unknown(stated)}"
        yield f"to find out, check 100 random ones: mslg review {output}"
        return
    count, flagged = stated["count"], stated["flagged"]
    low, high = (f"{count[key]:,.0f}" for key in ("low", "high"))
    yield f"about {count['estimate']:,.0f} labels are wrong in total (90 % interval {low} to {high})"
    if "estimate" in flagged:
        shares = [f"{100 * flagged[key]:.0f}" for key in ("estimate", "low", "high")]
        yield f"of those that {verb}, about {shares[0]} % are wrong ({shares[1]} to {shares[2]} %)"
    if count["estimate"] > 1.5 * flagged["depth"] and "why" not in flagged:
        yield "to flag as many as are estimated to be wrong, pass --flag expected"
