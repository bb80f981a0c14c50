"""The next round of training: what a run takes over from an earlier run and from the review of its labels."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..data.sample_table import pieces
from ..data.source import Source
from ..data.splits import Splits
from ..runs.checkpoint import load_state, to_device
from ..runs.folder import Run, earlier_run, find_run
from ..training.method import Method
from . import division_file
from .decisions import Decisions, Piece, as_csv, fingerprint, merge_decisions, read_decisions
from .reviewed_samples import with_reviewed

log = logging.getLogger("mslg")

DECISIONS = "decisions.csv"
EPOCHS = 30  # of a cold start


@dataclass(frozen=True)
class Round:
    """How a run starts: cold, or warm from an earlier run; with or without decisions."""

    from_run: Path | None
    decisions: Decisions
    resumed: Run | None = None  # the run itself, if it was interrupted

    @classmethod
    def open(cls, from_run: Any, decisions: Any, source: Source, resumed: Run | None = None) -> Round:
        """`from_run` is a run, a result or a folder; `decisions` a file or several. Decisions of the earlier run are
        kept; a resumed run has its own."""
        path = _path(from_run)
        files = [Path(file) for file in _listed(decisions)]
        if resumed is not None and not files and (resumed.path / DECISIONS).exists():
            files = [resumed.path / DECISIONS]
        elif path is not None:
            before = find_run(path, None if resumed is None else resumed.path) / DECISIONS
            files = [before, *files] if before.exists() else files
        layers = [read_decisions(file, classes=source.classes, samples=_pieces(source)) for file in files]
        found = cls(path, merge_decisions(*layers), resumed)
        if found.earlier is not None:
            found.earlier.require_finished("done", str(found.earlier.checkpoint.relative_to(found.earlier.path)))
        return found

    @property
    def warm(self) -> bool:
        """Whether the run starts from an earlier one."""
        return self.from_run is not None

    @cached_property
    def earlier(self) -> Run | None:
        """The earlier run. None for a cold start, and once the run has a checkpoint of its own to resume from."""
        if self.from_run is None or (self.resumed is not None and self.resumed.checkpoint.exists()):
            return None
        return earlier_run(self.from_run, of=None if self.resumed is None else self.resumed.path)

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """What config.toml records about the start of the run."""
        start = None if self.from_run is None else str(self.from_run)
        return {
            "data": {"decisions_fingerprint": fingerprint(self.decisions)},
            "train": {"from_run": start, "from_run_fingerprint": self._from_run_fingerprint()},
        }

    def apply_decisions(self, data: Splits) -> Splits:
        """The splits with the decisions applied. Before that they must be those of the earlier run."""
        if self.earlier is not None:
            self._refuse_other_data(self.earlier, data)
        return with_reviewed(data, self.decisions)

    def epochs(self, asked: int | None) -> tuple[int, int]:
        """The length of the run and the length asked for: a time budget may have made it shorter."""
        if self.resumed is not None:
            before = self.resumed.config["train"]
            if asked is not None and asked not in (before["epochs"], before["epochs_asked"]):
                raise ValueError(
                    f"{self.resumed.path} was started with {before['epochs_asked']} epochs, now {asked} are asked for; "
                    "schedules and stages depend on the length of a run, so it is fixed: start a new run in another "
                    "folder"
                )
            return before["epochs"], before["epochs_asked"]
        if asked is None and self.earlier is not None:
            before = self.earlier.config["train"]
            # Only after a cold start: otherwise every round would be shorter than the one before.
            divisor, words = (1, "as many as") if before.get("from_run") else (3, "a third of those of")
            asked = max(2, round(before["epochs"] / divisor))
            log.info("%d epochs, %s %s; set another number with epochs= (--epochs)", asked, words, self.from_run)
        asked = EPOCHS if asked is None else asked
        if asked < 1:
            raise ValueError(f"epochs is {asked}; a run needs at least 1")
        return asked, asked

    def check_method(self, name: str) -> None:
        """Raise if the earlier run was trained by another method."""
        before = name if self.earlier is None else self.earlier.config["method"]["name"]
        if before != name:
            raise ValueError(
                f"{self.from_run} was trained by {before} and cannot be used as a warm start for {name}; pass method= "
                f"(--method) {before}, or leave out from_run= (--from)"
            )

    def warm_start(self, method: Method) -> Method:
        """Load the earlier run's state into a new method."""
        if self.earlier is None:
            return method
        state = to_device(load_state(self.earlier.checkpoint)["method"], method.task.device)
        try:
            method.continue_from(state)
        except (RuntimeError, KeyError) as error:
            network = self.earlier.config["network"].get("class", "?")
            raise ValueError(
                f"{self.from_run} cannot be used as a warm start with this network and these settings; its network is "
                f"a {network}, this one a {type(method.deployed()).__name__} ({' '.join(str(error).split())[:300]})"
            ) from error
        log.info("warm start from %s: its networks and labels, a new optimizer, no warm-up", self.from_run)
        return method

    def initial_files(self, data: Splits) -> dict[str, bytes]:
        """The files with which the run's folder is created."""
        files = {DECISIONS: as_csv(self.decisions)} if self.decisions else {}
        table = division_file.division_table(data)
        return {**files, division_file.NAME: division_file.write_division(table)} if len(table) else files

    def _from_run_fingerprint(self) -> str | None:
        if self.from_run is None:
            return None
        if self.earlier is None:  # resumed: it was recorded at the start
            assert self.resumed is not None
            recorded: str | None = self.resumed.config["train"].get("from_run_fingerprint")
            return recorded
        with self.earlier.checkpoint.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]

    def _refuse_other_data(self, earlier: Run, data: Splits) -> None:
        advice = "use the same data, labels, clean set and seed, or leave out from_run= (--from) for a cold start"
        if earlier.config["data"]["fingerprint"] != data.source.fingerprint():
            raise ValueError(
                f"the data or its given labels are not those on which {self.from_run} was trained; {advice}"
            )
        if earlier.read_json("classes.json")["classes"] != list(data.source.classes):
            raise ValueError(f"the classes are not those on which {self.from_run} was trained; {advice}")
        before, now = division_file.read_division(earlier.path), division_file.division_table(data)
        if division_file.drawn_samples(before) != division_file.drawn_samples(now):
            seed = earlier.config["train"]["seed"]
            raise ValueError(
                f"the clean samples are not those of {self.from_run}, or are split differently (its seed was {seed}, "
                f"now it is {data.seed}); {advice}"
            )


def _pieces(source: Source) -> Iterator[Piece]:
    names = np.array(source.classes, dtype=object)
    for here in pieces(len(source)):
        yield source.ids[here], names[source.label[here].numpy()].tolist()


def _path(start: Any) -> Path | None:
    """The folder of a run, a result or a folder."""
    if start is None or isinstance(start, str | Path):
        return None if start is None else Path(start)
    run = start if isinstance(start, Run) else getattr(start, "run", None)
    if run is None:
        raise ValueError(
            f"from_run is a {type(start).__name__} without a folder; fit with output= (a folder) and use that"
        )
    return Path(run.path)


def _listed(decisions: Any) -> Sequence[Any]:
    if decisions is None:
        return []
    return [decisions] if isinstance(decisions, str | Path) else list(decisions)
