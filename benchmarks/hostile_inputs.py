"""Inputs that a stranger might send: data, decisions, recipes, settings, run and model folders, made at random.

Every input is a folder of files and a command that opens them. What must not happen: a traceback, a hang, more than
2 GB, code from the files being run, a file outside being copied, a wrong type being taken for a right one.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

MARK = "code-was-run"  # the file that hostile code would leave
CANARY = "canary-7f3a91"  # the content of a file outside, which must not be found in any output
TEXTS = [
    "",
    "=1+1",
    "@SUM(A1)",
    "\x1b[2J",
    "\u202eabc",
    "a,b",
    '"',
    "'",
    "\n",
    "../x",
    "NaN",
    "-1",
    "0",
    "é",
    "x" * 300,
    "\x00",
]
NUMBERS = [
    "nan",
    "inf",
    "-inf",
    "1e308",
    "-1",
    "0",
    "2",
    "0.5",
    "1e-320",
    str(10**30),
    "true",
    "no",
    "off",
    "[]",
    "''",
    "{}",
]
Q = ["-q", "--no-report", "--no-compare"]


class Input(NamedTuple):
    """A command to run in the folder, and whether it must be refused."""

    words: list[str]
    refuse: bool = False


Maker = Callable[[random.Random, Path, Path], Input]


def array(chance: random.Random, rows: int) -> Any:
    """An array of an odd type or shape."""
    noise = np.random.default_rng(chance.getrandbits(32))
    kind = chance.choice(["f4", "f8", "f2", "i8", "i4", "u1", "u2", "u8", "?", "U3", "S3", "c8", "M8[s]", ">f4", "f16"])
    odd = [(rows,), (rows, 0), (rows, 3, 4, 4), (rows, 1), (0, 3), (rows + 1, 3), (), (rows, 2, 2)]
    shape = chance.choice(odd) if chance.random() < 0.4 else (rows, 3)
    values = noise.normal(size=shape) * chance.choice([1, 1, 1e30, 0])
    if chance.random() < 0.1 and values.size:
        values.flat[0] = chance.choice([np.nan, np.inf, -np.inf])
    with np.errstate(all="ignore"):
        return np.nan_to_num(values).astype("i8").astype(kind) if kind[0] in "MUS" else values.astype(kind)


def labels(chance: random.Random, rows: int) -> Any:
    """Labels, of which many are not."""
    kinds: list[Callable[[], Any]] = [
        lambda: np.arange(rows) % 3,
        lambda: np.array(chance.choices(TEXTS[:-1], k=rows)),
        lambda: (np.arange(rows) % 2).astype(float) + chance.choice([0, 0.5, np.nan, 1e300]),
        lambda: np.arange(rows) % 2 - chance.choice([1, 0]),
        lambda: np.array([chance.choice([0, 1, 20_000, 100_001, 2**62])] * rows),
        lambda: np.zeros((rows, 2), dtype=int),
        lambda: (np.arange(rows) % 2).astype(bool),
        lambda: np.arange(rows + chance.choice([1, -1])) % 2,
    ]
    return kinds[0]() if chance.random() < 0.3 else chance.choice(kinds)()


def npz(chance: random.Random, folder: Path, outside: Path) -> Input:
    rows = chance.choice([1, 2, 12, 40, 40, 40, 40])
    good = {"X": np.random.default_rng(0).normal(size=(rows, 3)).astype("f4"), "y": np.arange(rows) % 2}
    arrays: dict[str, Any] = dict(good)
    if chance.random() < 0.5:
        arrays |= {"X_test": good["X"] + 1, "y_test": good["y"]}
    keys = ["X", "X", "y", "id", "verified", "X_test", "y_test", "y_true", "classes", "Z"]
    for key in chance.sample(keys, 1 if chance.random() < 0.7 else 3):
        arrays[key] = array(chance, rows) if key.startswith("X") else labels(chance, rows)
    if chance.random() < 0.05:
        arrays["X"] = np.array([Evil()] * rows, dtype=object)
    content = io.BytesIO()
    (np.savez_compressed if chance.random() < 0.3 else np.savez)(content, **arrays)
    text = damaged(chance, content.getvalue()) if chance.random() < 0.2 else content.getvalue()
    if chance.random() < 0.05:
        text = bomb(chance)
    (folder / "data.npz").write_bytes(text)
    return opened(chance, "data.npz")


def bomb(chance: random.Random) -> bytes:
    """An archive that claims far more than it holds, or holds far more than it weighs."""
    content = io.BytesIO()
    header = io.BytesIO()
    shape = chance.choice([(10**12, 3), (2**40,), (2**31, 2**31), (3_000_000_000,)])
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", header.getvalue() + bytes(chance.choice([10, 50_000_000])))
        archive.writestr("y.npy", header.getvalue())
    return content.getvalue()


def damaged(chance: random.Random, content: bytes) -> bytes:
    """The content with one kind of damage."""
    data = bytearray(content)
    kind = chance.choice(["flip", "cut", "zeros", "garbage", "append", "swap"])
    place = chance.randrange(len(data)) if data else 0
    if kind == "flip" and data:
        data[place] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        data = data[:place]
    elif kind == "zeros":
        data[place : place + 64] = bytes(len(data[place : place + 64]))
    elif kind == "garbage":
        data[place : place + 64] = chance.randbytes(len(data[place : place + 64]))
    elif kind == "append":
        data += chance.randbytes(64)
    else:
        data = data[place:] + data[:place]
    return bytes(data)


class Evil:
    """Unpickled, it leaves a mark."""

    def __reduce__(self) -> Any:
        return (os.system, (f"touch {MARK}",))


def opened(chance: random.Random, name: str, clean: str | None = None) -> Input:
    """A command that reads data: check as a rule, now and then a run."""
    more = ["--clean", clean] if clean else ["--clean", "2"] if chance.random() < 0.2 else []
    if chance.random() < 0.6:
        return Input(["check", name, *more])
    skip = ["--corrupt", "skip", "--workers", "0"] if name == "photos" else []
    return Input(["fit", name, "-o", "run", "--epochs", "1", "--method", "cross-entropy", *more, *skip, *Q])


def table(chance: random.Random, folder: Path, outside: Path) -> Input:
    """A table of features, texts or paths of which some columns or cells are odd."""
    rows = chance.choice([0, 1, 20, 20, 20])
    cells: list[Any] = [*TEXTS, *NUMBERS, str(outside), "../secret.png", "1", "cat", "train", "x.png"]
    values: dict[str, list[Any]] = {"label": [chance.choice(["cat", "dog"]) for _ in range(rows)]}
    kind = chance.choice(["features", "text", "path"])
    if kind == "features":
        values |= {key: [chance.gauss(0, 1) for _ in range(rows)] for key in ("a", "b")}
    else:
        values[kind] = [f"{'words about' if kind == 'text' else 'x'}{number}" for number in range(rows)]
    for key in chance.sample(
        ["id", "split", "verified_label", "true_label", "label", "a", "text", "path", "labels"], 1
    ):
        if chance.random() < 0.3:
            values[key] = [chance.choice([1, 0, 2.5, None, 10**17, True, [1], {"a": 1}]) for _ in range(rows)]
        else:
            values[key] = [chance.choice(cells) for _ in range(rows)]
    if rows and chance.random() < 0.5:
        values[chance.choice(list(values))][0] = chance.choice(cells)
    if chance.random() < 0.5:
        try:
            pd.DataFrame(values).to_parquet(folder / "data.parquet")
            path = folder / "data.parquet"
        except Exception:
            path = folder / "data.csv"
            path.write_text(str(values), errors="replace")
    else:
        path = folder / "data.csv"
        pd.DataFrame(values).to_csv(path, index=False)
    if chance.random() < 0.2:
        path.write_bytes(damaged(chance, path.read_bytes()))
    return opened(chance, path.name)


def image_folder(chance: random.Random, folder: Path, outside: Path) -> Input:
    from PIL import Image

    good = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(good, "PNG")
    huge = (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + b"IHDR"
        + struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
        + b"\0" * 99
    )
    for name in ("cat", chance.choice(["dog", "\x1b[31m", "=cmd", "é", "a b"])):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(3):
            path = folder / "photos" / name / f"{number}.{chance.choice(['png', 'jpg', 'gif'])}"
            kind = chance.random()
            if kind < 0.03:
                os.mkfifo(path)
            elif kind < 0.06:
                path.symlink_to(outside)
            elif kind < 0.09:
                path.symlink_to(path.parent)
            else:
                path.write_bytes(
                    huge if kind < 0.12 else damaged(chance, good.getvalue()) if kind < 0.25 else good.getvalue()
                )
    return opened(chance, "photos")


def special_file(chance: random.Random, folder: Path, outside: Path) -> Input:
    """A pipe, a device or a folder where a file is expected."""
    path = folder / chance.choice(["x.npz", "x.csv", "x.parquet", "x.toml"])
    kind = chance.choice(["fifo", "device", "folder", "broken link"])
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else "nowhere")
    if path.suffix == ".toml":
        return Input(
            [chance.choice(["fit", "sweep"]), *(["--recipe"] if chance.random() < 0.5 else []), path.name, "-o", "run"],
            True,
        )
    return Input(["check", path.name], True)


def decisions(chance: random.Random, folder: Path, outside: Path) -> Input:
    keys = ["id", "decision", "label", "given_label", "suggested_label"]
    rows = [
        {key: chance.choice([*TEXTS, "accept", "keep", "relabel", "remove", "skip", "0", "1", "s1"]) for key in keys}
        for _ in range(chance.randint(0, 4))
    ]
    name = chance.choice(["d.csv", "d.json"])
    if name == "d.csv":
        pd.DataFrame(rows, columns=keys).to_csv(folder / name, index=False)
    else:
        deep = "[" * 100_000 + "]" * 100_000
        task = [
            {
                "annotations": chance.choice([[], [{}], [{"result": [{"value": 3}]}], 5]),
                "data": chance.choice([{}, {"id": 1}, []]),
            }
        ]
        value = chance.choice(
            [{"format_version": 1, "decisions": rows}, {"format_version": 99, "decisions": []}, rows, task, 3, None]
        )
        (folder / name).write_text(deep if chance.random() < 0.1 else json.dumps(value))
    if chance.random() < 0.3:
        (folder / name).write_bytes(damaged(chance, (folder / name).read_bytes()))
    return Input(["apply", "good", name, "-o", "out.csv"])


def recipe(chance: random.Random, folder: Path, outside: Path) -> Input:
    """A recipe with odd values, of which some name code."""
    (folder / "evil.py").write_text(f"from pathlib import Path\nPath({MARK!r}).touch()\ndef run(*a, **k): ...\n")
    code = chance.random() < 0.4
    name = json.dumps(chance.choice(["evil:run", "os:system", "subprocess:run", "builtins:exec", "hf:run", "timm:run"]))
    text = '[data]\nsource = "data.npz"\n[train]\nepochs = 1\n'
    if code:
        key = chance.choice(
            ["data.clean", "data.features", "data.noise", "network.name", "method.name", "noise.network"]
        )
        table_name, _, field = key.partition(".")
        lines = {"data": 'source = "data.npz"', "train": "epochs = 1"}
        lines[table_name] = "\n".join(
            filter(
                None, [lines.get(table_name), f"{field} = {name}", f'command = "touch {MARK}"' * (table_name != "data")]
            )
        )
        text = "".join(f"[{key}]\n{value}\n" for key, value in lines.items())
    else:
        value = chance.choice(NUMBERS)
        text += chance.choice(
            [
                f"batch_size = {value}\n",
                f"[network]\nname = {value}\n",
                f"[method]\nname = {value}\n",
                f"[{value}]\n",
                "x = " + "[" * 50_000,
            ]
        )
    np.savez(folder / "data.npz", X=np.random.default_rng(0).normal(size=(12, 3)), y=np.arange(12) % 2)
    if not code and chance.random() < 0.3:
        text = damaged(chance, text.encode()).decode(errors="replace")
    (folder / "r.toml").write_text(text)
    return Input(["fit", "--recipe", "r.toml", "-o", "run", *Q], code)


def settings(chance: random.Random, folder: Path, outside: Path) -> Input:
    """A setting of the wrong type or out of range: all of these must be refused."""
    np.savez(folder / "data.npz", X=np.random.default_rng(0).normal(size=(12, 3)), y=np.arange(12) % 2)
    wrong = {
        "bool": ["no", "off", "yes", "1", "0", "nan", "[]", '"true"', "2"],
        "number": ["nan", "inf", "true", "abc", "[]", "-1", '"1"', "{}", "-inf"],
        "whole": ["nan", "1e308", "0.5", "true", "abc", "-3", "[1]", "inf"],
    }
    keys = {
        "bool": ["hold_out", "augment_clean", "class_balance", "sync_batch_norm", "data.reveal_noise", "data.mini"],
        "number": ["learning_rate", "weight_decay", "gradient_clip", "noise_rate", "fdr", "data.rate"],
        "whole": [
            "epochs",
            "batch_size",
            "clean_batch_size",
            "accumulate",
            "seed",
            "data.size",
            "data.subset",
            "data.words",
        ],
    }
    kind = chance.choice(list(keys))
    setting = f"{chance.choice(keys[kind])}={chance.choice(wrong[kind])}"
    return Input(["fit", "data.npz", "-o", "run", "--method", "cross-entropy", "--set", setting, *Q], True)


def run_folder(chance: random.Random, folder: Path, outside: Path) -> Input:
    """A finished run by a stranger: its descriptions are changed, and no checksums tell."""
    for path in (*(folder / "good").rglob("checksums.json"), folder / "good" / "report.html"):
        path.unlink(missing_ok=True)
    (folder / "evil.py").write_text(f"from pathlib import Path\nPath({MARK!r}).touch()\ndef run(*a, **k): ...\n")
    place = folder / "good"
    kind = chance.choice(["model", "config", "labels", "bytes"])
    hostile: list[Any] = [
        None,
        5,
        -1,
        "x",
        [],
        {},
        "evil:run",
        10**12,
        [10**9],
        {"name": "os:system", "command": f"touch {MARK}"},
    ]
    if kind == "model":
        about = json.loads((place / "model.json").read_text())
        about[chance.choice(["network", "classes", "inputs", "prepare", "members", "format_version"])] = chance.choice(
            hostile
        )
        (place / "model.json").write_text(json.dumps(about))
    elif kind == "config":
        text = (place / "config.toml").read_text()
        line = chance.choice([line for line in text.splitlines() if " = " in line])
        value = chance.choice(['"evil:run"', '"os:system"', "-1", "[]", "true", '""', "1e300", "{}"])
        (place / "config.toml").write_text(text.replace(line, f"{line.split(' = ')[0]} = {value}"))
    elif kind == "labels":
        rows = pd.read_parquet(place / "labels.parquet")
        rows[chance.choice(["path", "id", "given_label", "rank"])] = chance.choice(
            [str(outside), "../../x", "\x1b[2J", "", "0"]
        )
        rows["path"] = str(outside)
        rows.to_parquet(place / "labels.parquet")
    else:
        path = chance.choice([path for path in sorted(place.rglob("*")) if path.is_file() and path.stat().st_size])
        path.write_bytes(damaged(chance, path.read_bytes()))
    commands = [
        ["report", "good", "-o", "page.html"],
        ["export", "good", "--to", chance.choice(["csv", "safetensors", "imagefolder", "label-studio"]), "-o", "out"],
        ["apply", "good", "--to", "imagefolder", "-o", "out2"],
        ["apply", "good", "-o", "out.csv"],
        ["review-next", "good"],
        ["verify", "good"],
        ["fit", "-o", "good", "--resume", "--epochs", "2", "-q", "--no-report", "--no-compare"],
        ["fit", "--from", "good", "-o", "next", *Q],
    ]
    return Input(chance.choice(commands))


def probabilities(chance: random.Random, folder: Path, outside: Path) -> Input:
    """Labels and predicted probabilities, of which one is odd."""
    rows = chance.choice([1, 2, 30, 30, 30])
    given: Any = np.arange(rows) % 3
    odds: Any = np.random.default_rng(0).dirichlet(np.ones(3), rows)
    kind = chance.choice(["labels", "odds", "odds", "bytes"])
    if kind == "labels":
        given = labels(chance, rows)
    elif kind == "odds":
        makers: list[Callable[[], Any]] = [
            lambda: array(chance, rows),
            lambda: odds * chance.choice([0, -1, 5, np.nan, np.inf, 1e300]),
            lambda: odds[:, : chance.choice([0, 1, 2])],
            lambda: np.array([[Evil()] * 3] * rows, dtype=object),
        ]
        odds = chance.choice(makers)()
    np.save(folder / "labels.npy", given)
    np.save(folder / "probs.npy", odds)
    if kind == "bytes":
        path = folder / chance.choice(["labels.npy", "probs.npy"])
        path.write_bytes(damaged(chance, path.read_bytes()))
    more = chance.choice([[], ["--verified", "labels.npy"], ["--features", "probs.npy"], ["--fdr", "nan"]])
    return Input(["issues", "labels.npy", "--pred-probs", "probs.npy", "-o", "run", "--no-report", *more])


def new_inputs(chance: random.Random, folder: Path, outside: Path) -> Input:
    """A model is asked for predictions of odd inputs, or is itself changed."""
    rows = chance.choice([1, 12])
    if chance.random() < 0.3:
        run_folder(chance, folder, outside)
        np.save(folder / "x.npy", np.zeros((rows, 2), "f4"))
        return Input(["predict", "good", "x.npy", "-o", "p.csv"])
    values = array(chance, rows)
    if chance.random() < 0.5:
        np.savez(folder / "x.npz", X=values, id=np.array(chance.choices(TEXTS[:-1], k=rows)))
        path = folder / "x.npz"
    else:
        np.save(folder / "x.npy", values)
        path = folder / "x.npy"
    if chance.random() < 0.3:
        path.write_bytes(damaged(chance, path.read_bytes()))
    return Input(["predict", "good", path.name, *chance.choice([[], ["-o", "p.csv"], ["-o", "p.parquet"]])])


def sweep(chance: random.Random, folder: Path, outside: Path) -> Input:
    """A sweep's recipe whose rows name code or hold odd values; or the folder of a sweep with odd results."""
    (folder / "evil.py").write_text(f"from pathlib import Path\nPath({MARK!r}).touch()\ndef run(*a, **k): ...\n")
    np.savez(folder / "data.npz", X=np.random.default_rng(0).normal(size=(12, 3)), y=np.arange(12) % 2)
    code = chance.random() < 0.5
    name = chance.choice(["evil:run", "os:system", "subprocess:run"]) if code else chance.choice(NUMBERS)
    key = chance.choice(["network", "method"])
    lines = [
        '[sweep]\nseeds = [0]\n[data]\nsource = "data.npz"\n[train]\nepochs = 1\n',
        "[columns.one.data]\n",
        f'[rows.a.{key}]\nname = {json.dumps(name) if code else name}\ncommand = "touch {MARK}"\n',
    ]
    text = "".join(lines)
    if chance.random() < 0.3:
        text = damaged(chance, text.encode()).decode(errors="replace")
    (folder / "r.toml").write_text(text)
    if chance.random() < 0.3:
        (folder / "s").mkdir()
        (folder / "s" / "sweep.toml").write_text(text)
        cells: list[Any] = [3, None, [], {}, {"row": "a", "column": "one", "seed": 0, "last": chance.choice([3, {}])}]
        (folder / "s" / "cells.jsonl").write_text("\n".join(json.dumps(chance.choice(cells)) for _ in range(3)))
        return Input(
            chance.choice([["table", "s"], ["plot", "s", "-o", "p.png"], ["table", "s", "--recipe", "r.toml"]])
        )
    return Input(["sweep", "r.toml", "-o", "s", chance.choice(["--dry-run", "--commands"])])


