"""From a run and decisions to a cleaned data set, in every format, whatever classes and files are called."""

from __future__ import annotations

import csv
import json
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from mslg.data.images import EscapingPath
from mslg.data.open import open_named
from mslg.data.relabel import relabelled
from mslg.data.source import make_source
from mslg.review.cleaned.folder import MARK, folder_names, free_name, safe_name
from mslg.review.cleaned.samples import Sample, cleaned_samples
from mslg.review.cleaned.write import format_of, write_cleaned
from mslg.runs.folder import Run

CLASSES = ["../x", "ant", "Ant", "CON", ".hidden", "a/b\\c", 'q"<>&', "trailing. ", "ünï"]


def a_run(path: Path, rows: list[dict[str, object]], clean: list[dict[str, object]] | None = None) -> Run:
    """A run's folder as far as `mslg apply` looks into it."""
    run = Run.create(path, {"data": {}, "train": {}})
    run.write_json("classes.json", {"classes": CLASSES})
    table = pa.Table.from_pylist([{"is_label_issue": False, "label_quality": 0.9, "rank": 0, **row} for row in rows])
    pq.write_table(table, path / "labels.parquet", row_group_size=2)
    if clean:
        pq.write_table(pa.Table.from_pylist(clean), path / "division.parquet")
    return run


def picture(path: Path, shade: int = 0) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4), shade).save(path)
    return str(path)


ROWS: list[dict[str, object]] = [
    {"id": "1", "given_label": "ant", "suggested_label": "../x", "is_label_issue": True, "label_quality": 0.1},
    {"id": "2", "given_label": "ant", "suggested_label": "Ant", "is_label_issue": True, "label_quality": 0.2},
    {"id": "3", "given_label": "Ant", "suggested_label": "Ant"},
    {"id": "4", "given_label": "CON", "suggested_label": "ant", "is_label_issue": True, "label_quality": 0.3},
    {"id": "5", "given_label": ".hidden", "suggested_label": ".hidden"},
    {"id": "6", "given_label": "a/b\\c", "suggested_label": "a/b\\c"},
]
VERIFIED: dict[str, object] = {"id": "7", "label": "ant", "given_label": "CON", "part": "select", "in_data": True}
REVIEWED: dict[str, object] = {"id": "8", "label": "ünï", "given_label": "ant", "part": "reviewed", "in_data": True}
STRANGER: dict[str, object] = {"id": "9", "label": "ant", "given_label": None, "part": "meta", "in_data": False}
DECISIONS = (
    "id,decision,label,given_label,suggested_label\n"
    "1,accept,../x,ant,../x\n2,keep,ant,ant,Ant\n3,remove,,,\n5,skip,,,\n"
)


@pytest.fixture
def decisions(tmp_path: Path) -> Path:
    path = tmp_path / "decisions.csv"
    path.write_text(DECISIONS)
    return path


def samples(run: Run, decisions: Path | None, **settings: bool) -> dict[str, Sample]:
    pieces, counts = cleaned_samples(run, decisions, **settings)
    found = [sample for piece in pieces for sample in piece]
    assert counts.samples == len(found)
    return {sample.id: sample for sample in found}


def test_every_sample_has_the_best_label_there_is(tmp_path: Path, decisions: Path) -> None:
    run = a_run(tmp_path / "run", ROWS, [VERIFIED, REVIEWED, STRANGER])
    found = samples(run, decisions)
    assert {name: (each.label, each.label_source) for name, each in found.items()} == {
        "1": ("../x", "reviewed"),
        "2": ("ant", "reviewed"),
        "4": ("CON", "given"),
        "5": (".hidden", "given"),
        "6": ("a/b\\c", "given"),
        "7": ("ant", "verified"),
        "8": ("ünï", "reviewed"),
    }
    accepted = samples(run, decisions, suggested=True)
    assert (accepted["4"].label, accepted["4"].label_source) == ("ant", "suggested")
    assert {name: each for name, each in accepted.items() if name != "4"} == {
        name: each for name, each in found.items() if name != "4"
    }


def test_counts(tmp_path: Path, decisions: Path) -> None:
    pieces, counts = cleaned_samples(a_run(tmp_path / "run", ROWS, [VERIFIED]), decisions, suggested=True)
    assert sum(map(len, pieces)) == counts.samples == 6
    assert counts.removed == 1
    assert counts.changed == 3  # 1 as decided, 4 as suggested, 7 as verified
    assert dict(counts.by_source) == {"reviewed": 2, "suggested": 1, "given": 2, "verified": 1}


