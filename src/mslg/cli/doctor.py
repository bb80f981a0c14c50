"""`mslg doctor`: the cost and accuracy of each mode of the meta-gradient on your network and data."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def doctor(
    data: Annotated[
        str, typer.Argument(help="Data as for mslg fit: a folder, a file or the name of a data set.")
    ] = "digits",
    network: Annotated[str | None, typer.Option(help="A name (mslg list networks) or package.module:factory.")] = None,
    batch_size: Annotated[int, typer.Option(help="Samples per step.")] = 128,
    rounds: Annotated[int, typer.Option(help="Number of measurements per mode; the median is shown.")] = 7,
    look_ahead: Annotated[float, typer.Option(help="Look-ahead distance.")] = 0.002,
    compiled: Annotated[bool, typer.Option("--compiled", help="Also the compiled mode: half a minute more.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Measure what each mode of the meta-gradient costs, and how close it is to the exact gradient.

    Example: mslg doctor digits --network mlp
    """
    from ..methods.mslg.diagnosis import diagnose
    from ..networks.build import default_network, network_factory
    from ..runs.open_data import open_data

    opened = open_data({"source": data})
    name = network or default_network(opened.train)
    rows = diagnose(
        network_factory(name, opened.train),
        opened.train,
        batch_size=batch_size,
        rounds=rounds,
        look_ahead=look_ahead,
        compiled=compiled,
    )
    if as_json:
        print(json.dumps([row._asdict() for row in rows]))
        return
    print(f"{name} on {data}, batch of {min(batch_size, len(opened.train))}, {rounds} rounds, medians")
    print(f"{'mode':<20}{'plain steps':>12}{'cosine':>10}  how")
    for row in rows:
        cosine = "-" if row.cosine is None else f"{row.cosine:.4f}"
        cost = "-" if row.cost is None else f"{row.cost:.2f}"
        print(f"{row.mode:<20}{cost:>12}{cosine:>10}  {row.way}")
