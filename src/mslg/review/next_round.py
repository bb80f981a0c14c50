"""Round again: what a run takes over from an earlier one and from those who have reviewed its list."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..data.samples import Samples
from ..data.source import Source
from ..data.splits import Splits
from ..data.stores import Located
from ..runs.checkpoint import load_state, to_device
from ..runs.folder import Run, earlier_run, find_run
from ..training.method import Method
from .decisions import Decisions, Piece, as_csv, fingerprint, merged, read_decisions
from .reviewed_samples import with_reviewed

log = logging.getLogger("mslg")

FORMAT = 1
DIVISION = "division.parquet"
DECISIONS = "decisions.csv"
EPOCHS = 30  # of a run that starts from nothing
PIECE = 65536


@dataclass(frozen=True)
class Round:
    """The start of a run: cold, or warm from an earlier run; with or without decisions."""

    start: Path | None
    decisions: Decisions
    resumed: Run | None = None  # the run itself, when it was interrupted

    @classmethod
    def open(cls, start: Any, decisions: Any, source: Source, resumed: Run | None = None) -> Round:
        """`start` is a run, a result or a folder; `decisions` a file or several. Those that the earlier run was started
        with count too, and a resumed run has its own."""
        path = _path(start)
        files = [Path(file) for file in _listed(decisions)]
        if resumed is not None and not files and (resumed.path / DECISIONS).exists():
            files = [resumed.path / DECISIONS]
        elif path is not None:
            before = find_run(path, None if resumed is None else resumed.path) / DECISIONS
            files = [before, *files] if before.exists() else files
        layers = [read_decisions(file, classes=source.classes, samples=_pieces(source)) for file in files]
        found = cls(path, merged(*layers), resumed)
        if not found.resuming:
            found._refuse_unfinished()
        return found

    @property
    def warm(self) -> bool:
        """Whether there is an earlier run to go on from."""
        return self.start is not None

    @property
    def resuming(self) -> bool:
        """Whether a checkpoint of the run itself leads on; the earlier run is no longer needed then."""
        return self.resumed is not None and self.resumed.checkpoint.exists()

    @cached_property
    def earlier(self) -> Run | None:
        """The earlier run, while its state is needed."""
        if self.start is None or self.resuming:
            return None
        return earlier_run(self.start, of=None if self.resumed is None else self.resumed.path)

    @property
    def recorded(self) -> dict[str, dict[str, Any]]:
        """What the run's settings say about its start."""
        start = None if self.start is None else str(self.start)
        return {
            "data": {"decisions_fingerprint": fingerprint(self.decisions)},
            "train": {"from_run": start, "from_run_fingerprint": self._start_fingerprint()},
        }

    def joined(self, data: Splits, source: Source) -> Splits:
        """The division with the decisions carried out. It must be the earlier run's."""
        if self.earlier is not None:
            self._refuse_other_data(self.earlier, data, source)
        return with_reviewed(data, source, self.decisions)

    def epochs(self, asked: int | None) -> tuple[int, int]:
        """The length of the run, and what was asked for: a time budget may have made it shorter."""
        if self.resumed is not None:
            before = self.resumed.config["train"]
            if asked is not None and asked not in (before["epochs"], before["epochs_asked"]):
                raise ValueError(
                    f"{self.resumed.path} was started with {before['epochs_asked']} epochs, now {asked} are asked for; "
                    "schedules and stages are parts of the run, so its length is fixed: start a new run in another "
                    "folder"
                )
            return before["epochs"], before["epochs_asked"]
        if asked is None and self.earlier is not None:
            before = self.earlier.config["train"]
            # Only from a first run: rounds would grow shorter and shorter.
            part, words = (1, "as many as") if before.get("from_run") else (3, "a third of those of")
            asked = max(2, round(before["epochs"] / part))
            log.info("%d epochs, %s %s; epochs= (--epochs) sets others", asked, words, self.start)
        asked = EPOCHS if asked is None else asked
        if asked < 1:
            raise ValueError(f"epochs is {asked}; a run needs at least 1")
        return asked, asked

    def lead(self, method: Method, name: str) -> Method:
        """Bring a new method to where the earlier run ended."""
        if self.earlier is None:
            return method
        before = self.earlier.config["method"]["name"]
        if before != name:
            raise ValueError(
                f"{self.start} was trained by {before}, which {name} cannot go on from; pass method= (--method) "
                f"{before}, or leave out from_run= (--from)"
            )
        state = to_device(load_state(self.earlier.checkpoint)["method"], method.task.device)
        try:
            method.continue_from(state)
        except (RuntimeError, KeyError) as error:
            network = self.earlier.config["network"].get("class", "?")
            raise ValueError(
                f"{self.start} cannot be gone on from with this network and these settings; its network is a "
                f"{network}, here it is a {type(method.deployed()).__name__} ({' '.join(str(error).split())[:300]})"
            ) from error
        log.info("going on from %s: its networks and labels, a new optimizer, no warm-up", self.start)
        return method

    def files(self, data: Splits, source: Source) -> dict[str, bytes]:
        """What the run's folder holds from the start."""
        found = {DECISIONS: as_csv(self.decisions)} if self.decisions else {}
        table = clean_table(data, source)
        if len(table):
            content = BytesIO()
            pq.write_table(table.replace_schema_metadata({"format_version": str(FORMAT)}), content)
            found[DIVISION] = content.getvalue()
        return found

    def _start_fingerprint(self) -> str | None:
        if self.start is None:
            return None
        if self.earlier is None:  # going on with the run itself, whoever started it
            assert self.resumed is not None
            recorded: str | None = self.resumed.config["train"].get("from_run_fingerprint")
            return recorded
        with self.earlier.checkpoint.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]

    def _refuse_unfinished(self) -> None:
        if self.earlier is not None and not (self.earlier.finished and self.earlier.checkpoint.exists()):
            raise ValueError(f"{self.start} is not finished; finish it first: mslg fit -o {self.start} --resume")

    def _refuse_other_data(self, earlier: Run, data: Splits, source: Source) -> None:
        advice = "go on with the same data, labels, clean set and seed, or leave out from_run= (--from) and train anew"
        if earlier.config["data"]["fingerprint"] != source.fingerprint():
            raise ValueError(f"the data or its given labels are not those that {self.start} was trained on; {advice}")
        if earlier.read_json("classes.json")["classes"] != list(source.classes):
            raise ValueError(f"the classes are not those that {self.start} was trained on; {advice}")
        if _division(read_division(earlier)) != _division(clean_table(data, source)):
            seed = earlier.config["train"]["seed"]
            raise ValueError(
                f"the clean samples are not those of {self.start}, or are divided in another way (its seed was {seed}, "
                f"now it is {data.seed}); {advice}"
            )


