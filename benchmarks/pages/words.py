"""Numbers, differences and verdicts in words: what a page says follows from the numbers alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from mslg.sweeps.table import Difference, Place

NOTHING = "–"  # not finished, or diverged
# Headings of columns without numbers.
TEXT = ("stated by", "setting", "list", "model", "best other row", "verdict", "in the features' table")


def spread(mean: float, sd: float | None, places: int = 1) -> str:
    """Mean ± standard deviation."""
    return f"{mean:.{places}f}" if sd is None else f"{mean:.{places}f} ± {sd:.{places}f}"


def signed(value: float) -> str:
    """A difference, rounded; zero has no sign."""
    words = f"{value:+.1f}"
    return "0.0" if words in ("+0.0", "-0.0") else words.replace("-", "−")


def amount(value: float) -> str:
    """The size of a difference that is known not to be zero."""
    words = f"{abs(value):.1f}"
    return "less than 0.1" if words == "0.0" else words


def number(place: Place, *, best: bool = False, paper: bool = True) -> str:
    """A cell of a table: ours, how many seeds if not all, and the paper's in small print."""
    finished = len(place.values) + place.failed
    counts = [f"{finished}/{place.seeds}"] if 0 < finished < place.seeds else []
    counts += [f"{place.failed} fail"] if place.failed and place.values else []
    if place.mean is None:
        words = ["fail" if place.failed else NOTHING]
    else:
        words = [bold(spread(place.mean, place.sd)) if best else spread(place.mean, place.sd)]
    words += [f"[{', '.join(counts)}]"] if counts else []
    if paper and place.paper is not None:
        mean, sd = place.paper
        words.append(f"<small>({'fail' if mean is None else spread(mean, sd, 2)})</small>")
    return " ".join(words)


def with_interval(found: Difference | None) -> str:
    """A difference with its interval; bold where the interval leaves zero out."""
    if found is None:
        return NOTHING
    mean = bold(signed(found.mean)) if found.significant else signed(found.mean)
    if found.low is None or found.high is None:
        return mean
    return f"{mean} [{signed(found.low)}, {signed(found.high)}]"


def verdict(found: Difference | None) -> str:
    """What a difference means."""
    if found is None:
        return NOTHING
    if found.low is None:
        return "one seed, no interval"
    if not found.significant:
        return "no significant difference"
    return f"{'above' if found.mean > 0 else 'below'} by {amount(found.mean)}"


def tally(found: Mapping[str, Difference], columns: int) -> str:
    """In how many columns above, the same, below; those that are not above by name."""
    above = [name for name, each in found.items() if each.significant and each.mean > 0]
    same = [f"{name} {signed(each.mean)}" for name, each in found.items() if not each.significant]
    below = [f"{name} by {amount(each.mean)}" for name, each in found.items() if each.significant and each.mean < 0]
    if not found:
        return f"none of the {columns} columns can be judged yet"
    parts = [f"significantly above in {len(above)}", f"no significant difference in {_counted(same)}"]
    parts += [f"significantly below in {_counted(below)}"]
    return f"{of_columns(len(found), columns)}, {', '.join(parts)}"


def of_columns(finished: int, columns: int) -> str:
    """How many columns a verdict speaks of."""
    return (
        f"of {columns} columns" if finished == columns else f"of the {finished} of {columns} columns that can be judged"
    )


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table: numbers to the right, words to the left."""
    rows = [head, ["---", *("---" if name in TEXT else "---:" for name in head[1:])], *lines]
    return "\n".join("| " + " | ".join(word.replace("|", "\\|") for word in row) + " |" for row in rows)


def prose(*words: str) -> str:
    """A paragraph of the page."""
    return _filled(" ".join(words))


def numbered(*items: str) -> str:
    """A numbered list."""
    return "\n".join(_filled(item, f"{number}. ") for number, item in enumerate(items, 1))


def bold(words: str) -> str:
    """In bold."""
    return f"**{words}**"


def thousands(value: int) -> str:
    """1,000 for 1000."""
    return f"{value:,}"


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def capital(sentence: str) -> str:
    """With a capital letter."""
    return sentence[:1].upper() + sentence[1:]


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "0"


def _filled(words: str, mark: str = "") -> str:
    """Lines of at most 120 letters, the first of which begins with a mark."""
    filler = textwrap.TextWrapper(120, initial_indent=mark, subsequent_indent=" " * len(mark))
    filler.break_long_words = filler.break_on_hyphens = False
    return filler.fill(words)
