"""docs/results/features.md: Table 1 of the paper on frozen features, and how `mslg` stands in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mslg.sweeps.chosen_row import chosen
from mslg.sweeps.grid import Axis
from mslg.sweeps.table import Difference

from . import artefact
from .sweep import GIVEN, SUGGESTED, TABLE, Sweep
from .words import (
    NOTHING,
    amount,
    capital,
    number,
    numbered,
    prose,
    signed,
    table,
    tally,
    thousands,
    verdict,
    with_interval,
)

OURS, RELEASED, CHOSEN = "mslg", "mslg released", "cross-entropy, chosen"
CONTROLS = (
    "cross-entropy",
    "clean-only",
    "noisy-plus-clean",
    "noisy-then-clean",
    "gold-correction",
    "mslg, label rate 0",
    CHOSEN,
)
KINDS = {
    "uniform": "No noise, and uniform noise",
    "feature-dependent": "Feature-dependent noise, by the fixed generator",
    "feature-dependent-released": "Feature-dependent noise, by the released probabilities",
}
DRAWN = ("mslg", "cross-entropy", "gold-correction", "meta-weight-net", "mslg released")
PANELS = ("uniform-40", "feature-dependent-40", "feature-dependent-released-60")
NEAR = 0.5  # points: how far `mslg` may be from the best without noise


def page(sweep: Sweep, choices: Sweep, folder: Path) -> str:
    """The page; its pictures go into the folder."""
    header, sweep = sweep.header, with_chosen(sweep, choices)
    return "\n\n".join(
        [
            "# CIFAR-10 features: the paper's Table 1",
            prose(
                "Every method and control on frozen features of CIFAR-10, with the noises of the paper's Table 1; the",
                "feature-dependent noise twice, by the fixed generator and by the released file that the paper's code",
                "loads. How the settings were chosen: [tuning](tuning.md).",
            ),
            header,
            *_about_chosen(sweep, choices),
            "## The table",
            sweep.notes,
            *_tables(sweep),
            *_against_best(sweep),
            *_against_controls(sweep),
            *_against_released(sweep),
            *_suggested(sweep),
            *_epochs(sweep, folder),
            *_differences(sweep),
            *artefact.sections(sweep, OURS, [row for row in sweep.rows if row != CHOSEN]),
        ]
    )


def with_chosen(sweep: Sweep, choices: Sweep) -> Sweep:
    """With the control that may choose length and regularisation on clean samples, where its sweep has cells."""
    full = [
        [choices.results[key] for row in choices.rows if (key := (row, column, seed)) in choices.results]
        for column in choices.columns
        for seed in choices.grid.seeds
    ]
    found = chosen((cell for cells in full if len(cells) == len(choices.rows) for cell in cells), CHOSEN)
    if not found:
        return sweep
    row = Axis(CHOSEN, choices.grid.rows[0].changes, paper="cross-entropy")
    grid = replace(sweep.grid, rows=(*sweep.grid.rows, row))
    return replace(sweep, grid=grid, results={**sweep.results, **{cell.key: cell for cell in found}})


def _about_chosen(sweep: Sweep, choices: Sweep) -> list[str]:
    if CHOSEN not in sweep.rows:
        return []
    return [
        prose(
            f"The row `{CHOSEN}` is a control from a sweep of its own, `{choices.name}`, with the same data and seeds:",
            f"of {len(choices.rows)} lengths and regularisations of cross entropy, in each column and for each seed",
            "the one that is best on held-out clean samples.",
        )
    ]


def best_others(sweep: Sweep) -> dict[str, str]:
    """By column, the best row beside ours without extra knowledge; only where every row is finished."""
    places = sweep.summary().places
    finished = [column for column in sweep.columns if all(places[row, column].complete for row in sweep.rows)]
    return sweep.only([row for row in sweep.rows if row != OURS], finished).leaders()


def _tables(sweep: Sweep) -> list[str]:
    parts = []
    for kind, title in KINDS.items():
        columns = [column for column in sweep.columns if sweep.noise(column)[0] == kind]
        if not columns:
            continue
        part = sweep.only(sweep.rows, columns)
        parts += [f"### {title}", part.numbers() + "\n" + _given_row(part)]
    return parts


def _given_row(sweep: Sweep) -> str:
    """The share of given labels that are right: the same for every row of a column, so of the first that tells."""
    places = sweep.summary(GIVEN).places
    words = []
    for column in sweep.columns:
        known = [places[row, column] for row in sweep.rows if places[row, column].values]
        most = max(known, key=lambda place: len(place.values), default=None)
        words.append(NOTHING if most is None else f"*{most.mean:.1f}*")
    return "| " + " | ".join(["*given labels that are right*", *words]) + " |"


def _against_best(sweep: Sweep) -> list[str]:
    best, places = best_others(sweep), sweep.summary().places
    found = {
        column: each
        for column in sweep.columns
        if column in best and (each := sweep.minus(OURS, best[column]).get(column)) is not None
    }
    lines = []
    for column in sweep.columns:
        if column not in best:
            continue
        ours, theirs = (number(places[row, column], paper=False) for row in (OURS, best[column]))
        difference = found.get(column)
        lines.append([column, best[column], theirs, ours, with_interval(difference), verdict(difference)])
    below = any(each.significant and each.mean < 0 for each in found.values())
    head = ["column", "best other row", "its accuracy", OURS, f"{OURS} − best", "verdict"]
    return [
        "## Is MSLG ever significantly below the best?",
        prose(
            "Against the best row of each column that has no extra knowledge, `mslg` left out: the difference seed by",
            "seed, with its 95 % interval. The best is picked on the same seeds that it is then compared on, which",
            "favours it.",
        ),
        table(head, lines),
        prose(f"{capital(tally(found, len(sweep.columns)))}.", _without_noise(sweep, best, found)),
        *(["What was tried against this: [the exploration](tuning.md#exploration)."] if below else []),
    ]


def _without_noise(sweep: Sweep, best: dict[str, str], found: dict[str, Difference]) -> str:
    """How near `mslg` comes where no label is wrong."""
    for column in sweep.columns:
        if sweep.noise(column)[1] == 0 and column in found:
            mean = found[column].mean
            if mean >= 0:
                return f"Without noise it is not below the best other row ({best[column]}, {signed(mean)})."
            within = "within" if mean >= -NEAR else "not within"
            return f"Without noise it is {amount(mean)} points below {best[column]}, {within} {NEAR} points."
    return ""


def _noisy(sweep: Sweep) -> list[str]:
    return [column for column in sweep.columns if sweep.noise(column)[1] > 0]


def _against_controls(sweep: Sweep) -> list[str]:
    controls = [row for row in CONTROLS if row in sweep.rows]
    found = {control: sweep.minus(OURS, control) for control in controls}
    lines = [[column, *(with_interval(found[row].get(column)) for row in controls)] for column in sweep.columns]
    noisy = _noisy(sweep)
    verdicts = [
        f"- {control}: {tally({name: each for name, each in found[control].items() if name in noisy}, len(noisy))}"
        for control in controls
    ]
    return [
        "### Against each control",
        prose(
            "`mslg` minus the control, seed by seed, with 95 % intervals; bold: the interval leaves zero out.",
            f"{NOTHING}: not finished, or diverged.",
        ),
        table(["column", *controls], lines),
        "In the columns with noise, `mslg` against:",
        "\n".join(verdicts),
    ]


def _against_released(sweep: Sweep) -> list[str]:
    test, labels = sweep.minus(OURS, RELEASED), sweep.minus(OURS, RELEASED, TABLE)
    lines = []
    for column in sweep.columns:
        pair = (test.get(column), labels.get(column))
        lines.append([column, *(word for each in pair for word in (with_interval(each), verdict(each)))])
    columns = len(sweep.columns)
    return [
        "### Against the released preset",
        "`mslg` minus `mslg released` on test accuracy, and on the share of labels in the label table that are right.",
        table(["column", "test accuracy", "verdict", "labels in the table", "verdict"], lines),
        f"- Test accuracy: {tally(test, columns)}.\n- Labels in the table: {tally(labels, columns)}.",
    ]


def _suggested(sweep: Sweep) -> list[str]:
    given, suggested = sweep.summary(GIVEN).places, sweep.summary(SUGGESTED).places
    found = sweep.minus(OURS, OURS, SUGGESTED, GIVEN)
    lines = []
    for column in sweep.columns:
        shown = [number(places[OURS, column], paper=False) for places in (given, suggested)]
        lines.append([column, *shown, with_interval(found.get(column)), verdict(found.get(column))])
    noisy = _noisy(sweep)
    return [
        "### Are the suggested labels better than the given ones?",
        "The share of training labels that are right, as given and as `mslg` suggests them.",
        table(["column", "given", "suggested", "suggested − given", "verdict"], lines),
        f"In the columns with noise: {tally({name: found[name] for name in noisy if name in found}, len(noisy))}.",
    ]


def _epochs(sweep: Sweep, folder: Path) -> list[str]:
    part = sweep.only(DRAWN, PANELS)
    pictures = {
        "epochs": ("features-epochs.svg", "Test accuracy over epochs"),
        "labels": ("features-labels.svg", "Right labels over epochs"),
    }
    drawn = [
        f"![{title}: {', '.join(DRAWN)}]({file})"
        for kind, (file, title) in pictures.items()
        if part.picture(folder / file, kind, f"CIFAR-10 features: {title[0].lower()}{title[1:]}")
    ]
    about = prose(
        "Some of the rows and columns. Lines are means over seeds, bands one standard deviation; dashed, where labels",
        "are drawn: the network's predictions on the training set. `mslg plot benchmarks/results/features` draws all",
        "rows.",
    )
    return ["## Over epochs", *([about, *drawn] if drawn else ["No cell to draw is finished."])]


def _differences(sweep: Sweep) -> list[str]:
    train, data = sweep.grid.base["train"], sweep.grid.base["data"]
    hidden = ", ".join(map(str, sweep.grid.base["network"].get("hidden", [])))
    return [
        "## What differs from the paper, and why",
        numbered(
            f"Features, not pixels. An MLP with a hidden layer of {hidden} is trained on frozen features of a "
            "pretrained network; the paper trains an 8-layer CNN on images. One run takes seconds on a processor, "
            f"so that every row can have every column and {len(sweep.grid.seeds)} seeds. The levels of accuracy are "
            "not comparable; the order of methods is. Whether it carries over to a network that learns its own "
            "features: [networks that memorise](memorising.md).",
            f"The {thousands(data['clean'])} clean samples come out of the training set, and part of them is held "
            "out to select and to report. The paper cuts 5,000 from the official test set. How much the number "
            "matters: [clean samples](clean-samples.md).",
            f"The budget is {train['epochs']} epochs in batches of {train['batch_size']}, with learning rate "
            f"{train['learning_rate']} and a {train['schedule']} schedule; the paper has 120 epochs in batches of "
            "128.",
            "The last epoch counts. The authors' code reports the epoch that is best on the same clean samples that "
            "the labels are fitted to.",
            "The fixed feature-dependent noise is made by MLPs on the same features, each judging samples that it "
            "was not trained on; the paper's by a network on images.",
            "MLNT runs with 2 synthetic labelings a step instead of 10, which cost four times as much.",
            "Settings were chosen in the sweep [tuning](tuning.md), as many for each method, on another seed and on "
            "held-out training samples. The paper does not say how those of the other methods were chosen, and its "
            "MSLG has a β that depends on the noise.",
            "Co-teaching and forward correction appear twice: told the true rate or matrix, and with what the clean "
            "samples tell. The paper gives forward correction the true matrix.",
        ),
    ]
