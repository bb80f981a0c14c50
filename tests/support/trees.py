"""Small data sets made to the exact layout of the large ones. A class shows in the colour of its images."""

from __future__ import annotations

import gzip
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image

COLOURS = [(220, 40, 40), (40, 220, 40), (40, 40, 220), (220, 220, 40), (220, 40, 220), (40, 220, 220)]


def pixels(label: int, number: int = 0, size: tuple[int, int] = (20, 20)) -> np.ndarray:
    """An image of a class, (height, width, 3): its colour and some noise, other noise for every number."""
    random = np.random.default_rng([label, number])
    width, height = size
    colour = np.array(COLOURS[label % len(COLOURS)])
    return np.clip(colour + random.normal(0, 25, (height, width, 3)), 0, 255).astype(np.uint8)


def picture(path: Path, label: int, number: int = 0, size: tuple[int, int] = (20, 20)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(label, number, size)).save(path)


def truncate(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def image_folder(root: Path, classes: tuple[str, ...] = ("ant", "bee", "cat"), each: int = 8, start: int = 0) -> Path:
    for label, name in enumerate(classes):
        for number in range(start, start + each):
            picture(root / name / f"{number}.{'png' if number % 2 else 'jpg'}", label, number)
    return root


def manifest(root: Path, ending: str = ".csv", each: int = 10, **columns: object) -> Path:
    """Three classes; every tenth label is wrong, which `true_label` and `verified_label` know."""
    rows = []
    for label, name in enumerate(("ant", "bee", "cat")):
        for number in range(each):
            path = f"images/{name},{number}.png"
            picture(root / path, label, number)
            given = ("bee", "cat", "ant")[label] if number == 3 else name
            verified = name if number % 2 else None
            rows.append((path, given, "test" if number == 9 else "train", verified, name))
    table = pd.DataFrame(rows, columns=["path", "label", "split", "verified_label", "true_label"]).assign(**columns)
    target = root / f"data{ending}"
    table.to_csv(target, index=False) if ending == ".csv" else table.to_parquet(target, index=False)
    return target


def npz(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    labels = np.arange(30) % 3
    x = np.stack([pixels(label, number).transpose(2, 0, 1) for number, label in enumerate(labels)])
    np.savez(root / "data.npz", X=x[:24], y=labels[:24], X_test=x[24:], y_test=labels[24:], verified=labels[:24])
    return root / "data.npz"


def cifar_rows(labels: np.ndarray, start: int = 0) -> np.ndarray:
    images = [pixels(int(label), start + number, (32, 32)) for number, label in enumerate(labels)]
    return np.stack([image.transpose(2, 0, 1).reshape(-1) for image in images])


def cifar10(root: Path, each: int = 6) -> Path:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        labels = (np.arange(each) + number) % 10
        batch = {
            b"batch_label": name.encode(),
            b"labels": labels.tolist(),
            b"data": cifar_rows(labels, 100 * number),
            b"filenames": [f"{i}.png".encode() for i in range(each)],
        }
        (folder / name).write_bytes(pickle.dumps(batch, 2))
    names = [f"class{i}".encode() for i in range(10)]
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names, b"num_vis": 3072}, 2))
    return root


