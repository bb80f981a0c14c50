"""The model card: true numbers, code that works, and nothing in a name is taken for Markdown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import mslg
from mslg.fitting.fit import fit_settings
from mslg.runs.folder import Run
from mslg.runs.model_card import NAME, card, code, escaped
from mslg.runs.recipes import merged
from tests.support.blobs import blobs, small_network
from tests.support.run_folders import STATEMENTS, run_folder

DATA = blobs(clean=200)
FAST: dict[str, Any] = {"epochs": 2, "batch_size": 60, "method": "cross-entropy", "progress": False}


def made_up(path: Path, *, classes: tuple[str, ...] = ("ant", "bee"), **settings: Any) -> str:
    """The card of a run that nobody trained."""
    folder = run_folder(path, classes=classes, **settings)
    about = {"network": {"class": "MLP", "name": "mlp"}, "classes": classes, "prepare": []}
    (folder / "model.json").write_text(json.dumps({**about, "inputs": {"shape": [2], "dtype": "float32"}}))
    return card(Run.open(folder))


def test_every_run_ends_with_a_card_that_says_what_the_summary_says(tmp_path: Path) -> None:
    result = mslg.fit(
        small_network, (DATA.x, DATA.given), (DATA.clean_x, DATA.clean_y), output=tmp_path, compare=True, **FAST
    )
    text = (tmp_path / NAME).read_text()
    summary = result.summary
    held_out = f"Accuracy on 40 held-out clean samples: {100 * summary['last']['report/accuracy']:.1f} %"
    assert held_out in text
    assert escaped(summary["comparison"]["verdict"]) in text, "written again after the comparison"
    assert "| clean samples | 120 meta, 40 select, 40 report |" in text
    assert result.run is not None
    assert f"| fingerprint | `{result.run.config['data']['fingerprint']}` |" in text
    assert f"| `version of torch` | `{result.run.config['versions']['torch']}` |" in text
    assert "network=make_network" in text, "its folder does not say how an own network is made"


def test_the_code_in_a_card_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"data": {"source": "digits", "clean": 40}, "network": {"hidden": [8]}, "method": {"name": "clean-only"}}
    fit_settings(merged(settings, {"train": {"epochs": 2}}), output=tmp_path / "run", progress=False)
    folder = mslg.export(tmp_path / "run", to="safetensors", path=tmp_path / "model")
    for place, name in ((tmp_path / "run", NAME), (folder, "README.md")):
        (block,) = re.findall(r"```python\n(.*?)```", (place / name).read_text(), re.DOTALL)
        monkeypatch.chdir(place)
        exec(block, {})
        assert capsys.readouterr().out.strip() in set("0123456789")


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    text = made_up(tmp_path / "run", summary={"last": {}, "label_errors": {"why": "there are no clean samples"}})
    assert "- Unknown: there is no test set" in text
    assert "- It was not compared with simpler training." in text
    assert "| labels that are wrong | unknown: there are no clean samples |" in text
    assert "No clean samples were held out" in text


def test_what_is_known_is_said(tmp_path: Path) -> None:
    clean = {"meta": 60, "select": 20, "report": 40}
    text = made_up(tmp_path / "run", summary={**STATEMENTS, "clean_samples": clean, "last": {"report/accuracy": 0.9}})
    # Wilson: (0.9 + z²/80) / (1 + z²/40) ± z/(1 + z²/40) · √(0.09/40 + z²/6400)
    assert "Accuracy on 40 held-out clean samples: 90.0 % (90 % interval 79.5 % to 95.4 %)" in text
    assert "It helped a great deal" in text
    assert "| labels that are wrong | about 20 (17 to 24), 34.0 % |" in text
    assert "| flagged labels that are wrong | 66.0 % (60.0 % to 70.0 %) |" in text


def test_names_from_the_data_are_text(tmp_path: Path) -> None:
    classes = ("<script>alert(1)</script>", "[x](javascript:alert)", "a|b\n# head", "`code`", "**bold** {{ 7*7 }}")
    text = made_up(tmp_path / "# [run](x)", classes=classes)
    for forbidden in ("<script", "[x](", "\n# head", "**bold**", "49 }}", "# [run]"):
        assert forbidden not in text
    assert r"\[x\](javascript:alert)" in text
    assert "{{ 7\\*7 }}" in text


@pytest.mark.parametrize(
    ("value", "shown"), [("a`b|c\n", r"`a'b\|c`"), (0.5, "`0.5`"), ([], "`[]`"), ("", "` `"), ("a_b", "`a_b`")]
)
def test_settings_stay_in_their_cell(value: object, shown: str) -> None:
    assert code(value) == shown
