"""`mslg predict`: a run's model on new inputs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run, or of mslg export --to safetensors.")],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A folder of images, a .csv or .parquet table, an .npz with X, an .npy, or a data set's name.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .parquet or .csv file; by default labels go to stdout.")
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="package.module:factory of a network that was made in Python.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder with the files of a named data set.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
    batch_size: Annotated[int, typer.Option(min=1, help="Inputs per forward pass.")] = 256,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes that decode images; up to 4 by default.")
    ] = None,
    corrupt: Annotated[str, typer.Option(help="Images that cannot be decoded: error or skip.")] = "error",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON on stdout.")] = False,
) -> None:
    """Predict the classes of new inputs with a run's model.

    Inputs are read, encoded and prepared as in training; labels are not needed, and ignored if there are some. The
    table has the columns id, path (of image files), predicted_label, probability, and probabilities (in a .csv one
    column p_CLASS per class).

    Examples:

    mslg predict runs/photos new_photos/ -o predictions.parquet

    mslg predict runs/first digits | head
    """
    from ..runs.export import refuse_existing

    if output is not None:
        refuse_existing(output, force)
    elif as_json:
        raise ValueError("--json says what was written, and without -o nothing is; name a file")

    from ..fitting.prepare import device_named
    from ..networks.features import progress_bar
    from ..runs.load_model import load_model
    from ..runs.predict import write_predictions

    model = load_model(run, network)
    assert model.new_inputs is not None
    opened = model.new_inputs.open(data, root=root, workers=workers, corrupt=corrupt)
    model.network.to(device_named(device))
    with progress_bar("predicting", len(opened.ids), True) as bar:
        rows = write_predictions(
            model.network, model.new_inputs, opened, output, batch_size=batch_size, advance=bar.advance
        )
    if as_json:
        print(json.dumps({"format_version": 1, "output": str(output), "samples": rows}))
    elif output is not None:
        print(f"{rows} predictions written: {output}", file=sys.stderr)