def cifar100(root: Path) -> Path:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for start, name in enumerate(("train", "test")):
        labels = np.arange(0, 100, 5)
        batch = {
            b"fine_labels": labels.tolist(),
            b"coarse_labels": (labels // 5).tolist(),
            b"data": cifar_rows(labels, 100 * start),
        }
        (folder / name).write_bytes(pickle.dumps(batch, 2))
    names = [f"fine{i}".encode() for i in range(100)]
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": names, b"coarse_label_names": []}, 2))
    return root


def human_labels(root: Path, clean: np.ndarray, name: str = "CIFAR-10_human.pt") -> Path:
    """CIFAR-N's file: arrays in a dict, saved by torch."""
    worse = (clean + (np.arange(len(clean)) % 3 == 0)) % 10
    torch.save(
        {"clean_label": clean, "worse_label": worse, "aggre_label": clean.copy(), "noisy_label": worse}, root / name
    )
    return root / name


def cifar10_features(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    labels = np.arange(40) % 10
    features = (np.eye(10)[labels] + random.normal(0, 0.1, (40, 10))).astype(np.float16)
    np.savez(
        root / "cifar10_features.npz",
        features_train=features[:30],
        labels_train=labels[:30],
        features_test=features[30:],
        labels_test=labels[30:],
    )
    return root


def idx(array: np.ndarray) -> bytes:
    head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(np.uint8).tobytes()


def fashion_mnist(root: Path, compressed: bool = True) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for prefix, count in {"train": 30, "t10k": 10}.items():
        labels = np.arange(count) % 10
        images = np.stack([np.random.default_rng([count, i]).integers(0, 255, (28, 28)) for i in range(count)])
        images[:, 0] = 25 * labels[:, None]
        for name, array in {"images-idx3": images, "labels-idx1": labels}.items():
            content, path = idx(array), root / f"{prefix}-{name}-ubyte"
            path.write_bytes(content) if not compressed else Path(f"{path}.gz").write_bytes(gzip.compress(content))
    return root


def clothing1m(root: Path, *, annotations: bool = False, prefix: bool = True) -> Path:
    """Real names have a comma; one image is in both files of labels, with different ones."""
    notes = root / "annotations" if annotations else root
    notes.mkdir(parents=True)
    names = [f"Name{i}" for i in range(14)]
    (notes / "category_names_eng.txt").write_text("\n".join(names) + "\n")
    lists: dict[str, list[str]] = {"noisy_train": [], "clean_train": [], "clean_val": [], "clean_test": []}
    labels: dict[str, list[str]] = {"noisy": [], "clean": []}
    for place, (split, keys) in enumerate(lists.items()):
        for number in range(28 if split == "noisy_train" else 14):
            label = number % 14
            key = f"images/{number % 10}/{number:02d}/{place}{number:03d},{number + 7}.jpg"
            picture(root / (key if prefix else key.removeprefix("images/")), label, place * 100 + number)
            keys.append(key)
            labels[split.split("_")[0]].append(f"{key} {label}")
    both = lists["noisy_train"][0]
    labels["clean"].append(f"{both} 5")
    lists["clean_val"].append(both)
    for split, keys in lists.items():
        (notes / f"{split}_key_list.txt").write_text("\n".join(keys) + "\n")
    for kind, rows in labels.items():
        (notes / f"{kind}_label_kv.txt").write_text("\n".join(rows) + "\n")
    return root


def food101n(root: Path) -> Path:
    """Three dishes: images 0-5 of each are not verified, 6-8 are for training, 9-10 to validate; 6, 9 are wrong."""
    release = root / "Food-101N_release"
    classes = ["apple_pie", "baby_back_ribs", "waffles"]
    listed, train, validation = (
        ["class_name/key"],
        ["class_name/key\tverification_label"],
        ["class_name/key\tverification_label"],
    )
    for label, name in enumerate(classes):
        for number in range(11):
            key = f"{name}/{label}{number:031x}.jpg"
            picture(release / "images" / key, label, number)
            listed.append(key)
            if number >= 6:
                (train if number < 9 else validation).append(f"{key}\t{int(number not in (6, 9))}")
    train.append("waffles/a49e6fb26e356c6c41a37b5c18176355.jpg\t1")  # listed under another class, or not at all
    (release / "meta").mkdir()
    for file, rows in {
        "classes.txt": ["class_name", *classes],
        "imagelist.tsv": listed,
        "verified_train.tsv": train,
        "verified_val.tsv": validation,
    }.items():
        (release / "meta" / file).write_text("\n".join(rows) + "\n")
    return root


def food101(root: Path) -> Path:
    folder = root / "food-101"
    keys = [f"{name}/{100 + i}" for name in ("apple_pie", "baby_back_ribs", "waffles") for i in range(2)]
    for number, key in enumerate(keys):
        picture(folder / "images" / f"{key}.jpg", number // 2, 500 + number, (30, 24))
    (folder / "meta").mkdir()
    (folder / "meta" / "test.txt").write_text("\n".join(keys) + "\n")
    return root


def animal10n(root: Path) -> Path:
    for folder, count in {"training": 30, "testing": 10}.items():
        for number in range(count):
            picture(
                root / "raw_image" / folder / f"{number % 10}_img_{count}{number:04d}.jpg", number % 10, count + number
            )
    return root


def webvision(root: Path) -> Path:
    (root / "info").mkdir(parents=True)
    google, flickr, validation = [], [], []
    for number in range(24):
        label = (0, 1, 49, 50)[number % 4]
        for kind, rows in {"google": google, "flickr": flickr}.items():
            path = f"{kind}/q{label:04d}/{number}.jpg"
            picture(root / path, label, number + (100 if kind == "flickr" else 0))
            rows.append(f"{path} {label}")
        if number < 8:
            picture(root / "val_images_256" / f"val{number:06d}.jpg", label, 300 + number)
            validation.append(f"val{number:06d}.jpg {label}")
    for name, rows in {
        "train_filelist_google": google,
        "train_filelist_flickr": flickr,
        "val_filelist": validation,
    }.items():
        (root / "info" / f"{name}.txt").write_text("\n".join(rows) + "\n")
    return root


NAMED: dict[str, Callable[[Path], Path]] = {
    "cifar10": cifar10,
    "cifar100": cifar100,
    "cifar10-features": cifar10_features,
    "fashion-mnist": fashion_mnist,
    "clothing1m": clothing1m,
    "food101n": food101n,
    "animal10n": animal10n,
    "webvision": webvision,
}