def clean_table(data: Splits, source: Source) -> pa.Table:
    """The clean samples: id, verified and given label, the part each is in, whether it is one of the data's samples,
    and where known its path."""
    parts: dict[str, Samples | None] = {
        "meta": data.drawn_clean,
        "select": data.select,
        "report": data.report,
        "reviewed": data.reviewed_clean,
    }
    place = {name: position for position, name in enumerate(source.ids)}
    tables = [_rows(name, part, source, place) for name, part in parts.items() if part is not None and len(part)]
    return (
        pa.concat_tables(tables, promote_options="default") if tables else pa.table({"id": pa.array([], pa.string())})
    )


def read_division(run: Run) -> pa.Table | None:
    """The clean samples of a run; None where it has none."""
    path = run.path / DIVISION
    return pq.read_table(path) if path.exists() else None


def _rows(name: str, part: Samples, source: Source, place: Mapping[str, int]) -> pa.Table:
    origin = part.origin
    assert origin is not None
    index = part.index.tolist()
    ids = [origin.ids[position] for position in index]
    # Ids that are only positions mean nothing in another set.
    same_names = name == "reviewed" or origin is source or (origin.ids_given and source.ids_given)
    here = [place.get(each) if same_names else None for each in ids]
    given = [None if position is None else source.classes[int(source.label[position])] for position in here]
    columns = {
        "id": pa.array(ids, pa.string()),
        "label": pa.array([source.classes[number] for number in part.label.tolist()], pa.string()),
        "given_label": pa.array(given, pa.string()),
        "part": pa.array([name] * len(ids), pa.string()),
        "in_data": pa.array([position is not None for position in here]),
    }
    if isinstance(part.store, Located):
        columns["path"] = pa.array([str(part.store.path(position)) for position in index], pa.string())
    return pa.table(columns)


def _division(table: pa.Table | None) -> list[tuple[str, str, str]]:
    """Which clean sample is in which part, but for those that reviews have added."""
    if table is None or not len(table):
        return []
    rows = zip(*(table[column].to_pylist() for column in ("id", "label", "part")))
    return sorted(row for row in rows if row[2] != "reviewed")


def _pieces(source: Source) -> Iterator[Piece]:
    names = np.array(source.classes, dtype=object)
    for start in range(0, len(source), PIECE):
        ids = source.ids[start : start + PIECE]
        yield ids, names[source.label[start : start + PIECE].numpy()].tolist()


def _path(start: Any) -> Path | None:
    """The folder of a run, a result or a folder."""
    if start is None or isinstance(start, str | Path):
        return None if start is None else Path(start)
    run = start if isinstance(start, Run) else getattr(start, "run", None)
    if run is None:
        raise ValueError(
            f"from_run is a {type(start).__name__} without a folder; fit with output= (a folder) and go on from that"
        )
    return Path(run.path)


def _listed(decisions: Any) -> Sequence[Any]:
    if decisions is None:
        return []
    return [decisions] if isinstance(decisions, str | Path) else list(decisions)
