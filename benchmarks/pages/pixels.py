"""docs/results/pixels.md: a few rows on images, to see whether the features' results carry over."""

from __future__ import annotations

from .sweep import Sweep
from .words import listed, prose, table, thousands, verdict, with_interval

OURS = "mslg"


def page(sweep: Sweep) -> str:
    """The page."""
    base = sweep.grid.base
    data, train, network = base["data"], base["train"], base["network"]
    augment = listed([f"`{name}`" for name in train.get("augment", ())] or ["none"])
    return "\n\n".join(
        [
            "# CIFAR-10 pixels, small",
            prose(
                "Do the results on [features](features.md) hold for a network that learns its own? A few rows on",
                f"images, small enough for a processor: {thousands(data.get('subset', 50000))} of the 50,000 training",
                f"images, {thousands(data['clean'])} of them clean, the network `{network['name']}` at width",
                f"{network.get('width', 64)} (the paper's has 64), {train['epochs']} epochs of the paper's 120,",
                f"augmentation {augment}. The paper's numbers stand beside, of the full network, data and length: the",
                "order of rows can be compared, the level cannot.",
            ),
            sweep.header,
            sweep.notes,
            sweep.numbers(),
            *_differences(sweep),
        ]
    )


def _differences(sweep: Sweep) -> list[str]:
    others = [row for row in sweep.rows if row != OURS]
    found = {row: sweep.minus(OURS, row) for row in others}
    lines = []
    for row in others:
        words = [f"{with_interval(found[row].get(name))}, {verdict(found[row].get(name))}" for name in sweep.columns]
        lines.append([row, *("–" if word == "–, –" else word for word in words)])
    return [
        "## Differences",
        f"`{OURS}` minus each other row, seed by seed, with 95 % intervals.",
        table([f"{OURS} minus", *sweep.columns], lines),
    ]
