"""Tables and Hugging Face sets of texts, from the file to the report."""

from __future__ import annotations

import importlib.util
import json
import logging
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

from mslg.data.check import inspect
from mslg.data.concat import concat_sources
from mslg.data.make_splits import make_splits
from mslg.data.open import open_named
from mslg.data.source import Source
from mslg.data.texts import Vocabulary, vocabulary_of
from mslg.fitting.fit import fit_settings
from mslg.issues.previews import preview_of
from mslg.review.report import write_report
from mslg.runs.load_model import load_model
from mslg.runs.open_data import open_data
from mslg.runs.recipes import merged
from tests.support.text_tables import clean, reviews

MISSING = importlib.util.find_spec("datasets") is None


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_table_of_texts_is_trained_on_and_its_texts_are_shown(ending: str, tmp_path: Path) -> None:
    for name, table in {"reviews": reviews(), "clean": clean()}.items():
        path = tmp_path / f"{name}{ending}"
        table.to_parquet(path) if ending == ".parquet" else table.to_csv(path, index=False)
    settings = merged(
        {
            "data": {"source": str(tmp_path / f"reviews{ending}"), "clean": str(tmp_path / f"clean{ending}")},
            "train": {"epochs": 12, "batch_size": 16},
        }
    )
    run = tmp_path / "run"
    result = fit_settings(settings, output=run, progress=False)
    assert json.loads((run / "model.json").read_text())["network"]["name"] == "text-mlp"
    assert result.summary["training_samples"] == 60, "positions are no ids: nothing is in both sets"
    assert result.summary["last"]["predictions/accuracy"] > 0.9
    suspects = pq.read_table(run / "suspects.parquet").to_pylist()
    assert suspects[0]["view_kind"] == "text"
    assert suspects[0]["view"].decode() == reviews()["text"][int(suspects[0]["id"])]
    assert suspects[0]["view"].decode() in write_report(run).read_text(encoding="utf-8")
    words = Vocabulary.read(run / "vocabulary.json")
    (rows,) = open_data(settings["data"]).train.store.batches([torch.tensor([7])])
    assert torch.equal(words.encode([reviews()["text"][7]]), rows), "later texts can be encoded alike"
    assert json.loads((run / "vocabulary.json").read_text())["format_version"] == 1
    logits = load_model(run)(words.encode(["fry it with salt and pepper", "anchor, mast and deck"]))
    assert [result.classes[place] for place in logits.argmax(1)] == ["cooking", "sailing"]


def test_the_words_are_those_of_the_training_texts(tmp_path: Path) -> None:
    table = reviews(24).assign(split=["test" if row >= 20 else "train" for row in range(24)])
    table.loc[23, "text"] = "unheard words"
    table.to_csv(tmp_path / "reviews.csv", index=False)
    clean(6).assign(text="harbour neverseen").iloc[:1].to_csv(tmp_path / "clean.csv", index=False)
    opened = open_data(
        {"source": str(tmp_path / "reviews.csv"), "clean": str(tmp_path / "clean.csv"), "words": 12},
    )
    assert isinstance(opened.clean, Source)
    assert opened.test is not None
    vocabulary = vocabulary_of(opened.train.store)
    assert vocabulary is not None
    assert len(vocabulary.words) == 12
    assert "unheard" not in vocabulary.words
    assert vocabulary == vocabulary_of(opened.clean.store) == vocabulary_of(opened.test.store)


