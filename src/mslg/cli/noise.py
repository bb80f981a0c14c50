"""`mslg noise`: write corrupted labels of a data set, and a plot of its transition matrix."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..noise import NOISES


def noise(
    data: Annotated[
        str,
        typer.Argument(help="Data as for mslg fit: a folder, a file, or the name of a data set (mslg list datasets)."),
    ],
    kind: Annotated[str, typer.Option(help="Kind of noise (mslg list noises).")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Parquet file to write; the plot is written beside it.")
    ],
    rate: Annotated[float | None, typer.Option(help="Fraction of labels to corrupt; kind matrix has its own.")] = None,
    root: Annotated[Path | None, typer.Option(help="Folder with the files of a named data set.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same labels.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Setting of the noise: key=value. Can be repeated.")
    ] = None,
    probabilities: Annotated[
        Path | None,
        typer.Option(help="An .npy file, (samples, classes): predicted probabilities, for noise that needs them."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show details, and tracebacks of errors.")] = False,
) -> None:
    """Corrupt the labels of a data set, and plot which class became which.

    Examples:

    mslg noise digits --kind uniform --rate 0.4 -o noisy.parquet

    mslg noise digits --kind uniform --rate 0.4 --set convention=bernoulli-including -o noisy.parquet

    mslg noise digits --kind feature-dependent --rate 0.4 --set cache=students.npz -o noisy.parquet
    """
    # Only our own log: other libraries log a lot.
    logging.getLogger("mslg").setLevel(logging.DEBUG if verbose else logging.INFO)
    _ = NOISES[kind]  # an unknown name is reported before anything is read
    picture = output.with_suffix(".png")
    _check_output(output, picture, force)
    given = _assignments(settings or [])
    if probabilities is not None:
        given["probabilities"] = str(probabilities)

    from ..data.open import open_named
    from ..noise.plot import draw_transitions
    from ..noise.write import write_noisy
    from ..runs.open_data import corrupted

    source = open_named(data, seed=seed, root=root).train
    found = corrupted(source, kind, rate, seed=seed, settings=given)
    about = {"kind": kind, "rate": rate, "realised_rate": found.rate, "seed": seed, "settings": given, "data": data}
    write_noisy(output, source, found, about)
    draw_transitions({_title(kind, found.rate): found.realised.numpy()}, source.classes, picture)
    if as_json:
        matrix = found.realised.tolist()
        files = {"labels": str(output), "picture": str(picture)}
        print(json.dumps({**about, "samples": len(source), "realised": matrix, **files}, ensure_ascii=False))
        return
    changed = int((found.label != found.before).sum())
    asked = "" if rate is None else f" (asked for {100 * rate:.2f} %)"
    print(f"{changed} of {len(source)} labels changed, {100 * found.rate:.2f} %{asked}: {output}, {picture}")
    if rate is not None and found.rate < rate - 0.03:
        print(
            "counts are rounded down in small classes; some kinds make up for it with --set fill=true", file=sys.stderr
        )


def _check_output(output: Path, picture: Path, force: bool) -> None:
    if output.suffix != ".parquet":
        raise typer.BadParameter(f"the output {output} must end in .parquet")
    there = [str(path) for path in (output, picture) if path.exists()]
    if there and not force:
        raise FileExistsError(f"{' and '.join(there)} already exists; choose another name, or overwrite with --force")


def _assignments(pairs: list[str]) -> dict[str, Any]:
    from ..runs.recipes import value_of

    found = {}
    for pair in pairs:
        key, mark, text = pair.partition("=")
        if not mark:
            raise ValueError(f"'{pair}' is not a setting; expected --set key=value, such as --set fill=true")
        found[key.strip()] = value_of(text.strip())
    return found


def _title(kind: str, rate: float) -> str:
    return f"{kind} noise, {100 * rate:.1f} % changed"
