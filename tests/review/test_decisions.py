"""A reviewer's decisions as files: what they mean, and every way in which they can be wrong."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslg.review.cleaned.label_studio import write_label_studio
from mslg.review.cleaned.samples import Sample
from mslg.review.decisions import COLUMNS, Decision, Decisions, as_csv, fingerprint, merge_decisions, read_decisions

CLASSES = ("ant", "bee", "cat, wild")
SAMPLES = [(["1", "2", "007"], ["ant", "bee", "ant"]), (["a,b", 'say "hi"', "=1+1"], ["cat, wild", "bee", "ant"])]


def read(path: Path, text: str | bytes, name: str = "decisions.csv") -> Decisions:
    file = path / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_decisions(file, classes=CLASSES, samples=iter(SAMPLES))


def problems(path: Path, text: str, name: str = "decisions.csv") -> list[str]:
    with pytest.raises(ValueError) as caught:
        read(path, text, name)
    return str(caught.value).splitlines()[1:]


GOOD = (
    "id,decision,label,given_label,suggested_label\n"
    "1,accept,bee,ant,bee\n"
    "2,keep,bee,bee,ant\n"
    '007,relabel,"cat, wild",ant,bee\n'
    '"a,b",remove,,"cat, wild",bee\n'
    '"say ""hi""",skip,,bee,ant\n'
)


def test_every_kind_of_decision_has_its_label(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD)
    assert {name: (each.decision, each.label) for name, each in found.items()} == {
        "1": ("accept", "bee"),
        "2": ("keep", "bee"),
        "007": ("relabel", "cat, wild"),
        "a,b": ("remove", ""),
        'say "hi"': ("skip", ""),
    }
    assert [name for name, each in found.items() if each.verified_label is not None] == ["1", "2", "007"]


@pytest.mark.parametrize("change", [lambda t: "\ufeff" + t, lambda t: t.replace("\n", "\r\n"), lambda t: t + "\n\n"])
def test_what_spreadsheets_do_to_a_file_changes_nothing(tmp_path: Path, change: object) -> None:
    assert read(tmp_path, change(GOOD)) == read(tmp_path, GOOD)  # type: ignore[operator]


def test_json_says_the_same(tmp_path: Path) -> None:
    rows = list(csv.DictReader(GOOD.splitlines()))
    rows[0]["id"] = 1  # type: ignore[assignment]
    text = json.dumps({"format_version": 1, "decisions": rows})
    assert read(tmp_path, text, "decisions.json") == read(tmp_path, GOOD)


def a_task(number: int, name: str, given: str, *chosen: str | None, cancelled: bool = False) -> dict[str, Any]:
    """A task as Label Studio exports it, with an annotation for each choice; None: submitted without one."""

    def result(label: str | None) -> list[dict[str, Any]]:
        tags = {"id": "x1", "from_name": "label", "to_name": "image", "origin": "manual"}
        choice = {**tags, "type": "choices", "value": {"choices": [label]}}
        return [] if label is None else [choice, {"type": "relation", "from_id": "x1", "to_id": "x1"}]

    about = {"completed_by": 1, "was_cancelled": cancelled, "ground_truth": False, "lead_time": 3.1, "task": number}
    return {
        "id": number,
        "data": {"image": "/data/local-files/?d=x.png", "id": name, "given_label": given, "label_quality": 0.1},
        "annotations": [{"id": 7, "result": result(label), **about} for label in chosen],
        "predictions": [],
        "project": 4,
    }


def test_what_label_studio_exports_is_read_as_decisions(tmp_path: Path) -> None:
    tasks = [
        a_task(31, "1", "ant", "bee"),
        a_task(32, "2", "bee", "bee", "bee"),
        a_task(33, "007", "ant", None),
        a_task(34, "a,b", "cat, wild", "ant", cancelled=True),
        a_task(35, "=1+1", "ant"),
    ]
    found = read(tmp_path, json.dumps(tasks), "project-4-at-2024-05-01.json")
    assert {name: (each.decision, each.label, each.given_label) for name, each in found.items()} == {
        "1": ("relabel", "bee", "ant"),
        "2": ("keep", "bee", "bee"),
        "007": ("skip", "", "ant"),
        "a,b": ("skip", "", "cat, wild"),
    }, "two who agree are one, who skipped has not decided, and what nobody looked at is no decision"


def test_what_is_wrong_with_an_export_is_told_by_the_number_of_its_task(tmp_path: Path) -> None:
    several = a_task(33, "007", "ant", "bee")
    several["annotations"][0]["result"][0]["value"]["choices"].append("ant")
    tasks = [
        a_task(31, "1", "ant", "bee", "ant"),
        a_task(32, "2", "bee", "wasp"),
        several,
        {"id": 34, "data": {"image": "x.png"}, "annotations": [{"result": []}]},
        3,
        a_task(36, "nobody", "ant", "ant"),
        a_task(37, "=1+1", "bee", "ant"),
    ]
    told = [line.strip() for line in problems(tmp_path, json.dumps(tasks), "export.json")]
    needed = "not a Label Studio task written by mslg; it needs data.id and annotations[]"
    for line, words in zip(
        told,
        [
            "task 31: '1' was decided before as relabel 'bee', here as keep 'ant'",
            "task 32: '2': unknown class 'wasp'",
            "task 33: 2 classes are chosen (bee, ant); choose one",
            f"task 34: {needed}",
            f"task 5: {needed}",
            "'=1+1' has the given label 'bee' here, but 'ant' in the data",
            "'nobody' is not in the data",
        ],
        strict=True,
    ):
        assert line.startswith(words)


