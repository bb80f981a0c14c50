"""Networks that memorise: CIFAR-10 at 16 × 16 pixels without augmentation, where cross entropy learns wrong labels by
heart. Every method of the paper, MSLG in its forms, the controls and later methods, on eight columns.

    python benchmarks/memorising.py --root DATA            # tunes, writes the recipe, runs; may be killed and run again
    python benchmarks/memorising.py --root DATA --until deciding
    python benchmarks/memorising.py --estimate             # core-hours that are left, from the cells that are there
    python benchmarks/memorising.py --recipes              # only writes the two recipes

DATA holds cifar-10-batches-py and cifar10_student_probs.npy. Every method has two trials, learning rates 0.05 and 0.01
with a cosine, on another seed and rate (benchmarks/recipes/memorising-tuning.toml); `mslg published`, `mslg released`
and a control have the paper's schedule, which is part of MSLG there, and no trial. The better rate stands in the recipe
that is written, benchmarks/recipes/memorising.toml, which is an ordinary sweep; here its cells are run in the order of
their importance.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mslg.sweeps.grid import Grid, load_grid
from mslg.sweeps.ledger import Ledger
from mslg.sweeps.pool import Event
from mslg.sweeps.progress import outcome
from mslg.sweeps.run import results, run_sweep

HERE = Path(__file__).parent
RATES = (0.05, 0.01)
PAPER = 'learning_rate = 0.01, schedule = "steps"'  # of 120 epochs: ten times smaller after 40, again after 80


class Row(NamedTuple):
    """A row: its name, its method's settings in TOML, and whatever else stands in its table."""

    name: str
    method: str
    more: tuple[str, ...] = ()
    tuned: bool = True


def simple(name: str, *more: str, settings: str = "") -> Row:
    """A method with its defaults."""
    return Row(name, f'name = "{name}"{settings}', more)


def of_paper(name: str, **settings: object) -> Row:
    """One of the ten that the paper compares with."""
    return simple(name, f'paper = "{name}"', settings="".join(f", {key} = {value}" for key, value in settings.items()))


def ablation(name: str, change: str = "", *more: str) -> Row:
    """MSLG as released but for one thing."""
    return Row(f"released, {name}", f'name = "mslg", preset = "released"{change}', more, tuned=False)


