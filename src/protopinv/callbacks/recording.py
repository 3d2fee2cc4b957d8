"""A training recorded while it runs: in a file of its own, in TensorBoard, in MLflow."""

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from protopinv.callbacks.callback import Callback, TrainingStart, epoch_numbers, place_of
from protopinv.errors import ConfigError
from protopinv.files import replacing, require_file
from protopinv.optional import require
from protopinv.plain import plain
from protopinv.train.history import EpochReport

JSON_LINES = (".jsonl", ".ndjson")
# Of CSV, before one for the ridge of each layer.
_COLUMNS = ("candidate", "epoch", "loss", "validation_loss", "validation_score", "lr")
# What was written reaches the file of TensorBoard after so many seconds at most.
FLUSH_SECONDS = 10


class HistoryFile(Callback):
    """One line an epoch, as CSV or JSON lines by the ending; a run that is killed leaves them all.

    Columns are ``candidate`` (the number of a candidate, from 1, during screening), ``epoch``
    (from 1), ``loss``, ``validation_loss``, ``validation_score``, ``lr``, ``ridge_1`` and so on for
    the layers, and ``seconds`` since training began or went on. Losses, scores and ridges are means
    over banks that train side by side. Where folds are judged by the pass that trains them,
    validation is that of the epoch before.

    A new training writes a new file. One that goes on from a checkpoint goes on with the file, and
    epochs that it repeats are replaced there.

    >>> model.fit(X, y, callbacks=[HistoryFile("history.jsonl")])
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._as_json = self.path.suffix.lower() in JSON_LINES
        if not self._as_json and self.path.suffix.lower() != ".csv":
            raise ConfigError(
                f"A history is written as .csv, {' or '.join(JSON_LINES)}. Got {self.path.name}. "
                "Choose one of these endings."
            )
        require_file(self.path)
        self._started = 0.0
        self._columns: tuple[str, ...] = _COLUMNS
        # candidates whose lines fit to the epochs that come; None for a file that was begun anew
        self._resumed: set[int | None] | None = None

    def on_train_begin(self, start: TrainingStart) -> None:
        """Begin the file, unless there is one to go on with."""
        self._started = time.perf_counter()
        n_layers = 1 + max(len(config.widths) for config in start.candidates)
        ridges = (f"ridge_{number}" for number in range(1, n_layers + 1))
        self._columns = (*_COLUMNS, *ridges, "seconds")
        self._resumed = set() if start.resumed and self.path.exists() else None
        if self._resumed is None:
            self._rewrite([])

    def on_epoch_end(self, report: EpochReport) -> None:
        """One more line."""
        candidate, epoch = place_of(report)
        if self._resumed is not None and candidate not in self._resumed:
            self._resumed.add(candidate)
            self._forget_from(candidate, epoch)
        row = {
            "candidate": candidate,
            "epoch": epoch,
            **epoch_numbers(report),
            "seconds": round(time.perf_counter() - self._started, 6),
        }
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(self._line(row))

    def _line(self, row: dict[str, Any]) -> str:
        values = plain(row)
        if self._as_json:
            return json.dumps(values) + "\n"
        cells = (values.get(name) for name in self._columns)
        return ",".join("" if cell is None else str(cell) for cell in cells) + "\n"

    def _forget_from(self, candidate: int | None, epoch: int) -> None:
        """Remove lines of epochs that come again, and one that a kill has cut off."""
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        rows = [row for row in lines[not self._as_json :] if row.endswith("\n")]
        places = map(self._place, rows)
        self._rewrite(
            [row for row, (of, n) in zip(rows, places, strict=True) if of != candidate or n < epoch]
        )

    def _place(self, row: str) -> tuple[int | None, int]:
        if self._as_json:
            values = json.loads(row)
            return values["candidate"], values["epoch"]
        candidate, epoch, *_ = row.split(",")
        return int(candidate) if candidate else None, int(epoch)

    def _rewrite(self, rows: Sequence[str]) -> None:
        first = [] if self._as_json else [",".join(self._columns) + "\n"]
        with replacing(self.path) as temporary:
            temporary.write_text("".join([*first, *rows]), encoding="utf-8", newline="")


class TensorBoard(Callback):
    """Loss, validation, learning rate and ridges of every epoch, for ``tensorboard --logdir``.

    ``folder`` is that of one run. Candidates are runs of their own below it,
    "candidate 1" and so on. Epochs are counted from 1. The configuration that was used is a text.

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
        candidate, epoch = place_of(report)
        for name, number in epoch_numbers(report).items():
            if number is not None:
                self._writer(candidate, epoch).add_scalar(name, number, epoch)

    def on_train_end(self, model: Any) -> None:
        """The configuration, then close the files."""
        settings = asdict(model.config_).items()
        table = "\n".join(["|setting|value|", "|---|---|", *(f"|{k}|{v}|" for k, v in settings)])
        self._writer(None, 1).add_text("configuration", table, 0)
        self._close()

    def on_train_failed(self, _error: BaseException) -> None:
        """Close the files."""
        self._close()

    def _writer(self, candidate: int | None, first: int) -> Any:
        """Of a run; what an earlier process wrote from its first epoch on is no longer shown."""
        from torch.utils.tensorboard import SummaryWriter

        if candidate not in self._writers:
            folder = self.folder if candidate is None else self.folder / f"candidate {candidate}"
            self._writers[candidate] = SummaryWriter(
                str(folder), purge_step=first, flush_secs=FLUSH_SECONDS
            )
        return self._writers[candidate]

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers = {}


