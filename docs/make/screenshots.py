"""Makes the pictures of the page in docs/images: a folder of photos, a run on it by defaults, and the browser.

    python docs/make/screenshots.py WORK

The photos are crops of six pictures that scikit-image ships, all CC0 or in the public domain (their docstrings say so).
Needs mslg[backbone], scikit-image and playwright with Chromium.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance

from mslg.data.open import open_named
from mslg.fitting.fit import fit_settings
from mslg.fitting.review_next import review_next
from mslg.review.report import write_report
from mslg.review.start import write_start

IMAGES = Path(__file__).resolve().parents[1] / "images"
PICTURES = {
    "astronaut": "astronaut",
    "bricks": "brick",
    "cat": "chelsea",
    "coffee": "coffee",
    "grass": "grass",
    "gravel": "gravel",
}
EACH, VERIFIED, WRONG, SIDE = 40, 60, 0.25, 192
# The most frequent pair of classes, all of its samples selected.
ONE_PAIR = "document.querySelector('[data-pair]').click(); document.getElementById('pick-all').click()"
SCREENS = {"desktop": (1280, 860), "tablet": (820, 1100), "phone": (390, 800)}


def make_photos(folder: Path) -> None:
    """photos/<class>/ with a quarter in the wrong folder, and verified/<class>/ with copies of some of them."""
    from skimage import data

    random = np.random.default_rng(0)
    names = sorted(PICTURES)
    for number in range(EACH * len(names)):
        true = given = number % len(names)
        if random.random() < WRONG:
            given = int(random.choice([other for other in range(len(names)) if other != true]))
        whole = Image.fromarray(getattr(data, PICTURES[names[true]])()).convert("RGB")
        side = round(min(whole.size) * random.uniform(0.35, 0.7))
        left, top = (int(random.integers(0, length - side + 1)) for length in whole.size)
        crop = whole.crop((left, top, left + side, top + side)).resize((SIDE, SIDE))
        photo = ImageEnhance.Brightness(crop).enhance(random.uniform(0.6, 1.4))
        places = [folder / "photos" / names[given]]
        if number < VERIFIED:
            places.append(folder / "verified" / names[true])
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
            photo.save(place / f"{number:03d}.jpg", quality=85)


def take(browser: Any, page: Path, name: str, screen: str, theme: str, part: str, actions: str = "") -> None:
    """One picture of a part of the page, after some JavaScript."""
    width, height = SCREENS[screen]
    tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
    tab.goto(f"{page.resolve().as_uri()}#{part}")
    tab.wait_for_timeout(300)
    if actions:
        tab.evaluate(actions)
        tab.wait_for_timeout(300)
    tab.screenshot(path=IMAGES / f"{name}.jpg", type="jpeg", quality=70)
    tab.close()


def main() -> None:
    work = Path(sys.argv[1])
    work.mkdir(parents=True, exist_ok=True)
    os.chdir(work)  # paths on the page are then those of a reader
    os.environ.setdefault("MSLG_CACHE", "cache")
    run = Path("run")
    if not (run / "done").exists():
        make_photos(Path())
        tables = {"data": {"source": "photos", "clean": "verified"}}
        result = fit_settings(tables, output=run, progress=False, compare=True, force=True)
        print(result.summary["label_errors"].get("count"), result.summary["comparison"]["verdict"])
    if not (run / "next.parquet").exists():
        review_next(run, count=24, page=True)
    page = write_report(run)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        for screen in SCREENS:
            for theme in ("light", "dark"):
                take(browser, page, f"review-{screen}-{theme}", screen, theme, "review")
        for screen, theme in (("desktop", "light"), ("phone", "dark")):
            take(browser, page, f"summary-{screen}-{theme}", screen, theme, "summary")
        first, _ = write_start(open_named("photos").train, "photos", Path("check"))
        take(browser, first, "check-desktop-light", "desktop", "light", "check")
        take(browser, page, "next-desktop-light", "desktop", "light", "worth")
        take(browser, page, "bulk-desktop-light", "desktop", "light", "review", ONE_PAIR)
        browser.close()


if __name__ == "__main__":
    main()