def test_what_was_reviewed_before_may_be_reviewed_again_and_what_was_verified_stands(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", ROWS, [VERIFIED, REVIEWED])
    (run.path / "decisions.csv").write_text("id,decision,label,given_label,suggested_label\n10,remove,,ant,Ant\n")
    again = tmp_path / "d.csv"
    again.write_text("id,decision,label\n7,relabel,Ant\n8,relabel,Ant\n10,remove,\n")
    found = samples(run, again)
    assert found["7"].label == "ant"
    assert found["8"].label == "Ant"
    assert "10" not in found, "removed in an earlier round, and known to have been there"


def test_what_was_removed_before_cannot_be_brought_back_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = a_run(tmp_path / "run", ROWS)
    (run.path / "decisions.csv").write_text("id,decision,label,given_label,suggested_label\n10,remove,,ant,Ant\n")
    again = tmp_path / "d.csv"
    again.write_text("id,decision,label\n1,keep,\n10,keep,\n")
    assert "10" not in samples(run, again)
    assert "1 samples with a label now were removed before" in caplog.text
    assert "such as '10'" in caplog.text


def test_decisions_about_unknown_samples_are_refused(tmp_path: Path) -> None:
    bad = tmp_path / "d.csv"
    bad.write_text("id,decision\nnobody,remove\n9,remove\n")
    with pytest.raises(
        ValueError, match=r"has 2 problems(?s:.*)'nobody' is not in the data(?s:.*)'9' is not in the data"
    ):
        samples(a_run(tmp_path / "run", ROWS, [STRANGER]), bad)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_tables_are_labels_for_the_next_fit(tmp_path: Path, decisions: Path, kind: str) -> None:
    rows = [{**row, "id": f"digit-{number}"} for number, row in enumerate(ROWS)]
    run = a_run(tmp_path / "run", rows)
    decisions.write_text("id,decision,label\ndigit-0,relabel,CON\ndigit-2,remove,\n")
    path = tmp_path / f"cleaned.{kind}"
    write_cleaned(run, path, kind, decisions=decisions)
    table = pd.read_parquet(path) if kind == "parquet" else pd.read_csv(path, dtype=str, keep_default_na=False)
    assert list(table.columns) == ["id", "label", "given_label", "decision", "label_source"]
    assert table["label"].tolist() == ["CON", "ant", "CON", ".hidden", "a/b\\c"]
    numbers = [CLASSES.index(str(row["given_label"])) for row in rows]
    source = make_source([[0.0]] * 6, numbers, classes=CLASSES, ids=[str(row["id"]) for row in rows])
    again = relabelled(source, path)
    assert again.ids == ("digit-0", "digit-1", "digit-3", "digit-4", "digit-5")
    assert [CLASSES[number] for number in again.label.tolist()] == table["label"].tolist()
    with pytest.raises(ValueError, match=f"cleaned.{kind} contains only labels, as written by mslg noise"):
        open_named(str(path))


def test_a_table_beside_its_files_is_a_manifest(tmp_path: Path) -> None:
    rows = [{**row, "path": picture(tmp_path / "pictures" / f"{row['id']}.png")} for row in ROWS]
    run = a_run(tmp_path / "run", rows)
    write_cleaned(run, tmp_path / "cleaned.csv", "csv")
    opened = open_named(str(tmp_path / "cleaned.csv")).train
    assert opened.ids == ("1", "2", "3", "4", "5", "6")
    assert [opened.classes[n] for n in opened.label.tolist()] == [row["given_label"] for row in ROWS]


@pytest.mark.parametrize("typed", ["pictures", "../here/pictures", "pictures/../pictures"])
def test_files_that_are_not_below_a_table_are_named_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    work = tmp_path / "here"
    picture(work / "pictures" / "1.png")
    run = a_run(tmp_path / "run", [{**ROWS[0], "path": f"{typed}/1.png"}])
    (work / "out").mkdir()
    monkeypatch.chdir(work)

    def path_in(table: str) -> str:
        write_cleaned(run, Path(table), "csv", force=True)
        with Path(table).open() as file:
            return next(csv.DictReader(file))["path"]

    for table in ("out/cleaned.csv", "../cleaned/table.csv"):
        assert path_in(table) == str(work / "pictures" / "1.png"), "as typed it would be another file, seen from there"
        with pytest.raises(EscapingPath, match=r"pictures/1.png' in row 1 .* must be relative to the manifest"):
            open_named(table)
    for table in ("cleaned.csv", "../here/again.csv"):
        assert path_in(table) == "pictures/1.png"


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", ROWS)
    path = tmp_path / "cleaned.csv"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="already exists"):
        write_cleaned(run, path, "csv")
    assert path.read_text() == "mine"
    write_cleaned(run, path, "csv", force=True)
    assert path.read_text().startswith("id,label")
    assert [each.name for each in tmp_path.iterdir() if each.name.endswith(".partial")] == []


