"""MLflow: a file store in the run's folder, or the server that MLFLOW_TRACKING_URI names."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ...runtime.files import write_atomically
from . import Metrics, Started, imported

EXPERIMENT = "mslg"
RUN_ID = "run_id.txt"  # by which a resumed run finds itself
LONGEST = 500  # characters of a parameter that every store takes


class MLflow:
    """Look at it with `MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri RUN/mlflow`."""

    def __init__(self) -> None:
        self._mlflow = imported("mlflow", "mlflow")
        self._client: Any = None
        self._run: str | None = None

    def begin(self, started: Started) -> None:
        assert started.folder is not None
        place = os.environ.get("MLFLOW_TRACKING_URI")
        if place is None:
            # MLflow's default is a database; one file per metric suits a folder that may be moved.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            place = (started.folder / "mlflow").resolve().as_uri()
        self._client = self._mlflow.MlflowClient(tracking_uri=place)
        own = started.folder / "mlflow" / RUN_ID
        if started.history and own.exists():
            self._run = own.read_text().strip()
            self._client.update_run(self._run, status="RUNNING")
        else:
            made = self._client.create_run(self._experiment(), run_name=started.folder.resolve().name)
            self._run = str(made.info.run_id)
            own.parent.mkdir(exist_ok=True)
            write_atomically(own, f"{self._run}\n".encode())
            for name, value in _flat(started.config):
                self._client.log_param(self._run, name, str(value)[:LONGEST])
        for epoch, metrics in started.history:
            self.log(epoch, {name: value for name, value in metrics.items() if epoch not in self._logged(name)})

    def log(self, epoch: int, metrics: Metrics) -> None:
        now = int(1000 * time.time())
        found = [self._mlflow.entities.Metric(name, value, now, epoch) for name, value in metrics.items()]
        if found:
            self._client.log_batch(self._run, metrics=found)

    def close(self) -> None:
        if self._run is not None:
            self._client.set_terminated(self._run)

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(EXPERIMENT)
        made: str = self._client.create_experiment(EXPERIMENT) if found is None else found.experiment_id
        return made

    def _logged(self, name: str) -> set[int]:
        return {point.step for point in self._client.get_metric_history(self._run, name)}


def _flat(config: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Settings as `table.key`."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif value is not None:
            yield f"{before}{name}", value
