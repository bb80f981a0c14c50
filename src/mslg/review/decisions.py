"""A reviewer's decisions about labels.

id               the sample
decision         accept: the suggested label is right; keep: the given one is; relabel: another one is, namely `label`;
                 remove: the sample belongs to no class; skip: undecided
label            the label decided on: as suggested, as given, as chosen; empty for remove and skip
given_label, suggested_label  as they were shown

The file is a CSV with these columns, or JSON: {"format_version": 1, "decisions": [{"id": …, "decision": …, …}]}; or the
JSON that Label Studio exports for tasks written by mslg: choosing the given class means keep, any other relabel; a task
that was skipped or in which nothing was chosen is undecided.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from ..registry import unknown
from ..runtime.cells import escaped, unescaped
from ..runtime.files import regular

FORMAT = 1
KINDS = ("accept", "keep", "relabel", "remove", "skip")
COLUMNS = ("id", "decision", "label", "given_label", "suggested_label")
SHOWN = 20  # problems listed one by one


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one sample."""

    id: str
    decision: str
    label: str = ""
    given_label: str = ""
    suggested_label: str = ""

    @property
    def verified_label(self) -> str | None:
        """The label that the reviewer vouches for; None if the sample is removed or undecided."""
        return self.label if self.decision in ("accept", "keep", "relabel") else None

    @property
    def removes(self) -> bool:
        """Whether the sample is to be left out."""
        return self.decision == "remove"


Decisions = dict[str, Decision]  # by id
Piece = tuple[Sequence[str], Sequence[str]]  # ids and given labels of some samples


def read_decisions(path: Path | str, *, classes: Sequence[str], samples: Iterable[Piece]) -> Decisions:
    """The decisions in a file, validated in themselves and against the data; all problems are reported at once. The
    samples come in pieces, as there may be more than fit into memory."""
    found, problems = _parse(Path(path), classes)
    found, mismatches = _match(found, samples)
    _refuse(Path(path), [*problems, *mismatches])
    return found


def read_checked_decisions(path: Path, *, classes: Sequence[str]) -> Decisions:
    """The decisions.csv in a run's folder, which was matched with the data when the run was started."""
    found, problems = _parse(path, classes)
    _refuse(path, problems)
    return found


def _parse(path: Path, classes: Sequence[str]) -> tuple[Decisions, list[str]]:
    """The valid decisions in a file, and what is wrong with the others."""
    problems: list[str] = []
    found: Decisions = {}
    for place, fields in _records(path, problems):
        decision = _decision(fields)
        wrong = _problems(decision, classes)
        before = found.get(decision.id)
        if before is not None and _words(before) != _words(decision) and not wrong:
            wrong.append(f"'{decision.id}' was decided before as {_words(before)}, here as {_words(decision)}")
        problems += [f"{place}: {words}" for words in wrong]
        if not wrong:
            found[decision.id] = decision
    return found, problems


def _refuse(path: Path, problems: list[str]) -> None:
    if problems:
        more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        raise ValueError("\n  ".join([f"{path} has {count}:", *problems[:SHOWN], *more]))


def merge_decisions(*layers: Mapping[str, Decision]) -> Decisions:
    """Decisions of several rounds: the later one wins, but `skip` never replaces a decision."""
    result: Decisions = {}
    for layer in layers:
        result.update({name: each for name, each in layer.items() if each.decision != "skip" or name not in result})
    return result


