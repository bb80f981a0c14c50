"""JPEG decoders on the same files: processor time per image, and how far the pixels are from Pillow's.

    python benchmarks/decoding.py --data FOLDER       # writes benchmarks/results/decoding.json

Two sets: the JPEG files of FOLDER/train/<class>/ (CIFAR-10 as files, 32 × 32 pixels) at their own size, and photos of
1600 × 1200 pixels that are made here (blown-up pictures with grain, quality 85, colours at half resolution), brought to
224 × 224 pixels as `mslg` does it: scaled until the short side has 256, then cropped. Every decoder starts from the
bytes of a file and ends with a (3, height, width) array; Pillow scales and crops for all of them. "reduced" decoders
let the JPEG library drop the detail that is scaled away anyway. Decoders that are not installed are left out:

    pip install simplejpeg PyTurboJPEG opencv-python-headless      # PyTurboJPEG also needs the system's libturbojpeg

One thread, decoders interleaved file by file, medians over rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, features

from mslg.data.images import Frame, _crop, _scaled_size, pixels_of
from mslg.runtime.files import write_atomically

RESULT = Path(__file__).parent / "results" / "decoding.json"
PHOTO = 1600, 1200
FRAME = Frame.fit({PHOTO, (1, 1)}, None)  # as for photos of several sizes
REFERENCE = "Pillow"

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
Decode = Callable[[bytes, "Frame | None"], Pixels]


def least(size: tuple[int, int], frame: Frame | None) -> int:
    """By how much a JPEG of this size may be reduced while it is decoded: 1, 2, 4 or 8."""
    if frame is None:
        return 1
    wanted = _scaled_size(size, frame)
    return max(scale for scale in (1, 2, 4, 8) if size[0] // scale >= wanted[0] and size[1] // scale >= wanted[1])


def framed(pixels: Any, size: tuple[int, int], frame: Frame | None) -> Pixels:
    """Scaled and cropped by Pillow, channels first; `size` is that of the file."""
    if frame is not None:
        image = Image.fromarray(pixels).resize(_scaled_size(size, frame), Image.Resampling.BILINEAR)
        pixels = np.asarray(_crop(image, frame))
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def pillow(content: bytes, frame: Frame | None) -> Pixels:
    with Image.open(BytesIO(content)) as image:
        return framed(np.asarray(image.convert("RGB")), image.size, frame)


def pillow_reduced(content: bytes, frame: Frame | None) -> Pixels:
    """What `mslg` does."""
    with Image.open(BytesIO(content)) as image:
        return pixels_of(image, frame, 3)


def turbojpeg(reduced: bool) -> Decode:
    from turbojpeg import TJPF_RGB, TurboJPEG

    library = TurboJPEG()

    def decode(content: bytes, frame: Frame | None) -> Pixels:
        width, height, *_ = library.decode_header(content)
        scale = least((width, height), frame) if reduced else 1
        factor = None if scale == 1 else (1, scale)
        return framed(library.decode(content, TJPF_RGB, factor), (width, height), frame)

    return decode


def simple(reduced: bool) -> Decode:
    import simplejpeg

    def decode(content: bytes, frame: Frame | None) -> Pixels:
        height, width, *_ = simplejpeg.decode_jpeg_header(content)
        options = {}
        if reduced and (scale := least((width, height), frame)) > 1:
            options = {"min_height": height // scale, "min_width": width // scale, "min_factor": 1}
        return framed(simplejpeg.decode_jpeg(content, "RGB", **options), (width, height), frame)

    return decode


def opencv(reduced: bool) -> Decode:
    import cv2

    cv2.setNumThreads(1)
    flags = {scale: getattr(cv2, f"IMREAD_REDUCED_COLOR_{scale}") for scale in (2, 4, 8)}

    def decode(content: bytes, frame: Frame | None) -> Pixels:
        with Image.open(BytesIO(content)) as image:  # the header only: OpenCV has no call for it
            size = image.size
        scale = least(size, frame) if reduced else 1
        found = cv2.imdecode(np.frombuffer(content, np.uint8), flags.get(scale, cv2.IMREAD_COLOR))
        return framed(cv2.cvtColor(found, cv2.COLOR_BGR2RGB), size, frame)

    return decode


def torchvision(reduced: bool) -> Decode:
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):  # missing beside torch for CPUs, and in the way of the import
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from torchvision.io import ImageReadMode, decode_jpeg

    def decode(content: bytes, frame: Frame | None) -> Pixels:
        pixels = decode_jpeg(torch.frombuffer(bytearray(content), dtype=torch.uint8), ImageReadMode.RGB).numpy()
        return framed(pixels.transpose(1, 2, 0), (pixels.shape[2], pixels.shape[1]), frame)

    decode(jpeg(np.zeros((8, 8, 3), np.uint8)), None)  # the decoder itself is loaded late
    decode.library = library  # type: ignore[attr-defined]
    return decode


MADE: dict[str, Callable[[], Decode]] = {
    REFERENCE: lambda: pillow,
    "Pillow, reduced (mslg)": lambda: pillow_reduced,
    "PyTurboJPEG": lambda: turbojpeg(False),
    "PyTurboJPEG, reduced": lambda: turbojpeg(True),
    "simplejpeg": lambda: simple(False),
    "simplejpeg, reduced": lambda: simple(True),
    "OpenCV": lambda: opencv(False),
    "OpenCV, reduced": lambda: opencv(True),
    "torchvision": lambda: torchvision(False),
}
PACKAGES = {"Pillow": "pillow", "PyTurboJPEG": "PyTurboJPEG", "simplejpeg": "simplejpeg"}
PACKAGES |= {"OpenCV": "opencv-python-headless", "torchvision": "torchvision"}


def available() -> tuple[dict[str, Decode], dict[str, str]]:
    """The decoders that can be used, and why the others cannot."""
    found, missing = {}, {}
    for name, make in MADE.items():
        try:
            found[name] = make()
        except (ImportError, RuntimeError, OSError) as error:
            missing[name] = str(error).splitlines()[0].partition(". ")[0]
    return found, missing


def jpeg(pixels: Pixels) -> bytes:
    out = BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=85)
    return out.getvalue()


def photos(count: int, pictures: list[bytes]) -> list[bytes]:
    """JPEG files of many pixels: a grid of blown-up pictures, with grain."""
    random, made = np.random.default_rng(0), []
    for _ in range(count):
        image = Image.new("RGB", PHOTO)
        for place in range(12):
            with Image.open(BytesIO(pictures[int(random.integers(len(pictures)))])) as small:
                big = small.convert("RGB").resize((400, 400), Image.Resampling.BICUBIC)
            image.paste(big, (place % 4 * 400, place // 4 * 400))
        grain = random.normal(scale=6, size=(PHOTO[1], PHOTO[0], 1))
        made.append(jpeg((np.asarray(image) + grain).clip(0, 255).astype(np.uint8)))
    return made


def measured(decoders: dict[str, Decode], files: list[bytes], frame: Frame | None, rounds: int) -> dict[str, Any]:
    """By decoder: processor time per image, also relative to Pillow's, and how far its pixels are from Pillow's."""
    taken: dict[str, list[float]] = {name: [] for name in decoders}
    apart: dict[str, list[float]] = {name: [] for name in decoders}
    furthest = dict.fromkeys(decoders, 0)
    for number in range(rounds + 1):
        spent = dict.fromkeys(decoders, 0.0)
        for content in files:
            for name, decode in decoders.items():
                begun = time.process_time()
                pixels = decode(content, frame)
                spent[name] += time.process_time() - begun
                if not number:  # this round warms up
                    if name == REFERENCE:
                        reference = pixels.astype(np.int16)
                    distance = np.abs(pixels - reference)
                    apart[name].append(float(distance.mean()))
                    furthest[name] = max(furthest[name], int(distance.max()))
        if number:
            for name, seconds in spent.items():
                taken[name].append(seconds / len(files))
    unit = statistics.median(taken[REFERENCE])
    return {
        name: {
            "ms": round(1000 * statistics.median(seconds), 3),
            "of Pillow's": round(statistics.median(seconds) / unit, 3),
            "mean difference": round(statistics.mean(apart[name]), 3),
            "largest difference": furthest[name],
        }
        for name, seconds in taken.items()
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True, help="a folder with train/<class>/*.jpg")
    options.add_argument("--small", type=int, default=2000, help="files of it")
    options.add_argument("--photos", type=int, default=200, help="photos to make")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--output", type=Path, default=RESULT)
    arguments = options.parse_args()
    every = sorted((arguments.data / "train").glob("*/*.jpg"))
    pictures = [file.read_bytes() for file in every[:: max(1, len(every) // arguments.small)][: arguments.small]]
    decoders, missing = available()
    installed = {name: version(package) for name, package in PACKAGES.items() if name in decoders}
    found = {
        "command": "python benchmarks/decoding.py --data FOLDER",
        "versions": {**installed, "Pillow's libjpeg-turbo": features.version("libjpeg_turbo")},
        "not available": missing,
        "small": {"files": len(pictures), "rows": measured(decoders, pictures, None, arguments.rounds)},
    }
    made = photos(arguments.photos, pictures)
    found["photos"] = {
        "files": len(made),
        "kilobytes": round(statistics.mean(map(len, made)) / 1000),
        "rows": measured(decoders, made, FRAME, arguments.rounds),
    }
    write_atomically(arguments.output, json.dumps(found, indent=1).encode() + b"\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
