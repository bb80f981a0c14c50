"""docs/results/label-learning.md: what MSLG's label learning adds to the default."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .memorising_claims import certainty
from .memorising_tables import OURS, tables
from .robustness import Values, grouped, paired, read_cells, signed
from .robustness import cells as suite
from .sweep import read
from .words import prose, table, with_interval

NAME = "label-learning"
IMAGES = "label-learning-images"
MEASURES = {"test": "test accuracy", "suggested": "suggested labels right", "average_precision": "average precision"}
RATES = {"meta": "0.3 (`meta`)", "label rate 0.6": "0.6", "label rate 1": "1.0"}


def page(results: Path) -> str:
    """The page."""
    values = {
        setting: rows for setting, rows in grouped(suite(results)).items() if "meta" in rows and "default" in rows
    }
    if not values:
        return "# What label learning adds\n\nNot run yet: `python benchmarks/robustness.py --root DATA`."
    return f"""# What label learning adds

MSLG learns labels by a meta-gradient. The [default](../methods/cross-fitted.md) can do so too: with `--preset meta` the
labels that its fold networks give move on by the exact gradient of the clean loss, at most 0.3 nats per epoch. It is a
preset and not the default because of what follows. The difference that it makes in [each setting of the robustness
suite](robustness.md), paired by seed, in points, with 95 % intervals:

{_table(values)}

{_verdict(values)}

To first order the label step is a kernel regression of the clean samples' residuals onto the training samples. The
default trains on the same clean samples directly, and its fold networks have not memorised wrong labels, so little is
left to learn. Without these parts, in the published form that starts from the given labels, label learning is
[what makes the method work under structured noise](ablations.md#learning-the-labels).

{_memorised(results)}## Larger steps

On tuning seeds (from 103 on; not used anywhere else), test accuracy with label learning less that without, before
labels followed the deployed network's own predictions:

{_rates(results)}

Where label learning gains, larger steps gain a little more; where it loses, they lose more.

```sh
python benchmarks/robustness.py --root DATA    # the first table
python benchmarks/robustness.py --root DATA --seeds 103 104 105 106 107 108 --rows default meta "label rate 0.6" \\
    "label rate 1" --output benchmarks/results/label-learning/cells.jsonl --settings "digits uniform 50 50"  # and so on
```"""


def _memorised(results: Path) -> str:
    """The section on networks that learn labels by heart, whose steps have more left to learn."""
    if not (results / "memorising" / "recipe.toml").exists():
        return ""
    found = tables(read("memorising", results, results))
    added = found.minus(OURS[1], OURS[0]) if set(OURS) <= set(found.table.rows) else {}
    if not added:
        return ""
    lines = [[name, str(each.seeds), with_interval(each)] for name, each in added.items()]
    about = prose(
        "From [the table of networks that memorise](memorising.md), trained on pixels: test accuracy with label",
        f"learning less that without, in points{certainty(found, added)}.",
    )
    made = table(["column", "seeds", "difference"], lines)
    return f"## Where networks memorise\n\n{about}\n\n{made}\n\n{_on_images(results)}"


def _on_images(results: Path) -> str:
    """On images, with other noises and fewer clean samples: why it is not the default there either."""
    if not (results / IMAGES / "recipe.toml").exists():
        return ""
    sweep = read(IMAGES, results, results)
    without, with_ = sweep.rows
    places, gains = sweep.summary().places, sweep.minus(with_, without)
    lines = [
        [name, *(f"{places[row, name].mean:.1f}" for row in (without, with_)), with_interval(gain)]
        for name, gain in gains.items()
    ]
    about = prose(
        "Is it worth it on all images, then? The same network, 8,000 images, 10 epochs; 1,000 of the images are clean",
        "unless a column says otherwise; a tuning seed, noises and rates that no table has, and 2,000 held-out",
        "training images. It gains where there are many clean samples and much noise, costs half a plain run, and",
        "with few clean samples there is nothing to gain:",
    )
    made = table(["column", without, with_, "difference"], lines)
    command = f"mslg sweep benchmarks/recipes/{IMAGES}.toml --root DATA -o benchmarks/results/{IMAGES}"
    return f"{about}\n\n{made}\n\n```sh\n{command}\n```\n\n"


def _table(values: Values) -> str:
    lines = ["| setting | " + " | ".join(MEASURES.values()) + " |", "|---" * (len(MEASURES) + 1) + "|"]
    for setting, rows in values.items():
        lines.append(f"| {setting} | " + " | ".join(signed(*_gain(rows, "meta", key)) for key in MEASURES) + " |")
    return "\n".join(lines)


def _verdict(values: Values) -> str:
    words = []
    for key, name in MEASURES.items():
        gains = [_gain(rows, "meta", key) for rows in values.values()]
        better, worse = (sum(sign * apart > half for apart, half in gains) for sign in (1, -1))
        words.append(f"{name} in {better} and {worse}")
    return f"Of {len(values)} settings, it is significantly better and significantly worse by " + "; ".join(words) + "."


def _rates(results: Path) -> str:
    found = read_cells(results / NAME / "cells.jsonl")
    lines = ["| setting | seeds | " + " | ".join(RATES.values()) + " |", "|---" * (len(RATES) + 2) + "|"]
    for setting, rows in grouped(found).items():
        shown = [signed(*_gain(rows, row, "test")) for row in RATES]
        lines.append(f"| {setting} | {len(rows['default'])} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _gain(rows: Mapping[str, Mapping[int, Any]], row: str, key: str) -> tuple[float, float]:
    """Mean difference of a row to the default, and the half-width of its interval."""
    with_, without = (
        {seed: 100 * each[key] for seed, each in rows.get(name, {}).items() if each.get(key) is not None}
        for name in (row, "default")
    )
    return paired(with_, without) if with_.keys() & without.keys() else (float("nan"), 0.0)
