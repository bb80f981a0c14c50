"""Where an epoch's numbers go besides metrics.jsonl: TensorBoard, Weights & Biases, MLflow, or a logger of your own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ...registry import Entry, Registry

LOGGERS = Registry(
    "logger",
    {
        "tensorboard": Entry(
            "mslg.training.loggers.tensorboard:TensorBoard", "event files in RUN/tensorboard", ("tensorboard",)
        ),
        "wandb": Entry("mslg.training.loggers.wandb:WandB", "Weights & Biases, offline, in RUN/wandb", ("wandb",)),
        "mlflow": Entry("mslg.training.loggers.mlflow:MLflow", "an MLflow file store in RUN/mlflow", ("mlflow",)),
    },
)

Metrics = Mapping[str, float]


class Started(NamedTuple):
    """What a logger gets before the first epoch."""

    folder: Path | None  # the run's; loggers with a name keep their files in it
    config: Mapping[str, Any]  # tables of settings, as in config.toml
    history: Sequence[tuple[int, Metrics]]  # of a resumed run: epochs that are done, logged before or not


@runtime_checkable
class Logger(Protocol):
    """Anything with these three methods can be passed to `fit(loggers=[…])`."""

    def begin(self, started: Started) -> None:
        """Open the log. One that has some of the history already must not have it twice."""
        ...

    def log(self, epoch: int, metrics: Metrics) -> None:
        """Write down an epoch, counted from 0; the names are those of metrics.jsonl, the values finite."""
        ...

    def close(self) -> None:
        """Called at the end of a run that has begun, however it ends."""
        ...


class Logging:
    """The loggers of a run, as one. A context, so that they are closed whatever happens."""

    def __init__(self, loggers: Sequence[Logger]) -> None:
        self.loggers = loggers
        self._open: list[Logger] = []

    @classmethod
    def named(cls, wanted: str | Logger | Sequence[str | Logger], *, folder: Path | None) -> Logging:
        """Loggers by name or as they are. A missing package is reported here, before any training."""
        several = isinstance(wanted, Iterable) and not isinstance(wanted, str | Logger)
        listed: list[Any] = list(wanted) if several else [wanted]  # type: ignore[arg-type]
        names = [each for each in listed if isinstance(each, str)]
        makers = {name: LOGGERS.load(name) for name in names}
        if names and folder is None:
            raise ValueError(
                f"the logger {names[0]} keeps its files in the run's folder and there is none; pass output= (a folder)"
            )
        for each in listed:
            if not isinstance(each, str | Logger):
                raise TypeError(
                    f"{each!r} is no logger; give a name ({', '.join(LOGGERS)}) or an object with the methods begin, "
                    "log and close"
                )
        made = {name: maker() for name, maker in makers.items()}  # a name given twice is one logger
        return cls([*made.values(), *(each for each in listed if not isinstance(each, str))])

    def begin(self, started: Started) -> None:
        history = [(epoch, _finite(metrics)) for epoch, metrics in started.history]
        for logger in self.loggers:
            self._open.append(logger)  # first: one that fails half-way has something to close too
            logger.begin(started._replace(history=history))

    def log(self, epoch: int, metrics: Metrics) -> None:
        finite = _finite(metrics)
        for logger in self._open:
            logger.log(epoch, finite)

    def __enter__(self) -> Logging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, history: TracebackType | None
    ) -> None:
        failed: Exception | None = None
        for logger in self._open:
            try:
                logger.close()
            except Exception as found:  # the others are closed all the same
                failed = failed or found
        if failed is not None and error is None:
            raise failed


def imported(name: str, package: str) -> Any:
    """A logger's package, or an error with the line that installs it."""
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(
            f"{package.partition('.')[0]} is not installed; install it with: pip install 'mslg[{name}]'"
        ) from error


def _finite(metrics: Metrics) -> dict[str, float]:
    """A number that is not there yet is no point of a curve."""
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
