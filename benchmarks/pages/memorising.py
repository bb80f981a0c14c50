"""docs/results/memorising.md: networks that learn wrong labels by heart, the regime that the paper is about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .memorising_claims import ablations, claims, parts
from .memorising_tables import FORMS, OURS, PLAIN, Tables, tables
from .sweep import GIVEN, Sweep
from .words import NOTHING, bold, prose, signed, table, thousands, with_interval

FALL = 8.0  # points from the best epoch to the last: memorising that can be seen
DRAWN = ("cross-entropy", "mslg released", "mslg", "gold-correction", *OURS)


def page(whole: Sweep, tuning: Sweep, folder: Path) -> str:
    """The page; its pictures go into the folder."""
    found = tables(whole)
    text = ["# Networks that memorise", _about(whole), _command(whole)]
    if found.table.results:
        text += [*_regime(whole), "## The table", found.table.notes, found.table.numbers()]
        if found.leading.results:
            text += ["## The rows that decide, with more seeds", _spread(found.leading), found.leading.numbers()]
        if found.later.results:
            text += ["## Later methods", _spread(found.later), found.later.numbers()]
        text += [*_against(found), *claims(found), *parts(whole), *ablations(whole), *_curves(found.table, folder)]
    return "\n\n".join([*text, *_tuning(tuning, [*found.table.rows, *found.later.rows]), *_differences(whole)])


def _about(sweep: Sweep) -> str:
    data, train, network = (sweep.grid.base[name] for name in ("data", "train", "network"))
    return prose(
        "MSLG is about networks that learn their own features and learn wrong labels by heart. Here is that regime, at",
        f"a size that a processor can run: {thousands(data['subset'])} images of CIFAR-10 at {data['size']} ×",
        f"{data['size']} pixels, {thousands(data['clean'])} of them clean (600 to learn from, 200 to select and 200 to",
        f"report), the paper's network `{network['name']}` at a quarter of its width, no augmentation,",
        f"{train['epochs']} epochs in batches of {train['batch_size']}. The feature-dependent noise comes twice:",
        "`feature` by the generator that the paper describes, `released` by the file that its code loads, in which",
        "most wrong labels become *truck* or *ship*. The order of rows can be compared with the paper's; the level",
        "cannot.",
    )


def _command(sweep: Sweep) -> str:
    command = (
        "```sh\npython benchmarks/memorising.py --root DATA  # trials, then the cells, the most important first\n"
        "python benchmarks/results_pages.py           # this page\n```"
    )
    return f"{command}\n\n{sweep.provenance}" if sweep.results else command


def _regime(sweep: Sweep) -> list[str]:
    """Whether cross entropy memorises: its best epoch on the test samples against its last."""
    lines, falls = [], {}
    for column in sweep.columns:
        cells = [cell for key, cell in sweep.results.items() if key[:2] == (PLAIN, column) and cell.curves]
        if not cells:
            continue
        best, last = (
            sum(100 * pick([v for v in cell.curves["test/accuracy"] if v is not None]) for cell in cells) / len(cells)
            for pick in (max, lambda values: values[-1])
        )
        given = sum(100 * cell.last[GIVEN] for cell in cells) / len(cells)
        learned = sum(100 * (1 - (cell.curves["predictions/differ"][-1] or 0.0)) for cell in cells) / len(cells)
        if sweep.noise(column)[1] > 0:
            falls[column] = best - last
        lines.append(
            [column, *(f"{value:.1f}" for value in (given, best, last)), signed(last - best), f"{learned:.0f}"]
        )
    if not lines:
        return []
    memorised = [name for name, fall in falls.items() if fall >= FALL]
    head = ["column", "given labels right", "best epoch", "last epoch", "fall", "given labels predicted at the end"]
    words = f"In {len(memorised)} of the {len(falls)} noisy columns" if falls else "Without noise"
    return [
        "## Do networks memorise here?",
        prose(
            "Cross entropy on the given labels: test accuracy in its best epoch (which nobody could have picked) and",
            "in its last, and how many training samples it gives their given label in the end, right or wrong, in",
            "percent.",
        ),
        table(head, lines),
        prose(
            f"{words} the last epoch is at least {FALL:.0f} points below the best one: wrong labels are learned by",
            "heart.",
        ),
    ]


def _spread(sweep: Sweep) -> str:
    """Over how many seeds."""
    seeds = len(sweep.grid.seeds)
    return f"Mean ± standard deviation over {seeds} seeds." if seeds > 1 else "One seed."


def _against(found: Tables) -> list[str]:
    """The default and the forms of MSLG against the best of the others."""
    ours = [row for row in (*OURS, *FORMS) if row in found.table.rows]
    others = [row for row in found.rivals if row not in ours]
    against = {row: found.minus_best(row, others) for row in ours}
    lines = []
    for column in found.columns:
        best = found.best(column, others)
        if best is None:
            continue
        seeds = [str(against[row][column][1].seeds) for row in ours if column in against[row]]
        apart = [with_interval(against[row][column][1]) if column in against[row] else NOTHING for row in ours]
        lines.append([column, best, ", ".join(dict.fromkeys(seeds)), *apart])
    if not ours or not lines:
        return []
    intervals = "of one seed, so without intervals" if found.once else "with 95 % intervals"
    return [
        "## Against the best rival",
        prose(
            "The default and each form of MSLG minus the best other row without extra knowledge, chosen with hindsight",
            f"in each column; over the seeds that both have, {intervals}.",
        ),
        table(["column", "best other row", "seeds", *(f"{row} −" for row in ours)], lines),
    ]


def _curves(sweep: Sweep, folder: Path) -> list[str]:
    part = sweep.only(DRAWN, [name for name in sweep.columns if sweep.noise(name)[1] > 0])
    pictures = {
        "given": ("memorising-given.svg", "Given labels that the network predicts"),
        "epochs": ("memorising-epochs.svg", "Test accuracy"),
        "labels": ("memorising-labels.svg", "Right labels"),
    }
    drawn = [
        f"![{title} over epochs]({file})"
        for kind, (file, title) in pictures.items()
        if part.picture(folder / file, kind, f"{title} over epochs")
    ]
    begins = prose(
        "The first third of the epochs of the default are those of its fold networks; the network that is drawn and",
        "deployed begins after them.",
    )
    return ["## Over epochs", *([begins] if OURS[0] in part.rows else []), *drawn] if drawn else []


def _tuning(tuning: Sweep, shown: Sequence[str]) -> list[str]:
    """The trials of the rows that are shown."""
    places = tuning.summary().places
    lines = []
    for first, second in zip(tuning.rows[::2], tuning.rows[1::2], strict=True):
        pair = [places[row, tuning.columns[0]].mean for row in (first, second)]
        if None in pair or (shown and first.partition(":")[0] not in shown):
            continue
        best = max(value for value in pair if value is not None)
        lines.append([first.partition(":")[0], *(_bold(value, best) for value in pair)])
    if not lines:
        return []
    rates = [row.partition(": ")[2] for row in tuning.rows[:2]]
    return [
        "## How the learning rates were chosen",
        prose(
            "Every method has two trials, on another seed and rate than any of the table, with 5,000 noisy images and",
            "10 epochs; accuracy on 2,000 held-out training images. `mslg published` and `mslg released` have the",
            "paper's schedule, scaled to the length of the run, and no trial.",
        ),
        table(["method", *(f"learning rate {rate}" for rate in rates)], lines),
    ]


def _bold(value: float | None, best: float) -> str:
    words = NOTHING if value is None else f"{value:.1f}"
    return bold(words) if value == best else words


def _differences(sweep: Sweep) -> list[str]:
    base = sweep.grid.base
    return [
        "## What differs from the paper",
        prose(
            "A network of a quarter of the width on images of a quarter of the pixels;",
            f"{thousands(base['data']['subset'])} images instead of 50,000; {base['train']['epochs']} epochs instead",
            "of 120; no augmentation, so that these suffice to memorise. The clean samples come out of the training",
            "set. MLNT has 2 synthetic labelings a step instead of 10. The paper at its own scale: [the full",
            "protocol](full-protocol.md).",
        ),
    ]
