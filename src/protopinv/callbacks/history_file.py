"""The history of a training in a file that grows with every epoch."""

import csv
import io
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protopinv.callbacks.callback import Callback, TrainingStart, numbers_of
from protopinv.errors import ConfigError
from protopinv.files import replacing, require_file
from protopinv.plain import plain
from protopinv.train.history import EpochReport

JSON_LINES = (".jsonl", ".ndjson")
# Of CSV, before one for the ridge of each layer.
COLUMNS = ("look", "epoch", "loss", "validation_loss", "validation_score", "lr")


class HistoryFile(Callback):
    """One line an epoch, as CSV or JSON lines by the ending; a run that is killed leaves them all.

    Columns are ``look`` (the number of a candidate, from 1, while several are looked at), ``epoch``
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
        self._columns: tuple[str, ...] = COLUMNS
        self._resumed: set[int | None] = set()
        self._is_resumed = False

    def on_train_begin(self, start: TrainingStart) -> None:
        """Begin the file, unless there is one to go on with."""
        self._started = time.perf_counter()
        n_layers = 1 + max(len(config.widths) for config in start.candidates)
        ridges = (f"ridge_{number}" for number in range(1, n_layers + 1))
        self._columns = (*COLUMNS, *ridges, "seconds")
        self._is_resumed = start.resumed and self.path.exists()
        self._resumed = set()
        if not self._is_resumed:
            self._rewrite([])

    def on_epoch_end(self, report: EpochReport) -> None:
        """One more line."""
        if self._is_resumed and report.candidate not in self._resumed:
            self._resumed.add(report.candidate)
            self._forget_from(report)
        row = {
            "look": None if report.candidate is None else report.candidate + 1,
            "epoch": report.epoch + 1,
            **numbers_of(report),
            "seconds": round(time.perf_counter() - self._started, 6),
        }
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(self._line(row))

    def _line(self, row: dict[str, Any]) -> str:
        values = plain(row)
        if self._as_json:
            return json.dumps(values) + "\n"
        return _csv_line([values.get(name) for name in self._columns])

    def _forget_from(self, report: EpochReport) -> None:
        """Lines of epochs that come again, and one that a kill has cut off."""
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        rows = lines if self._as_json else lines[1:]
        look = None if report.candidate is None else report.candidate + 1
        self._rewrite([row for row in rows if self._is_before(row, look, report.epoch + 1)])

    def _is_before(self, row: str, look: int | None, epoch: int) -> bool:
        if not row.endswith("\n"):
            return False
        if self._as_json:
            values = json.loads(row)
            place, number = values["look"], values["epoch"]
        else:
            first, second = next(csv.reader([row]))[:2]
            place, number = int(first) if first else None, int(second)
        return bool(place != look or number < epoch)

    def _rewrite(self, rows: Sequence[str]) -> None:
        first = [] if self._as_json else [_csv_line(self._columns)]
        with replacing(self.path) as temporary:
            temporary.write_text("".join([*first, *rows]), encoding="utf-8", newline="")


def _csv_line(values: Sequence[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()