REVEALED = "data = { reveal_noise = true }"
PUBLISHED = Row(
    "mslg published",
    'name = "mslg", preset = "published"',
    # β = 2000 and 400
    ('paper = "mslg"', "by_noise = { uniform-60 = { label_rate = 7.8125 }, uniform-80 = { label_rate = 1.5625 } }"),
    tuned=False,
)
RELEASED = Row("mslg released", 'name = "mslg", preset = "released"', ('paper = "mslg"',), tuned=False)
SCHEDULED = Row("cross-entropy, the paper's schedule", 'name = "cross-entropy"', tuned=False)  # what the schedule does
LABELS_FIXED = ablation("label rate 0", ", label_rate = 0.0")  # what the loss does
DEFAULT = [
    Row("default", 'name = "cross-fitted"'),
    Row("default, label learning", 'name = "cross-fitted", preset = "meta"'),
]
DECIDING = [
    of_paper("cross-entropy"),
    PUBLISHED,
    RELEASED,
    SCHEDULED,
    Row("mslg", 'name = "mslg"', ('paper = "mslg"',)),
    simple("gold-correction"),
    simple("noisy-then-clean"),
    simple("clean-only"),
    simple("co-teaching", 'paper = "co-teaching"', 'knows = "the true noise rate"', REVEALED),
    of_paper("joint-optimization"),
    of_paper("pencil"),
    of_paper("mlnt", labelings=2),
    of_paper("meta-weight-net"),
    simple("dividemix"),
    simple("elr"),
]
OF_PAPER = [  # the rest of the ten
    of_paper("generalized-ce"),
    of_paper("bootstrap"),
    of_paper("symmetric-ce"),
    simple("forward", 'paper = "forward"', 'knows = "the true transition matrix"', REVEALED),
]
LATER = [
    simple("noisy-plus-clean"),
    simple("metalabelnet"),
    simple("dmlp"),
    simple("l2rw"),
    simple("truncated-gce"),
]
COSTLY = [simple("mlc"), simple("emlc")]  # three to six times the others
LEADING = [  # rows that decide, in the columns that decide
    *DEFAULT,
    *(row for row in DECIDING if row.name in ("cross-entropy", "mslg released", "mslg", "pencil", "gold-correction")),
    *(row for row in DECIDING if row.name in ("joint-optimization", "elr")),
]
ABLATIONS = [
    ablation("L_c,1", ', loss = "forward-kl"'),
    ablation("no entropy loss", ", entropy_weight = 0.0"),
    LABELS_FIXED,
    ablation("look-ahead 0.002", ", look_ahead = 0.002"),
    ablation("warm-up 1", ", warm_up = 1"),
    ablation("warm-up 14", ", warm_up = 14"),
    ablation("200 clean", "", "data = { clean = 200 }"),
    ablation("4000 clean", "", "data = { clean = 4000 }"),
]
ROWS = [*DEFAULT, *DECIDING, *OF_PAPER, *LATER, *COSTLY, *ABLATIONS]
TEACHER = 'noise = { network = "cnn8", "network.width" = 16, cache = "{output}/teacher.npz" }'
STUDENT = 'noise = { probabilities = "{root}/cifar10_student_probs.npy" }'
UNIFORM = "noise = { fill = true }"
COLUMNS = {
    "uniform-40": ("uniform", 0.4, UNIFORM, "uniform-40"),
    "feature-40": ("feature-dependent", 0.4, TEACHER, "feature-40"),
    "released-80": ("feature-dependent-released", 0.8, STUDENT, "feature-80"),
    "feature-80": ("feature-dependent", 0.8, TEACHER, "feature-80"),
    "released-40": ("feature-dependent-released", 0.4, STUDENT, "feature-40"),
    "uniform-60": ("uniform", 0.6, UNIFORM, "uniform-60"),
    "uniform-80": ("uniform", 0.8, UNIFORM, "uniform-80"),
    "clean": ("uniform", 0.0, UNIFORM, "clean-0"),
}
FIRST = ("uniform-40", "feature-40", "released-80", "feature-80")  # columns that decide
EVERY = [name for name in COLUMNS if name != "uniform-60"]  # which only shows that networks memorise
ABLATED = ("uniform-40", "released-80")


class Phase(NamedTuple):
    """Cells to run: every row in every column with every seed."""

    name: str
    rows: Sequence[Row]
    columns: Sequence[str]
    seeds: Sequence[int]


PHASES = [
    Phase("regime", DECIDING[:1], (*FIRST, "uniform-80", "uniform-60"), [0]),
    Phase("default", DEFAULT, EVERY, [0]),
    Phase("paper", [PUBLISHED, RELEASED, SCHEDULED, LABELS_FIXED], FIRST, [0]),
    Phase("deciding", DECIDING, FIRST, [0]),
    Phase("columns", DECIDING, EVERY, [0]),
    Phase("ablations", ABLATIONS, ABLATED, [0]),
    Phase("the ten", OF_PAPER, EVERY, [0]),
    Phase("second", [*DEFAULT, *DECIDING, *OF_PAPER], FIRST, [1]),
    Phase("second, all", [*DEFAULT, *DECIDING, *OF_PAPER], EVERY, [1]),
    Phase("third", LEADING, FIRST, [2]),
    Phase("ablated", ABLATIONS, ABLATED, [1]),
    Phase("fourth", LEADING, FIRST, [3]),
    Phase("later", LATER, FIRST, [0]),
    Phase("later, second", LATER, FIRST, [1]),
    Phase("later, all", LATER, EVERY, [0, 1]),
    Phase("costly", COSTLY, FIRST, [0]),
    Phase("costly, all", COSTLY, EVERY, [0, 1]),
]

