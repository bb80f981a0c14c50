"""TensorBoard: event files in the run's folder."""

from __future__ import annotations

from typing import Any

from . import Metrics, Started, imported


class TensorBoard:
    """Look at them with `tensorboard --logdir RUN/tensorboard`."""

    def __init__(self) -> None:
        imported("tensorboard", "tensorboard")
        self._writer: Any = None

    def begin(self, started: Started) -> None:
        from torch.utils.tensorboard import SummaryWriter

        assert started.folder is not None
        # A resumed run writes all its epochs again and tells readers to forget what earlier files say: so an epoch that
        # was done but not yet logged when the run was killed is there, and none is there twice.
        again = 0 if started.history else None
        self._writer = SummaryWriter(str(started.folder / "tensorboard"), purge_step=again)
        for epoch, metrics in started.history:
            self.log(epoch, metrics)

    def log(self, epoch: int, metrics: Metrics) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, epoch)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
