"""`mslg verify`: whether the files of a run are as the run has written them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def verify(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or of mslg export --to safetensors.")],
    files: Annotated[list[str] | None, typer.Argument(help="With --accept: these files only.")] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Take the files as they are for right, such as settings edited by hand.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Compare the files of a run with their checksums, its checkpoints and controls included.

    The exit code is 1 if a file is damaged, changed or missing. Every file that is read to resume, export, report or
    apply a run is compared likewise.

    Examples:

    mslg verify runs/first

    mslg verify runs/first --accept config.toml
    """
    from ..runs.verify import accept as take
    from ..runs.verify import uncovered
    from ..runs.verify import verify as compare

    if not (run / "config.toml").exists() and not (run / "model.json").exists():
        raise FileNotFoundError(f"{run} is neither the folder of a run nor of an exported model")
    if files and not accept:
        raise typer.BadParameter("files are named only with --accept; without it all are compared")
    accepted = take(run, files or []) if accept else []
    checked = list(compare(run))
    wrong = [each for each in checked if each.problem is not None]
    rest = [str(path.relative_to(run)) for path in uncovered(run)]
    if as_json:
        problems = {str(each.path): each.problem for each in wrong}
        print(json.dumps({"files": len(checked), "wrong": problems, "accepted": accepted, "without_checksum": rest}))
    else:
        for each in wrong:
            print(f"wrong: {each.path}: {each.problem}", file=sys.stderr)
        if rest:
            print(f"without a checksum: {', '.join(rest)}", file=sys.stderr)
        print(f"{len(checked) - len(wrong)} of {len(checked)} files are as they were written", file=sys.stderr)
    if wrong:
        raise typer.Exit(1)