def weights(chance: random.Random, folder: Path, outside: Path) -> Input:
    """A file of weights from a stranger: pickled code, odd tensors, damage."""
    import torch
    from safetensors.torch import save_file

    np.savez(folder / "data.npz", X=np.random.default_rng(0).normal(size=(12, 3)), y=np.arange(12) % 2)
    path = folder / chance.choice(["w.pt", "w.safetensors"])
    if path.suffix == ".pt":
        content = chance.choice([Evil(), {"state_dict": Evil()}, {"0.weight": torch.zeros(3)}, [1], None, {1: 2}])
        torch.save(content, path)
    else:
        save_file({chance.choice(TEXTS[1:5]): torch.zeros(chance.choice([0, 3]))}, path)
    if chance.random() < 0.3:
        path.write_bytes(damaged(chance, path.read_bytes()))
    words = ["fit", "data.npz", "-o", "run", "--epochs", "1", "--method", "cross-entropy", "--network", "mlp", *Q]
    return Input([*words, "--set", f"network.weights={path.name}"], True)


MAKERS: dict[str, Maker] = {
    "npz": npz,
    "table": table,
    "image folder": image_folder,
    "special file": special_file,
    "decisions": decisions,
    "recipe": recipe,
    "setting": settings,
    "run folder": run_folder,
    "probabilities": probabilities,
    "new inputs": new_inputs,
    "sweep": sweep,
    "weights": weights,
}


def make(number: int, folder: Path, good: Path, outside: Path, seed: int = 0) -> tuple[str, Input]:
    """The input of this number: its kind, and what to run in the folder."""
    chance = random.Random(f"{seed} {number}")
    kind = list(MAKERS)[number % len(MAKERS)]
    folder.mkdir(parents=True)
    if kind in ("decisions", "run folder", "new inputs"):
        shutil.copytree(good, folder / "good")
        shutil.copy(good.parent / "data.npz", folder / "data.npz")
    return kind, MAKERS[kind](chance, folder, outside)
