"""The pages and pictures of docs/results, from the committed sweeps and from nothing else.

    python benchmarks/results_pages.py

Reads benchmarks/results/<sweep>/{recipe.toml,cells.jsonl} and benchmarks/results/*.json, and writes docs/results/*.md
and *.svg (but for digits.md, which benchmarks/digits_table.py writes), and, between marks, the tables of a step's cost
into docs/speed.md and README.md, the verdict of the robustness suite into README.md and docs/choosing.md, and the
tables of very many samples into docs/scale.md. The same cells give the same bytes. Tables show rows and columns that
are complete.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from pages import (
    ablations,
    any_model,
    clean_samples,
    features,
    full_protocol,
    issues,
    label_learning,
    ladder,
    memorising,
    paper_claims,
    practitioner,
    rerun,
    robustness,
    scale,
    scorecard,
    step_cost,
    tuning,
)
from pages.memorising_tables import tables
from pages.sweep import Sweep, read
from pages.words import prose

ROOT = Path(__file__).parent.parent
RESULTS, RECIPES, DOCS = ROOT / "benchmarks" / "results", ROOT / "benchmarks" / "recipes", ROOT / "docs" / "results"
PACKAGED = ROOT / "src" / "mslg" / "runs" / "recipes"
SCALE = ROOT / "docs" / "scale.md"
WITH_COSTS = ROOT / "docs" / "speed.md", ROOT / "README.md"
WITH_VERDICT = {ROOT / "README.md": "docs/results", ROOT / "docs" / "choosing.md": "results"}  # where they find results
MADE = "<!-- Made by benchmarks/results_pages.py. -->"
LINES = {
    "features": ("The paper's Table 1 on frozen features", "every method and control on 13 noises, beside the paper"),
    "tuning": ("How the settings were chosen", "settings of every method, on held-out training samples"),
    "clean-samples": ("How many clean samples?", "accuracy over 50 to 5,000 clean samples at three noise ratios"),
    "ablations": ("Ablations", "the paper's design claims, each tested by changing one thing"),
    "ladder": ("The ladder of cheaper steps", "what each cheaper way to the labels costs in accuracy"),
}
FIRST = {
    "robustness": (
        "Robustness of the default",
        "against seven controls and other methods, in every setting",
    ),
    "label-learning": ("What label learning adds", "the default with and without MSLG's meta-gradient"),
    "memorising": ("Networks that memorise", "the paper's regime on small images: every method, MSLG in three forms"),
}
MORE = {
    "issues": ("The issue list", "which list finds wrong labels best, and whether its error rate holds"),
    "practitioner": ("A folder of photos", "6,000 JPEG files by defaults, beside cleanlab on the same features"),
    "any-model": ("Any model's probabilities", "`find_label_issues` beside cleanlab and self-confidence"),
    "digits": ("All methods on digits", "every method with its defaults on small images, in minutes"),
    "full-protocol": ("The full protocol", "the paper's experiments at their own scale: what a GPU owner can add"),
}


def write(results: Path = RESULTS, recipes: Path = RECIPES, docs: Path = DOCS) -> list[Path]:
    """Write the pages; returns their paths."""
    sweeps = {name: read(name, results, recipes).finished_part() for name in LINES}
    docs.mkdir(parents=True, exist_ok=True)
    names = ("features-chosen", "study", "memorising")
    chosen, study, memorised = (read(name, results, recipes) for name in names)
    of_sweeps: dict[str, Callable[[Sweep], str]] = {
        "features": lambda sweep: features.page(sweep, chosen, docs),
        "tuning": lambda sweep: tuning.page(sweep, sweeps["features"], study, results / "exploration.md"),
        "clean-samples": lambda sweep: clean_samples.page(sweep, docs),
        "ablations": ablations.page,
    }
    texts = {
        **{name: page(sweeps[name]) if sweeps[name].results else not_run(name) for name, page in of_sweeps.items()},
        "memorising": memorising.page(memorised, read("memorising-tuning", results, recipes), docs),
        "ladder": ladder.page(
            sweeps["ladder"], *(read(f"ladder-{name}", results, recipes) for name in ("published", "pixels"))
        ),
        "full-protocol": full_protocol.page(results, read(full_protocol.NAME, results, PACKAGED)),
        "issues": issues.page(results),
        "any-model": any_model.page(results),
        "practitioner": practitioner.page(results),
        "robustness": robustness.page(results),
        "label-learning": label_learning.page(results),
        "index": index(sweeps, memorised, results, docs),
    }
    paths = []
    for name, text in texts.items():
        paths.append(docs / f"{name}.md")
        paths[-1].write_text(f"{MADE}\n\n{text}\n")
    return paths


def not_run(name: str) -> str:
    """The page of a sweep without cells."""
    command = f"mslg sweep benchmarks/recipes/{name}.toml --root DATA -o benchmarks/results/{name}"
    return f"# {LINES[name][0]}\n\nNot run yet: `{command}`."


def index(sweeps: dict[str, Sweep], memorised: Sweep, results: Path, docs: Path) -> str:
    """The scorecard, the paper's claims, and what tables there are."""
    lines = [f"- [{title}]({name}.md): {words}." for name, (title, words) in {**FIRST, **LINES, **MORE}.items()]
    about = prose(
        "In all of them the clean samples come out of the training set, the test set is untouched, and the last epoch",
        "counts. Differences between rows are taken seed by seed, with Student's 95 % interval; of a hundred such",
        "intervals about five leave out a zero that is true. Recipes, single runs and the commands that made them are",
        "in `benchmarks/`; `python benchmarks/results_pages.py` makes these pages from them.",
    )
    pixels = tables(memorised)
    parts = scorecard.sections(results) if scorecard.draw(results, docs, sweeps["features"], pixels) else []
    parts += [*scorecard.beyond(sweeps["features"]), *scorecard.memorised(pixels)]
    names = ("features", "ablations", "clean-samples")
    claims = paper_claims.section(*(sweeps[name] for name in names), memorised)
    links = ["## The tables", "\n".join(lines), about]
    return "\n\n".join(["# Results", *parts, *claims, *links, *rerun.section(results)])


def main() -> None:
    """Write the pages of this repository, or of other folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the sweeps are")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the pages go")
    options = parser.parse_args()
    for path in write(options.results, docs=options.docs):
        print(path)
    if options.docs == DOCS:
        for page in WITH_COSTS:
            page.write_text(step_cost.filled(page.read_text(), options.results))
            print(page)
        for page, folder in WITH_VERDICT.items():
            page.write_text(scorecard.filled(page.read_text(), options.results, folder))
            print(page)
        SCALE.write_text(scale.filled(SCALE.read_text(), options.results))
        scale.draw(options.results, DOCS / "growth.svg")
        print(SCALE)


if __name__ == "__main__":
    main()
