"""A training in TensorBoard."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from protopinv.callbacks.callback import Callback, TrainingStart, numbers_of
from protopinv.optional import require
from protopinv.train.history import EpochReport

# What was written reaches the file after so many seconds at most.
FLUSH_SECONDS = 10


class TensorBoard(Callback):
    """Loss, validation, learning rate and ridges of every epoch, for ``tensorboard --logdir``.

    ``folder`` is that of one run. Candidates that are looked at are runs of their own below it,
    "look 1" and so on. Epochs are counted from 1. The configuration that was used is a text.

    >>> model.fit(X, y, callbacks=[TensorBoard("runs/first")])
    """

    def __init__(self, folder: str | Path) -> None:
        require("tensorboard", extra="tensorboard", why="Writing for TensorBoard")
        self.folder = Path(folder)
        self._writers: dict[int | None, Any] = {}

    def on_train_begin(self, _start: TrainingStart) -> None:
        """Forget a training that has come to no end."""
        self._close()

    def on_epoch_end(self, report: EpochReport) -> None:
        """One more point of every curve."""
        step = report.epoch + 1
        for name, number in numbers_of(report).items():
            if number is not None:
                self._writer(report.candidate, step).add_scalar(name, number, step)

    def on_train_end(self, model: Any) -> None:
        """The configuration, then close the files."""
        settings = asdict(model.config_).items()
        table = "\n".join(["|setting|value|", "|---|---|", *(f"|{k}|{v}|" for k, v in settings)])
        self._writer(None, 1).add_text("configuration", table, 0)
        self._close()

    def on_train_failed(self, _error: BaseException) -> None:
        """Close the files."""
        self._close()

    def _writer(self, look: int | None, first: int) -> Any:
        """Of a run; what an earlier process wrote from its first epoch on is no longer shown."""
        from torch.utils.tensorboard import SummaryWriter

        if look not in self._writers:
            folder = self.folder if look is None else self.folder / f"look {look + 1}"
            self._writers[look] = SummaryWriter(
                str(folder), purge_step=first, flush_secs=FLUSH_SECONDS
            )
        return self._writers[look]

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers = {}