def test_captions_of_images_are_no_inputs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from tests.support import trees

    for number in range(4):
        trees.picture(tmp_path / f"{number}.png", number % 2, number)
    (tmp_path / "data.csv").write_text("path,label,text\n" + "".join(f"{n}.png,{'ab'[n % 2]},\n" for n in range(4)))
    with caplog.at_level(logging.INFO, "mslg"):
        found = open_named(str(tmp_path / "data.csv"))
    assert vocabulary_of(found.train.store) is None
    assert "ignored columns: text" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text,label\nfine words,a\n,b\n", r"data.csv has no text in row 2 \(after the header\)"),
        (
            "review,label\nfine words,a\nother,b\n",
            "the columns review are not numeric.*If 'review' contains the texts.*say so: --text-column review",
        ),
        ("text,label\n1,a\n2,b\n", "have no words of two letters or more, such as '1'"),
    ],
)
def test_what_is_wrong_with_a_table_of_texts(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        open_named(str(tmp_path / "data.csv"))


def test_the_same_text_in_both_sets_is_refused_and_found_by_check(tmp_path: Path) -> None:
    reviews(20).to_csv(tmp_path / "reviews.csv", index=False)
    pd.concat([clean(4), reviews(3).tail(1)]).to_csv(tmp_path / "clean.csv", index=False)
    opened = open_data({"source": str(tmp_path / "reviews.csv"), "clean": str(tmp_path / "clean.csv")})
    assert isinstance(opened.clean, Source)
    with pytest.raises(ValueError, match="sample '4' of the clean set has the same content as sample '2'"):
        make_splits(opened.train, opened.clean)
    findings = inspect(open_named(str(tmp_path / "reviews.csv")), opened.clean)
    assert findings.same_content == [["2", "4"]]


def test_texts_of_two_sets_are_shown_when_they_are_joined(tmp_path: Path) -> None:
    reviews(6).to_csv(tmp_path / "reviews.csv", index=False)
    clean(4).to_csv(tmp_path / "clean.csv", index=False)
    opened = open_data({"source": str(tmp_path / "reviews.csv"), "clean": str(tmp_path / "clean.csv")})
    assert isinstance(opened.clean, Source)
    both = concat_sources(opened.clean, opened.train)
    assert preview_of(both, 5, side=64).content.decode() == reviews(6)["text"][1]
    assert preview_of(both, 1, side=64).content.decode() == clean(4)["text"].iloc[1]


def saved(table: pd.DataFrame, path: Path) -> str:
    import datasets

    datasets.Dataset.from_pandas(table, preserve_index=False).save_to_disk(str(path))
    return f"hf:{path}"


@pytest.mark.skipif(MISSING, reason="the datasets library is not installed")
def test_texts_of_the_hugging_face_library(tmp_path: Path) -> None:
    import datasets

    train, test = reviews(40), reviews(12, start=500).drop(columns="true_label")
    parts = {
        "test": datasets.Dataset.from_pandas(test),
        "train": datasets.Dataset.from_pandas(train.assign(verified_label=[*train["true_label"][:10], *[None] * 30])),
    }
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "d"))
    found = open_named(f"hf:{tmp_path / 'd'}")
    assert found.test is not None
    assert found.train.classes == ("cooking", "sailing")
    assert (len(found.train), len(found.test), found.train.ids_given) == (40, 12, False)
    assert vocabulary_of(found.train.store) == vocabulary_of(found.test.store), "the training texts say which words"
    assert found.train.true_label is not None
    assert found.train.verified_label is not None
    assert (found.train.verified_label >= 0).sum() == 10
    assert preview_of(found.train, 3, side=64).content.decode() == train["text"][3]
    opened = open_data({"source": f"hf:{tmp_path / 'd'}", "clean": saved(clean(8), tmp_path / "clean")})
    assert isinstance(opened.clean, Source)
    assert vocabulary_of(opened.clean.store) == vocabulary_of(opened.train.store)


@pytest.mark.skipif(MISSING, reason="the datasets library is not installed")
def test_one_column_of_texts_needs_no_name_and_several_do(tmp_path: Path) -> None:
    table = reviews(6).drop(columns="true_label")
    alone = open_named(saved(table.rename(columns={"text": "sentence"}), tmp_path / "a"))
    assert vocabulary_of(alone.train.store) is not None
    pairs = table.rename(columns={"text": "premise"}).assign(claim=table["text"])
    with pytest.raises(ValueError, match=r"has the text columns premise, claim, and none is called 'text'"):
        open_named(saved(pairs, tmp_path / "b"))
    numbered = table.rename(columns={"text": "sentence"}).assign(idx=range(6))
    with pytest.raises(
        ValueError, match=r"has the text columns sentence and the numbers idx, .*rename_column\('sentence'"
    ):
        open_named(saved(numbered, tmp_path / "c"))
    with pytest.raises(ValueError, match=r"has no text in row 2; fill it in or remove the row"):
        open_named(saved(table.assign(text=["one two", "three", None, "four", "five", "six"]), tmp_path / "d"))