def test_the_tasks_that_are_written_are_the_tasks_that_are_read(tmp_path: Path) -> None:
    reviewed = Sample("a,b", "bee", "cat, wild", "relabel", "reviewed", path=str(tmp_path / "x.png"))
    open_ = Sample("1", "ant", "ant", "", "given", path=str(tmp_path / "y.png"), suggested_label="bee")
    write_label_studio(tmp_path / "tasks.json", iter([[reviewed, open_]]), CLASSES, tmp_path)
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    # What Label Studio adds when the second is annotated as predicted.
    tasks[1]["annotations"] = [{"was_cancelled": False, "result": tasks[1]["predictions"][0]["result"]}]
    found = read(tmp_path, json.dumps(tasks), "export.json")
    assert [(each.id, each.decision, each.label) for each in found.values()] == [
        ("a,b", "relabel", "bee"),
        ("1", "relabel", "bee"),
    ]


def test_labels_that_the_kind_implies_may_be_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, "id,decision,suggested_label\n1,accept,bee\n2,keep,\n")
    assert [(each.label, each.given_label) for each in found.values()] == [("bee", "ant"), ("bee", "bee")]


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    told = problems(
        tmp_path,
        "id,decision,label,given_label,suggested_label\n"
        "1,acept,bee,ant,bee\n"
        "2,relabel,be,bee,ant\n"
        "007,relabel,,ant,bee\n"
        '"a,b",accept,ant,"cat, wild",bee\n'
        "nobody,remove,,,\n"
        '"say ""hi""",keep,bee,ant,bee\n'
        "=1+1,keep,ant,ant\n",
    )
    assert len(told) == 7
    text = "\n".join(told)
    for words in (
        "line 2: unknown decision 'acept'. Did you mean 'accept'?",
        "line 3: '2': unknown class 'be'. Did you mean 'bee'?",
        "line 4: '007' is relabelled, but there is no label",
        "line 5: 'a,b' is accepted with the label 'ant', but 'bee' was suggested; write relabel",
        "line 8: 4 fields instead of 5",
        "'nobody' is not in the data (where ids look like '1')",
        "line 7: 'say \"hi\"' is kept with the label 'bee', but 'ant' was given",
    ):
        assert words in text


def test_decisions_about_other_labels_are_refused(tmp_path: Path) -> None:
    told = problems(tmp_path, "id,decision,label,given_label,suggested_label\n1,accept,ant,bee,ant\n")
    assert "'1' has the given label 'bee' here, but 'ant' in the data: the decisions belong to other labels" in told[0]


def test_the_same_decision_twice_is_one_and_two_different_ones_are_none(tmp_path: Path) -> None:
    assert len(read(tmp_path, "id,decision\n1,remove\n1,remove\n")) == 1
    told = problems(tmp_path, "id,decision,label\n1,remove,\n1,relabel,bee\n")
    assert told == ["  line 3: '1' was decided before as remove, here as relabel 'bee'"]


def test_many_problems_are_counted(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has 50 problems:"):
        read(tmp_path, "id,decision\n" + "".join(f"x{number},keep\n" for number in range(50)))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("d.csv", "", "has no column id and no column decision; it has: none"),
        ("d.csv", "name,decision\n", "has no column id; it has: name, decision"),
        ("d.csv", 'id,decision\n"1,keep\n', "cannot be read as CSV: line 2"),
        ("d.json", "[1, 2]", "holds no decisions; expected"),
        ("d.json", '[{"id": 1, "label": "ant", "image": "x"}]', "or the JSON export of Label Studio"),
        ("d.json", "{", "is not JSON"),
        ("d.json", '{"format_version": 9, "decisions": []}', "has format version 9, this version of mslg reads 1"),
        ("d.json", '{"decisions": [3]}', "decision 1: no object with id and decision"),
        ("d.json", '{"decisions": [{"id": [], "decision": "keep"}]}', "id is \\[\\]; it must be text"),
    ],
)
def test_what_is_no_file_of_decisions_is_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(tmp_path, text, name)


def test_text_in_another_encoding_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        read(tmp_path, "id,decision\nMünze,keep\n".encode("latin-1"))
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none.csv"):
        read_decisions(tmp_path / "none.csv", classes=CLASSES, samples=[])


def test_later_rounds_win_but_to_skip_is_not_to_decide() -> None:
    first = {"1": Decision("1", "accept", "bee"), "2": Decision("2", "remove")}
    second = {"1": Decision("1", "skip"), "2": Decision("2", "keep", "bee"), "3": Decision("3", "skip")}
    both = merge_decisions(first, second)
    assert [each.decision for each in both.values()] == ["accept", "keep", "skip"]
    assert fingerprint(both) == fingerprint({name: both[name] for name in ("2", "1")})
    assert fingerprint(both) != fingerprint(first)
    assert fingerprint({"3": second["3"]}) is None


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(ids=st.lists(TEXT, min_size=1, max_size=6, unique=True), label=TEXT)
def test_any_text_survives_being_written_and_read(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str], label: str
) -> None:
    path = tmp_path_factory.mktemp("any") / "d.csv"
    decisions = {name: Decision(name, "relabel", label, "given", "other") for name in ids}
    path.write_bytes(as_csv(decisions))
    found = read_decisions(path, classes=[label], samples=[(ids, ["given"] * len(ids))])
    assert found == decisions
    assert path.read_bytes().startswith(",".join(COLUMNS).encode() + b"\r\n")