TUNING = f"""\
# Learning rates of the methods on small CIFAR-10 pixels, on another seed, noise and rate, in short runs.
#
#     python benchmarks/memorising.py --root DATA
#
# 2,000 training images stand in for the test set, which is not looked at. Written by benchmarks/memorising.py.
[sweep]
title = "Choice of learning rates on small CIFAR-10 pixels"
seeds = [100]
protocol = "clean: 1,000 clean samples out of 8,000 training images; accuracy on 2,000 held-out ones, last epoch"

[data]
source = "cifar10"
root = "{{root}}"
size = 16
subset = 8000
clean = 1000
test_from = "train"
test = 2000
reveal_noise = false

[network]
name = "cnn8"
width = 16

[train]
epochs = 10
batch_size = 128
weight_decay = 1e-4
schedule = "cosine"
augment = ["normalise-0.5"]

[columns.released-60]
data = {{ noise = "feature-dependent-released", rate = 0.6 }}
{STUDENT}
"""
MAIN = """\
# CIFAR-10 at 16 × 16 pixels, without augmentation: the regime in which networks memorise wrong labels.
#
#     mslg sweep benchmarks/recipes/memorising.toml --root DATA -o benchmarks/results/memorising
#
# DATA holds cifar-10-batches-py and cifar10_student_probs.npy. Written by benchmarks/memorising.py, which runs the same
# cells in the order of their importance; learning rates are chosen by memorising-tuning.toml.
[sweep]
title = "Small CIFAR-10 pixels, memorised"
seeds = [0, 1, 2, 3]
paper = "cifar10"
reference = "mslg published"
protocol = "clean: 1,000 clean samples out of 12,000 training images, 5,000 test images, last of 20 epochs"

[data]
source = "cifar10"
root = "{root}"
size = 16
subset = 12000
clean = 1000
test_from = "test"
test = 5000
reveal_noise = false

[network]
name = "cnn8"
width = 16

[train]
epochs = 20
batch_size = 128
weight_decay = 1e-4
schedule = "cosine"
augment = ["normalise-0.5"]
"""


def table(row: Row, name: str, train: str) -> str:
    """A row of a recipe."""
    lines = [f'[rows."{name}"]', f"method = {{ {row.method} }}", *row.more, f"train = {{ {train} }}"]
    return "\n".join(lines) + "\n"


def tuning_recipe() -> str:
    """The recipe of the trials."""
    rows = [
        table(row._replace(more=tuple(each for each in row.more if "paper" not in each)), trial(row, rate), train(rate))
        for row in ROWS
        if row.tuned
        for rate in RATES
    ]
    return "\n".join([TUNING, *rows])


def trial(row: Row, rate: float) -> str:
    """The name of a trial."""
    return f"{row.name}: {rate}"


def train(rate: float) -> str:
    """The settings that are tried."""
    return f"learning_rate = {rate}"


def recipe(chosen: dict[str, float]) -> str:
    """The recipe of the table: the rows whose learning rate is known."""
    columns = []
    for name, (noise, rate, settings, paper) in COLUMNS.items():
        data = f'data = {{ noise = "{noise}", rate = {rate} }}'
        columns.append(f'[columns.{name}]\npaper = "{paper}"\n{data}\n{settings}\n')
    known = [row for row in ROWS if not row.tuned or row.name in chosen]
    rows = [table(row, row.name, train(chosen[row.name]) if row.tuned else PAPER) for row in known]
    return "\n".join([MAIN, *columns, *rows])