@pytest.mark.parametrize(
    ("name", "asked", "expected"),
    [("a.parquet", None, "parquet"), ("a.csv", None, "csv"), ("a.csv", "imagefolder", "imagefolder")],
)
def test_the_name_tells_the_format(name: str, asked: str | None, expected: str) -> None:
    assert format_of(Path(name), asked) == expected


def test_a_format_that_is_not_clear_or_unknown(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the format of x.json is not clear; .* name one with --to"):
        format_of(Path("x.json"), None)
    with pytest.raises(ValueError, match=r"unknown format 'labelstudio'. Did you mean 'label-studio'"):
        format_of(Path("x.json"), "labelstudio")
    with pytest.raises(ValueError, match="are not files, so they cannot be written as imagefolder"):
        write_cleaned(a_run(tmp_path / "run", ROWS), tmp_path / "x", "imagefolder")


class TestFolder:
    def run(self, tmp_path: Path) -> Run:
        names = ["1.png", "1.PNG", ".dot.png", "1.png", "x y.png", "1.png"]
        rows = [
            {**row, "path": picture(tmp_path / "in" / str(place) / name, place)}
            for place, (row, name) in enumerate(zip(ROWS, names, strict=True))
        ]
        return a_run(tmp_path / "run", rows)

    def write(self, run: Run, out: Path, **settings: bool) -> dict[str, str]:
        return write_cleaned(run, out, "imagefolder", **settings).folders  # type: ignore[arg-type]

    def test_it_is_data_again(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        renamed = self.write(self.run(tmp_path), out)
        files = sorted(path.relative_to(out).as_posix() for path in out.rglob("*.[pP]*"))
        assert files == [
            "Ant-2/_.dot.png",
            "_.hidden/x y.png",
            "_CON/1.png",
            "a_b_c/1.png",
            "ant/1-2.PNG",
            "ant/1.png",
        ]
        assert renamed["Ant"] == "Ant-2"
        assert len(open_named(str(out)).train) == 6
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out", "run"], "nothing beside it"
        assert (out / "ant" / "1.png").read_bytes() == (tmp_path / "in" / "0" / "1.png").read_bytes()

    def test_no_class_leaves_it(self, tmp_path: Path) -> None:
        path = picture(tmp_path / "in" / "a.png")
        hostile = ["..", ".", "", "/etc", "../../x", "a\x00b", "C:\\x", "~", "x" * 300]
        run = a_run(tmp_path / "run", [{"id": "1", "given_label": "..", "suggested_label": "..", "path": path}])
        out = tmp_path / "deep" / "out"
        run.write_json("classes.json", {"classes": hostile})
        write_cleaned(run, out, "imagefolder")
        assert {each.parent for each in out.iterdir()} == {out}
        assert len([each for each in out.iterdir() if each.is_dir()]) == len(hostile)
        assert sorted(each.name for each in (tmp_path / "deep").iterdir()) == ["out"]

    def test_links(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = self.run(tmp_path)
        self.write(run, tmp_path / "hard", link=True)
        original = tmp_path / "in" / "0" / "1.png"
        assert (tmp_path / "hard" / "ant" / "1.png").samefile(original)

        def no_link(*_: object) -> None:
            raise OSError("another file system")

        monkeypatch.setattr("os.link", no_link)
        self.write(run, tmp_path / "soft", link=True)
        link = tmp_path / "soft" / "ant" / "1.png"
        assert link.is_symlink()
        assert link.samefile(original)
        assert len(open_named(str(tmp_path / "soft")).train) == 6

    def test_only_its_own_folders_are_replaced(self, tmp_path: Path) -> None:
        run, out = self.run(tmp_path), tmp_path / "out"
        self.write(run, out)
        with pytest.raises(FileExistsError, match="is not empty; choose another folder, or replace it with --force"):
            self.write(run, out)
        (out / "ant" / "1.png").unlink()
        self.write(run, out, force=True)
        assert (out / "ant" / "1.png").exists()
        (out / MARK).unlink()
        with pytest.raises(FileExistsError, match=r"was not written by mslg \("):
            self.write(run, out, force=True)

    def test_it_is_not_replaced_by_what_it_holds(self, tmp_path: Path) -> None:
        run, out = self.run(tmp_path), tmp_path / "out"
        self.write(run, out)
        own = a_run(
            tmp_path / "again",
            [{"id": "1", "given_label": "ant", "suggested_label": "ant", "path": str(out / "ant" / "1.png")}],
        )
        with pytest.raises(ValueError, match=r"1.png lies in .*out, which would be replaced"):
            self.write(own, out, force=True)
        assert (out / "ant" / "1.png").exists()

    def test_missing_files_are_named_and_nothing_is_written(self, tmp_path: Path) -> None:
        run = self.run(tmp_path)
        (tmp_path / "in" / "3" / "1.png").unlink()
        with pytest.raises(FileNotFoundError, match=r"1 files are missing, such as .*3/1.png"):
            self.write(run, tmp_path / "out")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "run"]


def test_many_files_of_one_name_take_no_time() -> None:
    taken: dict[str, int] = {}
    begun = time.perf_counter()
    found = [free_name("image.jpg", taken) for _ in range(20_000)]
    assert time.perf_counter() - begun < 2
    assert found[:3] == ["image.jpg", "image-2.jpg", "image-3.jpg"]
    assert len(set(found)) == 20_000
    assert free_name("IMAGE-2.jpg", taken) == "IMAGE-2-2.jpg"


def test_names_are_safe_and_different() -> None:
    names = ["a", "A", "a/b", "a\\b", "a_b", "..", "", "nul", "NUL.txt", "é", "e\u0301", "x" * 300 + ".jpeg"]
    found = folder_names(names)
    assert len({name.casefold() for name in found.values()}) == len(names)
    for name in found.values():
        assert name
        assert not set(name) & set('/\\<>:"|?*\x00')
        assert not name.startswith(".")
        assert len(name.encode()) < 255
    assert safe_name("x" * 300 + ".jpeg").endswith(".jpeg")


RESULT_KEYS = {"from_name", "to_name", "type", "value"}


def test_label_studio_tasks(tmp_path: Path, decisions: Path) -> None:
    rows = [{**row, "path": picture(tmp_path / "pic tures" / f"{row['id']}+&.png")} for row in ROWS]
    run = a_run(tmp_path / "run", rows, [{**VERIFIED, "path": picture(tmp_path / "v.png")}])
    path = tmp_path / "tasks.json"
    write_cleaned(run, path, "label-studio", decisions=decisions, document_root=tmp_path)
    tasks = json.loads(path.read_text())
    assert [task["data"]["id"] for task in tasks] == ["1", "2", "4", "5", "6", "7"]
    view = ElementTree.fromstring(path.with_suffix(".xml").read_text())
    image, choices = view.find("Image"), view.find("Choices")
    assert image is not None
    assert choices is not None
    assert image.get("value") == "$image"
    assert choices.get("toName") == image.get("name")
    allowed = [choice.get("value") for choice in choices]
    assert allowed == CLASSES
    for task in tasks:
        assert set(task) <= {"data", "annotations", "predictions"}
        address = urlparse(task["data"]["image"])
        assert address.path == "/data/local-files/"
        assert (tmp_path / parse_qs(address.query)["d"][0]).exists()
        for entry in [*task.get("annotations", []), *task.get("predictions", [])]:
            assert set(entry) <= {"result", "ground_truth", "model_version", "score"}
            for result in entry["result"]:
                assert set(result) == RESULT_KEYS
                assert (result["from_name"], result["to_name"]) == (choices.get("name"), image.get("name"))
                assert result["type"] == "choices"
                assert result["value"]["choices"][0] in allowed
            assert 0 <= entry.get("score", 0) <= 1
    by_id = {task["data"]["id"]: task for task in tasks}
    assert by_id["1"]["annotations"][0]["result"][0]["value"]["choices"] == ["../x"]
    assert by_id["2"]["annotations"][0]["result"][0]["value"]["choices"] == ["ant"]
    assert "annotations" not in by_id["4"]
    assert by_id["4"]["predictions"][0]["result"][0]["value"]["choices"] == ["ant"]
    assert by_id["4"]["predictions"][0]["score"] == pytest.approx(0.7)
    assert "predictions" not in by_id["7"]
    with pytest.raises(ValueError, match=r"is not below .*elsewhere; pass the folder .* with --document-root"):
        write_cleaned(run, tmp_path / "x.json", "label-studio", document_root=tmp_path / "elsewhere")


def test_a_run_without_labels_says_how_to_get_them(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {"data": {}})
    with pytest.raises(ValueError, match=r"is not finished .*; finish it: mslg fit -o .* --resume"):
        cleaned_samples(run, None)
