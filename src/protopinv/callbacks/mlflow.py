"""A training in MLflow."""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from protopinv.callbacks.callback import Callback, TrainingStart, numbers_of
from protopinv.optional import require
from protopinv.train.history import EpochReport

MODEL_NAME = "model.safetensors"


class MLflow(Callback):
    """Parameters, numbers of every epoch and the model file, in the active run or a new one.

    Where it is kept is MLflow's to say: ``mlflow.set_tracking_uri`` and ``mlflow.set_experiment``,
    or MLFLOW_TRACKING_URI. Epochs are counted from 1; numbers of candidates that are looked at have
    names such as "look_1/loss". Parameters that the candidates do not share are logged at the end.
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
        prefix = "" if report.candidate is None else f"look_{report.candidate + 1}/"
        metric, now = self._mlflow.entities.Metric, int(1000 * time.time())
        metrics = [
            metric(f"{prefix}{name}", number, now, report.epoch + 1)
            for name, number in numbers_of(report).items()
            if number is not None
        ]
        self._client.log_batch(self._run, metrics=metrics)

    def on_train_end(self, model: Any) -> None:
        """What was settled on the way, the model, and the end of a run of ours."""
        self._log_params(asdict(model.config_))
        if self.model:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, MODEL_NAME)
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