def as_csv(decisions: Mapping[str, Decision]) -> bytes:
    """The content of a decisions.csv."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)  # commas, CRLF, and quotes where needed: RFC 4180
    writer.writerow(COLUMNS)
    writer.writerows(map(escaped, astuple(decision)) for decision in decisions.values())
    return text.getvalue().encode()


def fingerprint(decisions: Mapping[str, Decision]) -> str | None:
    """A short hash of all decisions but `skip`; None if there are none."""
    decided = sorted((each.id, each.decision, each.label) for each in decisions.values() if each.decision != "skip")
    return hashlib.sha256(json.dumps(decided).encode()).hexdigest()[:16] if decided else None


def _records(path: Path, problems: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Where each decision is in the file, and its fields as text."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; give a decisions.csv or .json downloaded from the report")
    try:
        text = regular(path).read_bytes().decode("utf-8-sig")  # spreadsheets write a byte order mark
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}); save it as CSV in UTF-8") from error
    yield from _from_json(path, text, problems) if path.suffix == ".json" else _from_csv(path, text, problems)


def _from_csv(path: Path, text: str, problems: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(rows, [])]
        missing = [name for name in ("id", "decision") if name not in header]
        if missing:
            columns = ", ".join(header) or "none"
            raise ValueError(f"{path} has no column {' and no column '.join(missing)}; it has: {columns}")
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                problems.append(f"line {rows.line_num}: {len(row)} fields instead of {len(header)}")
                continue
            yield f"line {rows.line_num}", dict(zip(header, map(unescaped, row), strict=True))
    except csv.Error as error:
        raise ValueError(f"{path} cannot be read as CSV: line {rows.line_num}: {error}") from error


def _from_json(path: Path, text: str, problems: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"{path} is not JSON ({why})") from error
    if isinstance(value, list) and any(isinstance(each, dict) and "annotations" in each for each in value):
        yield from _from_label_studio(value, problems)
        return
    entries = value.get("decisions") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        expected = f'{{"format_version": {FORMAT}, "decisions": [...]}}'
        raise ValueError(f"{path} holds no decisions; expected {expected}, or the JSON export of Label Studio")
    if value.get("format_version", FORMAT) != FORMAT:
        raise ValueError(f"{path} has format version {value['format_version']}, this version of mslg reads {FORMAT}")
    for number, entry in enumerate(entries, 1):
        place = f"decision {number}"
        if not isinstance(entry, dict) or not {"id", "decision"} <= set(entry):
            problems.append(f"{place}: no object with id and decision")
            continue
        fields: dict[str, Any] = {name: "" if (each := entry.get(name)) is None else each for name in COLUMNS}
        odd = [name for name, each in fields.items() if isinstance(each, bool) or not isinstance(each, str | int)]
        if odd:
            problems.append(f"{place}: {odd[0]} is {entry[odd[0]]!r}; it must be text")
            continue
        yield place, {name: str(each) for name, each in fields.items()}


def _from_label_studio(tasks: list[Any], problems: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    for number, task in enumerate(tasks, 1):
        place = f"task {number}"
        try:
            place = f"task {task.get('id', number)}"  # the number under which Label Studio shows it
            if not task.get("annotations"):
                continue
            sample = {"id": str(task["data"]["id"]), "given_label": str(task["data"].get("given_label") or "")}
            found = [_choices(each) for each in task["annotations"] if not each.get("was_cancelled")]
        except (AttributeError, KeyError, TypeError):
            needed = "data.id and annotations[].result[].value.choices"
            problems.append(f"{place}: not a Label Studio task written by mslg; it needs {needed}")
            continue
        decided = [labels for labels in found if labels]
        if not decided:
            yield place, {**sample, "decision": "skip"}
        for labels in decided:
            if len(labels) > 1:
                problems.append(f"{place}: {len(labels)} classes are chosen ({', '.join(labels)}); choose one")
                continue
            kind = "keep" if labels[0] == sample["given_label"] else "relabel"
            yield place, {**sample, "decision": kind, "label": labels[0]}


def _choices(annotation: Mapping[str, Any]) -> list[str]:
    """The classes chosen in an annotation; regions and relations have none."""
    return [str(label) for part in annotation["result"] for label in part.get("value", {}).get("choices", [])]


def _decision(fields: Mapping[str, str]) -> Decision:
    kind = fields["decision"].strip()
    given, suggested = fields.get("given_label", ""), fields.get("suggested_label", "")
    return Decision(fields["id"], kind, _label(kind, fields.get("label", ""), given, suggested), given, suggested)


def _label(kind: str, label: str, given: str, suggested: str) -> str:
    """The label that follows from a decision, where the file leaves it out."""
    return "" if kind in ("remove", "skip") else label or {"accept": suggested, "keep": given}.get(kind, "")


def _problems(decision: Decision, classes: Sequence[str]) -> list[str]:
    """What is wrong with a decision regardless of the data."""
    if not decision.id:
        return ["no id"]
    if decision.decision not in KINDS:
        return [str(unknown("decision", decision.decision, KINDS))]
    name = f"'{decision.id}'"
    if decision.decision == "relabel" and not decision.label:
        return [f"{name} is relabelled, but there is no label"]
    if decision.decision == "accept" and not decision.label:
        return [f"{name} is accepted, but there is no suggested label"]
    if decision.label and decision.label not in classes:
        return [f"{name}: {unknown('class', decision.label, classes)}"]
    if decision.decision == "accept" and decision.suggested_label not in ("", decision.label):
        words = f"is accepted with the label '{decision.label}', but '{decision.suggested_label}' was suggested"
        return [f"{name} {words}; write relabel for another label"]
    if decision.decision == "keep" and decision.given_label not in ("", decision.label):
        words = f"is kept with the label '{decision.label}', but '{decision.given_label}' was given"
        return [f"{name} {words}; write relabel for another label"]
    return []


def _match(decisions: Decisions, samples: Iterable[Piece]) -> tuple[Decisions, list[str]]:
    """The decisions with the given labels of the data, and what contradicts it."""
    found, problems = dict(decisions), []
    left, example = set(decisions), None
    for ids, given_labels in samples:
        for name, given in zip(ids, given_labels, strict=True):
            example = example or name
            decision = decisions.get(name)
            if decision is None:
                continue
            left.discard(name)
            if decision.given_label not in ("", given):
                problems.append(
                    f"'{name}' has the given label '{decision.given_label}' here, but '{given}' in the data: the "
                    "decisions belong to other labels"
                )
            elif decision.decision == "keep" and decision.label not in ("", given):
                problems.append(f"'{name}' is kept with the label '{decision.label}', but the given one is '{given}'")
            label = _label(decision.decision, decision.label, given, decision.suggested_label)
            found[name] = replace(decision, label=label, given_label=given)
    there = "" if example is None else f" (where ids look like '{example}')"
    problems += [f"'{name}' is not in the data{there}" for name in decisions if name in left]
    return found, problems


def _words(decision: Decision) -> str:
    return f"{decision.decision} '{decision.label}'" if decision.label else decision.decision
