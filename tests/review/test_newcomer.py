"""A newcomer's path: a folder of JPEGs, a random check in the browser, a run, bulk decisions, a cleaned folder."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.support.command import mslg
from tests.support.trees import pixels

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("MSLG_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install it, or name it in MSLG_CHROMIUM"),
    pytest.mark.timeout(900),
]
NAMES = ("ant", "bee", "cat")


def photo_folder(root: Path, each: int = 60) -> None:
    """A fifth of the photos is in the wrong folder; a file's name says what it shows."""
    random = np.random.default_rng(0)
    for label, name in enumerate(NAMES):
        for number in range(each):
            given = NAMES[(label + 1) % 3] if random.random() < 0.2 else name
            path = root / given / f"{name}-{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels(label, number, (40, 32))).save(path)


def shown(name: str) -> str:
    """The true class, of an id or a path."""
    return Path(name).name.partition("-")[0]


def wrong(root: Path) -> int:
    return sum(shown(path.name) != path.parent.name for path in root.rglob("*.jpg"))


@contextmanager
def reviewing(folder: Path, part: str) -> Iterator[Any]:
    """The page of `mslg review` in a browser. The server ends by Ctrl-C, as a user ends it."""
    server = subprocess.Popen(
        [sys.executable, "-m", "mslg", "review", str(folder), "--no-browser"], stderr=subprocess.PIPE, text=True
    )
    assert server.stderr is not None
    found = re.search(r"http://\S+", server.stderr.readline())
    assert found is not None
    try:
        with playwright.sync_playwright() as started:
            browser = started.chromium.launch(executable_path=CHROMIUM)
            window = browser.new_context().new_page()
            window.set_default_timeout(60_000)
            window.goto(f"{found[0]}#{part}")
            yield window
            window.wait_for_function("document.getElementById('status') !== null")
            browser.close()
    finally:
        server.send_signal(signal.SIGINT)
        assert "decisions are in" in server.communicate(timeout=60)[1]


def option_of(window: Any, field: str, name: str) -> str:
    """The option of a filter for this class, which also says how often it occurs."""
    texts = window.locator(f"#{field} option").all_inner_texts()
    return next(text for text in texts if text.startswith(name))


def saved(path: Path, count: int, window: Any) -> pd.DataFrame:
    """The decisions on disk, once there are this many."""
    for _ in range(300):
        rows = pd.read_csv(path) if path.exists() else pd.DataFrame()
        if len(rows) == count:
            return rows
        window.wait_for_timeout(100)
    raise AssertionError(f"{path} has {len(rows)} decisions, not {count}")


def test_from_a_folder_of_photos_to_a_cleaned_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSLG_CACHE", str(tmp_path / "cache"))
    photos, check, run = tmp_path / "photos", tmp_path / "check", tmp_path / "run"
    photo_folder(photos)
    before = wrong(photos)
    assert "nothing here would stop a run" in mslg("check", str(photos)).stdout
    assert mslg("start", str(photos), "-o", str(check), "--no-serve").returncode == 0

    with reviewing(check, "check") as window:
        assert not window.is_visible("#accept")  # nothing is suggested for random samples
        for done in range(100):
            name = window.inner_text("#card-title").removeprefix("Sample ")
            if shown(name) == name.split("/")[0]:
                window.keyboard.press("k")
            else:
                window.keyboard.press("r")
                window.keyboard.type(shown(name))
                window.keyboard.press("Enter")
            window.locator("#reviewed", has_text=f"{done + 1} of 100").wait_for()
        rows = saved(check / "decisions.csv", 100, window)
        told = window.inner_text("#task")
        assert re.match(r"\d+ of 100 random labels are wrong: \d+ % \(\d+ % to \d+ %\)", told)
        assert told.endswith(f"Next: mslg fit {photos} --clean {check / 'decisions.csv'} -o runs/first")
    assert (rows["decision"] != "keep").sum() == sum(shown(name) != name.split("/")[0] for name in rows["id"])

    fitted = mslg("fit", str(photos), "--clean", str(check / "decisions.csv"), "-o", str(run))
    assert fitted.returncode == 0, fitted.stderr
    assert "plan: train" in fitted.stderr
    assert re.search(r"about \d+ labels are wrong in total \(90 % interval \d+ to \d+\)", fitted.stderr)

    chosen = mslg("review-next", str(run), "-n", "5", "--page")
    assert "5 samples added to the page as a tab" in chosen.stderr, chosen.stderr

    with reviewing(run, "review") as window:
        listed = int(window.inner_text("#found").split()[0])
        assert listed == int(window.inner_text("#to-review .pill")) > 0
        assert window.inner_text("#to-next .pill") == "5"
        window.select_option("#given", label=option_of(window, "given", "bee"))  # one pair of classes first
        window.select_option("#suggested", label=option_of(window, "suggested", "ant"))
        pair = int(window.inner_text("#found").split()[0])
        assert 0 < pair < listed
        for again in (True, False):  # accepted together, taken back together, accepted again
            window.click("#pick-all")
            window.click("#bulk-accept")
            saved(run / "review.csv", pair, window)
            if again:
                window.click("#bulk-undo")
                saved(run / "review.csv", 0, window)
        other = window.context.new_page()  # a second window knows what the first has decided
        other.goto(window.url)
        other.click("#clear")
        other.select_option("#which", "flagged")
        other.locator("#reviewed", has_text=f"{pair} of {listed} reviewed").wait_for(timeout=60_000)
        first = pd.read_csv(run / "review.csv")["id"][0]
        other.fill("#search", first)
        other.click("#skip")
        window.wait_for_function(
            "(id) => document.querySelector(`[aria-label^='Sample ${id},'][aria-label$='skipped']`)", arg=first
        )
        window.click("#bulk-undo")  # not what the other window has decided since
        assert saved(run / "review.csv", 1, window)["decision"].tolist() == ["skip"]
        other.locator("#reviewed", has_text="1 of 1 reviewed").wait_for(timeout=60_000)
        other.click("#accept")
        other.fill("#search", "")
        other.select_option("#state", "undecided")
        other.click("#pick-all")
        other.click("#bulk-accept")
        rows = saved(run / "review.csv", listed, other)
    assert (rows["decision"] == "accept").all()

    cleaned = tmp_path / "cleaned"
    applied = mslg("apply", str(run), str(run / "review.csv"), "-o", str(cleaned), "--to", "imagefolder")
    assert applied.returncode == 0, applied.stderr
    assert before > 20
    assert wrong(cleaned) < before / 4
