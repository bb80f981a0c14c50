"""Kills, damage, hostile inputs and full disks: what is lost, wrong, hung or run.

    python benchmarks/chaos.py                       # all parts, about half an hour of a core of its own
    python benchmarks/chaos.py --part hostile -n 200 # one of them
    python benchmarks/chaos.py --again               # the trials that ended with a problem, after it has been solved
    python benchmarks/chaos.py --summary             # writes benchmarks/results/chaos.json from what has been done

Every trial has a number and a seed, and is a line of FOLDER/trials.jsonl; started again, only the missing ones are
made. Commands run in processes forked from this one, which has imported everything, so that a trial takes a fraction of
a second.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import hostile_inputs
import killed_commands

RESULT = Path(__file__).parent / "results" / "chaos.json"
HANG, MEMORY = 60, 2 * 2**30  # seconds, bytes
PARTS = {"kills": 330, "ranks": 20, "two processes": 20, "damage": 1000, "hostile": 3000, "disk": 60}
QUICK = ["-q", "--no-report", "--no-compare", "--checkpoint-minutes", "0"]
COMPARED = ("metrics.jsonl", "model.safetensors", "labels.parquet", "classes.json", "summary.json")


class Ended(NamedTuple):
    """How a command ended."""

    code: int  # negative: the signal
    said: str
    seconds: float
    memory: int

    @property
    def problems(self) -> Iterator[str]:
        if "Traceback" in self.said or "unexpected: " in self.said:
            yield "traceback"
        if self.seconds > HANG:
            yield "hang"
        if self.memory > MEMORY:
            yield "memory"


def start(words: list[str], folder: Path, *, limit: int | None = None, **environment: str) -> int:
    """Fork a process that runs a command in a folder, what it says going to a file there."""
    number = os.fork()
    if number:
        return number
    try:
        os.chdir(folder)
        said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.stdin.close()
        os.environ.update(environment)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))  # a bomb must not take the machine along
        sys.argv = ["mslg", *words]
        from mslg.cli import main

        main()
        os._exit(0)
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        if names := os.environ.get("CHAOS_MODULES"):
            Path(names).write_text(json.dumps(list(sys.modules)))
        os._exit(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def finish(number: int, folder: Path, *, kill_after: float | None = None, begun: float | None = None) -> Ended:
    """Wait for a process, killing it after some seconds, and after the time of a hang in any case."""
    begun = time.monotonic() if begun is None else begun
    status, usage, seconds = _watched(number, begun, HANG + 5 if kill_after is None else kill_after)
    if status is None:
        os.kill(number, signal.SIGKILL)
        _, status, usage = os.wait4(number, 0)
    said = (folder / "said").read_text(errors="replace") if (folder / "said").exists() else ""
    return Ended(os.waitstatus_to_exitcode(status), said, seconds, usage.ru_maxrss * 1024)


def ask(number: int, folder: Path, after: float, begun: float) -> Ended:
    """Send SIGTERM after some seconds, and wait for the end."""
    status, usage, seconds = _watched(number, begun, after)
    if status is None:
        os.kill(number, signal.SIGTERM)
        return finish(number, folder)
    said = (folder / "said").read_text(errors="replace")
    return Ended(os.waitstatus_to_exitcode(status), said, seconds, usage.ru_maxrss * 1024)


def _watched(number: int, begun: float, most: float) -> tuple[int | None, Any, float]:
    """The status of a process that has ended, its usage and its seconds; no status if it takes longer. The time that it
    or its workers have waited for a processor is taken off: on a busy machine that is no hang."""
    waits = {number: 0.0}
    while True:
        for pid in (number, *_children(number)):
            with contextlib.suppress(OSError, ValueError, IndexError):
                waits[pid] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
        waited = waits[number] + max((waits[pid] for pid in waits if pid != number), default=0.0)
        done, status, usage = os.wait4(number, os.WNOHANG)
        seconds = time.monotonic() - begun - waited
        if done:
            return status, usage, seconds
        if seconds > most:
            return None, usage, seconds
        time.sleep(0.005)


def _children(number: int) -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/{number}/task/{number}/children").read_text().split()]
    except (OSError, ValueError):
        return []


def run(words: list[str], folder: Path, **how: Any) -> Ended:
    (folder / "said").unlink(missing_ok=True)
    return finish(start(words, folder, **how), folder)


def import_all(place: Path) -> None:
    """Import what the commands import, so that forked processes need not: each would take seconds for it."""
    place.mkdir(parents=True, exist_ok=True)
    write_data(place)
    words = [
        "fit",
        "data.npz",
        "--clean",
        "clean.npz",
        "-o",
        "run",
        "--force",
        "--epochs",
        "2",
        "--method",
        "mslg",
        "-q",
    ]
    for command in (words, ["apply", "run", "-o", "out.csv", "--force"], ["predict", "run", "data.npz"]):
        ended = run(command, place, CHAOS_MODULES=str(place / "modules.json"))
        if ended.code:
            raise RuntimeError(ended.said)
        for name in json.loads((place / "modules.json").read_text()):
            if name.startswith(("mslg.", "torch.", "typer.", "pydantic", "PIL.", "pandas.", "pyarrow", "matplotlib.")):
                with contextlib.suppress(Exception):
                    importlib.import_module(name)


def digest(folder: Path, names: tuple[str, ...] = COMPARED) -> str:
    """Of the results of a run. The summary holds how long nothing took, so it is part of them."""
    found = hashlib.sha256()
    for name in names:
        found.update(name.encode() + ((folder / name).read_bytes() if (folder / name).exists() else b"missing"))
    return found.hexdigest()


def write_data(folder: Path) -> None:
    from mslg.testing.problem import blobs

    data = blobs()
    np.savez(folder / "data.npz", X=data.x, y=data.given, y_true=data.true, X_test=data.test_x, y_test=data.test_y)
    np.savez(folder / "clean.npz", X=data.clean_x, y=data.clean_y)


def write_photos(folder: Path) -> None:
    from PIL import Image

    noise = np.random.default_rng(0)
    for name, low in {"cat": 0, "dog": 100}.items():
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(20):
            pixels = noise.integers(low, low + 150, (8, 8, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{number}.png")
        (folder / "verified" / name).mkdir(parents=True)
        for number in range(4):
            shutil.copy(folder / "photos" / name / f"{number}.png", folder / "verified" / name)


class Chaos:
    """The trials of all parts, in a folder that keeps what is needed to start again."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder.resolve(), seed
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ledger = self.folder / "trials.jsonl"
        self.outside = self.folder / "outside" / "secret.png"
        self.outside.parent.mkdir(exist_ok=True)
        self.outside.write_text(hostile_inputs.CANARY)
        self.references: dict[str, tuple[str, float]] = {}

    def done(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ledger.read_text().splitlines()] if self.ledger.exists() else []

    def make(self, part: str, count: int) -> None:
        """The trials of a part that are missing."""
        own = [each for each in self.done() if each["part"] == part]
        there, number = sum(max(1, each["n"]) for each in own), len(own)
        while there < count:
            outcome = self._trial(part, number)
            with self.ledger.open("a") as file:
                file.write(json.dumps(outcome) + "\n")
            there += max(1, outcome["n"])
            number += 1

    def again(self) -> None:
        """The trials that ended with a problem, once more: after it has been solved."""
        trials = self.done()
        for place, before in enumerate(trials):
            if before["problems"]:
                trials[place] = self._trial(before["part"], before["number"]) | {"first": before["problems"]}
                self.ledger.write_text("".join(json.dumps(each) + "\n" for each in trials))

    def _trial(self, part: str, number: int) -> dict[str, Any]:
        trial: Callable[[int, Path], dict[str, Any]] = getattr(self, part.replace(" ", "_"))
        place = self.folder / "trial"
        shutil.rmtree(place, ignore_errors=True)
        outcome = {"part": part, "seed": self.seed, "number": number, "n": 1, "problems": [], **trial(number, place)}
        if outcome["problems"]:
            kept = self.folder / "kept" / f"{part}-{number}"
            shutil.rmtree(kept, ignore_errors=True)
            with contextlib.suppress(OSError):
                shutil.copytree(place, kept, symlinks=True, ignore=_pipes)
            print(part, number, outcome, flush=True)
        return outcome

    # --- kills

    def _fit(self, method: str, run_folder: str = "run") -> list[str]:
        words = ["fit", "data.npz", "--clean", "clean.npz", "-o", run_folder, "--method", method, "--batch-size", "32"]
        more = {
            "co-teaching": ["--noise-rate", "0.3"],
            "forward": ["--set", "matrix=anchors"],
            "cross-fitted": ["--set", "hold_out=false"],
        }.get(method, [])
        tables = ["--set", f"table_file={run_folder}/labels.table"] if method == "mslg" else []
        return [*words, "--epochs", "5", *more, *tables, *QUICK]

    def _reference(self, method: str) -> tuple[str, float]:
        """The digest of an uninterrupted run, and its seconds."""
        if method not in self.references:
            place = self.folder / "reference" / method
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            write_data(place)
            ended = run(self._fit(method), place)
            if ended.code:
                raise RuntimeError(f"{method} does not run: {ended.said}")
            self.references[method] = digest(place / "run"), ended.seconds
        return self.references[method]

    def kills(self, number: int, place: Path) -> dict[str, Any]:
        """A run of some method, killed and resumed until it is finished; every third trial is another command."""
        chance = random.Random(f"{self.seed} kills {number}")
        if number % 3 == 2:
            return self._killed_command(number // 3, place, chance)
        from mslg.methods import METHODS

        method = list(METHODS.built_in)[(number - number // 3) % len(METHODS.built_in)]
        right, seconds = self._reference(method)
        place.mkdir()
        write_data(place)
        kills = 0
        for attempt in range(8):
            more = ["--resume"] if attempt else []
            last = attempt == 7 or kills >= 4
            (place / "said").unlink(missing_ok=True)
            ended = finish(
                start([*self._fit(method), *more], place),
                place,
                kill_after=None if last else chance.uniform(0.02, 1.1) * seconds,
            )
            kills += ended.code == -signal.SIGKILL
            if ended.code == 0:
                break
            if ended.code != -signal.SIGKILL:
                return {"n": kills, "kind": method, "problems": ["lost", *ended.problems], "said": ended.said[-500:]}
        wrong = [] if digest(place / "run") == right else ["wrong"]
        return {"n": kills, "kind": method, "problems": [*wrong, *ended.problems]}

    def _killed_command(self, number: int, place: Path, chance: random.Random) -> dict[str, Any]:
        """A command is killed three times, and then run to its end: with the output of one that never was."""
        shutil.copytree(self._good_photos(), place, ignore=shutil.ignore_patterns("said"))
        words = killed_commands.COMMANDS[number % len(killed_commands.COMMANDS)]
        kind, seconds = " ".join(words[:1] + words[2:4]), killed_commands.ENDLESS.get(words[0])
        if seconds is None:
            whole = run(words, place)
            if whole.code:
                return {"n": 0, "kind": kind, "problems": ["lost"], "said": whole.said[-500:]}
            seconds = whole.seconds
        before, kills = _listing(place), 0
        for _ in range(3):
            (place / "said").unlink(missing_ok=True)
            for name in killed_commands.STARTS_OVER.get(words[0], ()):
                shutil.rmtree(place / name, ignore_errors=True)
            ended = finish(start(words, place), place, kill_after=chance.uniform(0.02, 1.1) * seconds)
            kills += ended.code == -signal.SIGKILL
        again = run(["verify", "run"] if words[0] in killed_commands.ENDLESS else words, place)
        problems = list(again.problems)
        if again.code:
            problems.append("lost")
        elif (after := _listing(place)) != before:
            problems.append("wrong")
            again = again._replace(said=str(sorted(set(before.items()) ^ set(after.items()))) + again.said[-300:])
        return {"n": kills, "kind": kind, "problems": problems, "said": again.said[-500:] if problems else ""}

    def ranks(self, number: int, place: Path) -> dict[str, Any]:
        """Two processes that train together, both killed and resumed; or one asked to end, then the other."""
        chance = random.Random(f"{self.seed} ranks {number}")
        method = ("mslg", "cross-entropy", "meta-weight-net")[number % 3]
        place.mkdir()
        write_data(place)

        def both(more: list[str], kill_after: float | None, signal_to: int | None) -> list[Ended]:
            (place / "said").unlink(missing_ok=True)
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = str(free.getsockname()[1])
            about = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            begun = time.monotonic()
            words = [word for word in self._fit(method) if not word.startswith("table_file")]
            words = [
                word for place, word in enumerate(words) if not (word == "--set" and words[place + 1 :][:1] == ["-q"])
            ]
            pids = [start([*words, *more], place, RANK=str(rank), LOCAL_RANK=str(rank), **about) for rank in (0, 1)]
            if signal_to is not None and kill_after is not None:
                first = ask(pids[signal_to], place, kill_after, begun)
                other = pids[1 - signal_to]
                if first.code:  # as torchrun does when a process has failed
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(other, signal.SIGTERM)
                second = finish(other, place)
                return [first, second] if signal_to == 0 else [second, first]
            return [finish(pid, place, kill_after=kill_after, begun=begun) for pid in pids]

        whole = both(["-o", "whole"], None, None)
        if any(each.code for each in whole):
            return {"kind": method, "problems": ["lost"], "said": whole[0].said[-500:]}
        kills = 0
        for attempt in range(4):
            asked = number % 2 if attempt == 0 and number % 4 < 2 else None
            after = None if attempt == 3 else chance.uniform(0.02, 1) * whole[0].seconds
            ended = both(["--resume"] if (place / "run" / "config.toml").exists() else [], after, asked)
            kills += sum(each.code not in (0,) for each in ended)
            if all(each.code == 0 for each in ended):
                break
            problems = [problem for each in ended for problem in each.problems]
            allowed = [0, -signal.SIGKILL]
            if asked is not None:  # a process that has not even begun ends by the signal itself
                allowed = [0, 128 + signal.SIGTERM, -signal.SIGTERM]
            said = max((each.said for each in ended), key=len)  # of the one that ended last
            if "another process of this run has ended" in said:
                allowed.append(1)  # it noticed the loss before it was asked itself
            if problems or any(each.code not in allowed for each in ended):
                codes = [each.code for each in ended]
                return {
                    "n": kills,
                    "kind": method,
                    "problems": problems or [f"ended with {codes}"],
                    "said": said[-800:],
                }
        wrong = [] if digest(place / "run") == digest(place / "whole") else ["wrong"]
        return {"n": max(1, kills), "kind": method, "problems": [*wrong, *ended[0].problems]}

    def two_processes(self, number: int, place: Path) -> dict[str, Any]:
        """Two resumes of one folder at once: one of them goes on, and the other is refused."""
        method = ("mslg", "cross-entropy")[number % 2]
        right, seconds = self._reference(method)
        place.mkdir()
        write_data(place)
        finish(start(self._fit(method), place), place, kill_after=0.6 * seconds)
        more = ["--resume"] if (place / "run" / "config.toml").exists() else []
        pids = [start([*self._fit(method), *more], place) for _ in range(2)]
        ended = [finish(pid, place) for pid in pids]
        if sorted(each.code for each in ended) != [0, 1]:
            if any(each.code for each in ended):
                run([*self._fit(method), "--resume"], place)
            codes = [each.code for each in ended]
            fine = digest(place / "run") == right and codes == [0, 0]  # one had finished before the other began
            return {"kind": method, "problems": [] if fine else ["wrong"], "said": ended[0].said[-500:]}
        said = "is being written by process" in ended[0].said
        wrong = [] if said and digest(place / "run") == right else ["wrong"]
        return {"kind": method, "problems": wrong, "said": ended[0].said[-300:] if wrong else ""}

    # --- damage

    def _good_photos(self) -> Path:
        place = self.folder / "good-photos"
        if not (place / "run" / "done").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            write_photos(place)
            words = ["fit", "photos", "--clean", "verified", "-o", "run", "--epochs", "3", "--network", "mlp"]
            ended = run([*words, "--method", "cross-entropy", "--workers", "0", *QUICK], place)
            if ended.code:
                raise RuntimeError(ended.said)
            killed_commands.write_inputs(place)
            for words in killed_commands.FIRST:
                if (ended := run(words, place)).code:
                    raise RuntimeError(ended.said)
        return place

    def _good(self) -> Path:
        place = self.folder / "good"
        if not (place / "run" / "done").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            write_data(place)
            words = [
                "fit",
                "data.npz",
                "--clean",
                "clean.npz",
                "-o",
                "run",
                "--method",
                "cross-entropy",
                "--epochs",
                "3",
            ]
            ended = run([*words, *QUICK], place)
            if ended.code:
                raise RuntimeError(ended.said)
        return place

    READERS: tuple[tuple[str, ...], ...] = (
        ("report", "run", "-o", "out"),
        ("export", "run", "--to", "csv", "-o", "out"),
        ("export", "run", "--to", "safetensors", "-o", "out"),
        ("apply", "run", "-o", "out.csv"),
        ("verify", "run"),
        (
            "fit",
            "data.npz",
            "--clean",
            "clean.npz",
            "-o",
            "run",
            "--method",
            "cross-entropy",
            "--epochs",
            "3",
            "--resume",
            *QUICK,
        ),
        ("fit", "data.npz", "--clean", "clean.npz", "--from", "run", "-o", "out", "--epochs", "2", *QUICK),
    )

    def damage(self, number: int, place: Path) -> dict[str, Any]:
        """One damaged file of a run, and a command that may read it: an error that names it, or the right output."""
        chance = random.Random(f"{self.seed} damage {number}")
        good, words = self._good(), list(self.READERS[number % len(self.READERS)])
        right = self._right_output(number % len(self.READERS))
        place.mkdir()
        shutil.copytree(good / "run", place / "run")
        for name in ("data.npz", "clean.npz"):
            os.link(good / name, place / name)
        if "--resume" in words and chance.random() < 0.5:
            (place / "run" / "done").unlink()
        files = [
            path for path in sorted((place / "run").rglob("*")) if path.is_file() and path.name not in (".lock", "done")
        ]
        victim = chance.choice(files)
        kind = "deleted" if chance.random() < 0.1 else "damaged"
        before = victim.read_bytes()
        victim.unlink() if kind == "deleted" else victim.write_bytes(hostile_inputs.damaged(chance, before))
        ended = run(words, place)
        problems = list(ended.problems)
        unchanged = kind == "damaged" and victim.exists() and victim.read_bytes() == before
        if ended.code == 0 and _output(words, place) != right and not unchanged:
            problems.append("wrong")
        if ended.code not in (0, 1):
            problems.append("lost")
        named = ended.code == 0 or victim.name in ended.said
        if not named:
            problems.append("unnamed")
        about = {"kind": f"{words[0]} {victim.name}", "error": ended.code != 0, "named": named}
        return {**about, "problems": problems, "said": ended.said[-400:] if problems else ""}

    def _right_output(self, which: int) -> str:
        if not hasattr(self, "_outputs"):
            self._outputs: dict[int, str] = {}
        if which not in self._outputs:
            place, words = self.folder / "right", list(self.READERS[which])
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(self._good(), place)
            ended = run(words, place)
            if ended.code:
                raise RuntimeError(ended.said)
            self._outputs[which] = _output(words, place)
        return self._outputs[which]

    # --- hostile inputs, full disks

    def hostile(self, number: int, place: Path) -> dict[str, Any]:
        good = self._good()
        kind, made = hostile_inputs.make(number, place, good / "run", self.outside, self.seed)
        ended = run(made.words, place)
        problems = list(ended.problems)
        if ended.code not in (0, 1, 2):
            problems.append(f"ended with {ended.code}")
        if made.refuse and ended.code == 0:
            problems.append("accepted")
        if (place / hostile_inputs.MARK).exists():
            problems.append("code run")
        if _contains(place, hostile_inputs.CANARY.encode()):
            problems.append("file outside")
        if "\x1b" in ended.said:
            problems.append("terminal")
        about = {"kind": kind, "code": ended.code, "seconds": round(ended.seconds, 2), "words": made.words}
        return {**about, "problems": problems, "said": ended.said[-400:] if problems else ""}

    def disk(self, number: int, place: Path) -> dict[str, Any]:
        """No file may grow beyond a limit, as on a full disk; then there is space again."""
        chance = random.Random(f"{self.seed} disk {number}")
        method = ("mslg", "cross-entropy", "cross-fitted")[number % 3]
        right, _ = self._reference(method)
        place.mkdir()
        write_data(place)
        ended = run(self._fit(method), place, limit=int(10 ** chance.uniform(2, 5)))
        problems = list(ended.problems)
        if ended.code not in (0, 1):
            problems.append(f"ended with {ended.code}")
        if ended.code:
            more = ["--resume"] if (place / "run" / "config.toml").exists() else []
            again = run([*self._fit(method), *more], place)
            problems += [*again.problems, *(["lost"] if again.code else [])]
            ended = again
        if digest(place / "run") != right:
            problems.append("wrong")
        return {"kind": method, "problems": problems, "said": ended.said[-400:] if problems else ""}


def _pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not (Path(folder) / name).is_file() and not (Path(folder) / name).is_dir()]


def _listing(place: Path) -> dict[str, str]:
    """The outputs of a command, by content; leftovers of killed ones included."""
    paths = [
        path
        for path in sorted(place.rglob("*"))
        if path.is_file() and path.name not in ("said", ".lock", "timing.jsonl")
    ]
    kept = [path for path in paths if "checksums" not in path.name and "config.toml" not in path.name]
    return {str(path.relative_to(place)): hashlib.sha256(_lasting(path)).hexdigest() for path in kept}


def _lasting(path: Path) -> bytes:
    """The content without how long things took."""
    if path.name != "cells.jsonl":
        return path.read_bytes()
    cells = [json.loads(line) for line in path.read_text().splitlines()]
    return json.dumps(sorted(json.dumps({**cell, "seconds": 0}) for cell in cells)).encode()


def _output(words: list[str], place: Path) -> str:
    """What the command has made."""
    if words[0] == "verify":
        return ""
    if "--resume" in words:
        return digest(place / "run")
    out = place / ("out.csv" if words[0] == "apply" else "out")
    if words[0] == "fit":
        return digest(out)
    return json.dumps(_listing(out)) if out.is_dir() else hashlib.sha256(out.read_bytes()).hexdigest()


def _contains(place: Path, canary: bytes) -> bool:
    """Whether a file that was copied, not a link that was there, holds what lies outside."""
    for path in place.rglob("*"):
        if path.is_file() and not path.is_symlink() and canary in path.read_bytes():
            return True
    return any(path.is_symlink() and "out" in path.parts[-3] for path in place.glob("out*/*/*"))


def summary(trials: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    parts = {}
    for part in PARTS:
        own = [trial for trial in trials if trial["part"] == part]
        problems = Counter(problem for trial in own for problem in trial["problems"])
        solved = Counter(problem for trial in own for problem in trial.get("first", ()))
        parts[part] = {"trials": sum(trial["n"] for trial in own), "problems": dict(problems), "solved": dict(solved)}
        parts[part]["kinds"] = len({trial.get("kind") for trial in own})
    errors = [trial for trial in trials if trial["part"] == "damage" and trial["error"]]
    parts["damage"] |= {"errors": len(errors), "named": sum(trial["named"] for trial in errors)}
    slowest = max((trial["seconds"] for trial in trials if trial["part"] == "hostile"), default=0)
    return {"format_version": 1, "seed": seed, "parts": parts, "slowest_hostile_seconds": slowest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=list(PARTS))
    parser.add_argument("-n", type=int, help="trials of each part; by default those of the docs")
    parser.add_argument("-o", "--output", type=Path, default=Path("chaos"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="repeat the trials that ended with a problem")
    parser.add_argument("--summary", action="store_true")
    given = parser.parse_args()
    chaos = Chaos(given.output, given.seed)
    if not given.summary:
        import torch

        torch.set_num_threads(1)
        for name in ("fitting.fit", "fitting.review_next", "review.report.render", "review.cleaned.write", "cli.app"):
            importlib.import_module(f"mslg.{name}")
        import_all(chaos.folder / "imports")
        if given.again:
            chaos.again()
        for tenth in () if given.again else range(1, 11):  # in turns: one that is stopped has tried all parts
            for part in given.part or PARTS:
                chaos.make(part, (given.n or PARTS[part]) * tenth // 10)
    found = summary(chaos.done(), given.seed)
    if given.summary:
        RESULT.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