class MLflow(Callback):
    """Parameters, numbers of every epoch and the model file, in the active run or a new one.

    Where it is kept is MLflow's to say: ``mlflow.set_tracking_uri`` and ``mlflow.set_experiment``,
    or MLFLOW_TRACKING_URI. Epochs are counted from 1; numbers of candidates have names such as
    "candidate_1/loss". Parameters that the candidates do not share are logged at the end.
    Without ``model`` the file of the fitted model is not kept there.

    >>> model.fit(X, y, callbacks=[MLflow(run_name="first")])
    """

    def __init__(self, run_name: str | None = None, *, model: bool = True) -> None:
        self._mlflow: Any = require("mlflow", extra="mlflow", why="Logging to MLflow")
        self.run_name, self.model = run_name, model
        self._is_ours = False
        self._logged: set[str] = set()

    def on_train_begin(self, start: TrainingStart) -> None:
        """Find or begin the run, and log what is settled."""
        active = self._mlflow.active_run()
        self._is_ours = active is None
        run = self._mlflow.start_run(run_name=self.run_name) if active is None else active
        # by its number: what is active elsewhere, or in another thread, is none of ours
        self._run, self._client = run.info.run_id, self._mlflow.MlflowClient()
        self._logged = set()
        first, *others = map(asdict, start.candidates)
        shared = {k: v for k, v in first.items() if all(other[k] == v for other in others)}
        self._log_params({"rows": start.n_rows, "features": start.n_features, **shared})

    def on_epoch_end(self, report: EpochReport) -> None:
        """One more point of every metric."""
        candidate, epoch = place_of(report)
        prefix = "" if candidate is None else f"candidate_{candidate}/"
        metric, now = self._mlflow.entities.Metric, int(1000 * time.time())
        metrics = [
            metric(f"{prefix}{name}", number, now, epoch)
            for name, number in epoch_numbers(report).items()
            if number is not None
        ]
        self._client.log_batch(self._run, metrics=metrics)

    def on_train_end(self, model: Any) -> None:
        """What was settled on the way, the model, and the end of a run of ours."""
        self._log_params(asdict(model.config_))
        if self.model:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "model.safetensors")
                model.save(file)
                self._client.log_artifact(self._run, str(file))
        self._end("FINISHED")

    def on_train_failed(self, error: BaseException) -> None:
        """The end of a run of ours."""
        self._end("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")

    def _log_params(self, values: Mapping[str, Any]) -> None:
        """Those that are new: MLflow refuses to change one."""
        param = self._mlflow.entities.Param
        new = {name: value for name, value in values.items() if name not in self._logged}
        self._client.log_batch(self._run, params=[param(k, str(v)) for k, v in new.items()])
        self._logged.update(new)

    def _end(self, status: str) -> None:
        if self._is_ours:
            self._mlflow.end_run(status)
        self._is_ours = False