def choose(results_folder: Path) -> dict[str, float]:
    """The better learning rate of the rows that have both trials."""
    found = results(load_grid(str(HERE / "recipes" / "memorising-tuning.toml")), results_folder / "memorising-tuning")
    chosen = {}
    for row in ROWS:
        trials = [found.get((trial(row, rate), "released-60", 100)) for rate in RATES]
        if all(each is not None for each in trials) and row.tuned:
            scores = [each.last.get("test/accuracy", 0.0) if each else 0.0 for each in trials]
            chosen[row.name] = RATES[scores.index(max(scores))]
    return chosen


def write_recipes(results_folder: Path) -> tuple[Grid, Grid]:
    """Write both recipes, and read them."""
    tuning, main = HERE / "recipes" / "memorising-tuning.toml", HERE / "recipes" / "memorising.toml"
    tuning.write_text(tuning_recipe())
    main.write_text(recipe(choose(results_folder)))
    return load_grid(str(tuning)), load_grid(str(main))


def run(root: str, results_folder: Path, phases: Sequence[Phase], without: Sequence[str], jobs: int = 1) -> None:
    """Run what is missing of these phases, each row's trials before its cells."""
    for phase in phases:
        rows = [row for row in phase.rows if row.name not in without]
        tuning, _ = write_recipes(results_folder)
        trials = {trial(row, rate) for row in rows if row.tuned for rate in RATES}
        _sweep(
            tuning, results_folder / "memorising-tuning", root, {(each, "released-60", 100) for each in trials}, jobs
        )
        _, main = write_recipes(results_folder)
        cells = {(row.name, column, seed) for row in rows for column in phase.columns for seed in phase.seeds}
        _sweep(main, results_folder / "memorising", root, cells, jobs)


def _sweep(grid: Grid, folder: Path, root: str, wanted: set[tuple[str, str, int]], jobs: int) -> None:
    def say(event: Event) -> None:
        if event.finished is not None or event.error is not None:
            print(outcome(event), flush=True)

    there = Ledger(folder).known(grid.cells()) if folder.exists() else {}
    if wanted - there.keys():
        run_sweep(grid, folder, processes=jobs, root=root, only=lambda cell: cell.key in wanted, watch=say)


def left(results_folder: Path) -> Iterator[str]:
    """Core-hours of each phase that are still to be run, a missing row's cost taken from the others."""
    found = {cell.key: cell.seconds for cell in Ledger(results_folder / "memorising").read().values()}
    typical = {row: statistics.fmean(s for key, s in found.items() if key[0] == row) for row in {k[0] for k in found}}
    usual = statistics.fmean(typical.values()) if typical else 100.0
    counted: set[tuple[str, str, int]] = set(found)
    for phase in PHASES:
        cells = {(row.name, column, seed) for row in phase.rows for column in phase.columns for seed in phase.seeds}
        missing = cells - counted
        counted |= missing
        hours = sum(typical.get(key[0], usual) for key in missing) / 3600
        yield f"{phase.name:11} {len(missing):4} of {len(cells)} cells, {hours:.1f} core-hours"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--root", help="folder with CIFAR-10 and the released student")
    options.add_argument("--until", choices=[phase.name for phase in PHASES], default=PHASES[-1].name)
    options.add_argument("--without", nargs="+", default=[], help="rows to leave for another time")
    options.add_argument("-j", "--jobs", type=int, default=1, help="cells at a time, one core each")
    options.add_argument("--results", type=Path, default=HERE / "results")
    options.add_argument("--estimate", action="store_true")
    options.add_argument("--recipes", action="store_true")
    arguments = options.parse_args()
    if arguments.estimate:
        print("\n".join(left(arguments.results)))
    elif arguments.recipes:
        write_recipes(arguments.results)
    elif arguments.root is None:
        options.error("--root is needed to run")
    else:
        last = [phase.name for phase in PHASES].index(arguments.until)
        run(arguments.root, arguments.results, PHASES[: last + 1], arguments.without, arguments.jobs)


if __name__ == "__main__":
    main()
