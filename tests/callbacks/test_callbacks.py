"""Laws of callbacks: they see what happens, several at once, and do no harm."""

import csv
import json
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, load, open_rows
from protopinv.callbacks import Callback, EarlyStop, HistoryFile, TensorBoard, TrainingStart
from protopinv.errors import CallbackWarning, ConfigError, OutputError
from protopinv.train.history import EpochReport
from protopinv.train.training import screening_epochs

SMALL: dict[str, Any] = {
    "n_prototypes": 12,
    "hidden_sizes": 8,
    "activation": "relu",
    "ridge": 1.0,
    "max_epochs": 12,
    "early_stopping": False,
    "random_state": 0,
    "device": "cpu",
}
# Several candidates, of which one is kept after a look.
LOOKED_AT: dict[str, Any] = {"max_epochs": 20, "random_state": 0, "device": "cpu"}


class Listener(Callback):
    """Remembers all it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_train_begin(self, start: TrainingStart) -> None:
        self.told.append(start)

    def on_epoch_end(self, report: EpochReport) -> None:
        self.told.append((report.candidate, report.epoch, report.means(), report.lr))

    def on_train_end(self, model: Any) -> None:
        self.told.append(model)

    def on_train_failed(self, error: BaseException) -> None:
        self.told.append(error)


class Failing(Listener):
    """Raises in one of its methods."""

    def __init__(self, where: str, error: BaseException) -> None:
        super().__init__()
        self._error = error
        setattr(self, where, self._fail)

    def _fail(self, _: Any) -> None:
        raise self._error


def weights_of(model: Any) -> list[torch.Tensor]:
    return list(model.network_.weights)


def assert_same(one: Any, other: Any) -> None:
    for mine, theirs in zip(weights_of(one), weights_of(other), strict=True):
        assert mine.equal(theirs)


def test_a_callback_is_told_of_the_beginning_every_epoch_and_the_end(blobs) -> None:
    listener, reports = Listener(), []
    model = ProtoPINVClassifier(**SMALL)
    model.fit(*blobs, callbacks=[listener], observer=lambda report: reports.append(report.epoch))
    start, *epochs, end = listener.told
    assert (start.n_rows, start.n_features, start.resumed) == (90, 5, False)
    assert start.candidates == (model.config_,)
    assert [epoch for _, epoch, _, _ in epochs] == reports == list(range(12))
    assert [means["loss"] for _, _, means, _ in epochs] == pytest.approx(model.history_.loss)
    assert [lr for *_, (lr,) in epochs] == model.history_.lr
    assert end is model
    assert_same(model, ProtoPINVClassifier(**SMALL).fit(*blobs))


def test_the_model_that_is_told_of_is_whole(blobs, tmp_path: Path) -> None:
    class Keep(Callback):
        def on_train_end(self, model: Any) -> None:
            model.save(tmp_path / "model.safetensors")

    X, y = blobs
    folder = tmp_path / "rows"
    folder.mkdir()
    columns = {f"f{number}": column for number, column in enumerate(X.T)}
    pq.write_table(pa.table({**columns, "kind": y}), folder / "a.parquet")
    model = ProtoPINVClassifier(**SMALL).fit(open_rows(folder, "kind"), callbacks=[Keep()])
    kept = load(tmp_path / "model.safetensors")
    assert kept.classes_.tolist() == [0, 1, 2]
    assert list(kept.feature_names_in_) == list(columns) == list(model.feature_names_in_)


@pytest.mark.parametrize("where", ["on_train_begin", "on_epoch_end", "on_train_end"])
def test_one_that_fails_warns_once_and_does_no_harm(blobs, where: str) -> None:
    listener, failing = Listener(), Failing(where, RuntimeError("the disk\nis full"))
    model = ProtoPINVClassifier(**SMALL)
    with pytest.warns(CallbackWarning) as caught:
        model.fit(*blobs, callbacks=[failing, listener])
    (text,) = {str(each.message) for each in caught}
    assert text == (
        "A callback must not fail. Failing did (RuntimeError: the disk). Training goes on without "
        "it."
    )
    assert len(caught) == 1
    assert isinstance(failing.told[-1], RuntimeError)  # it may let go of what it holds
    assert len(listener.told) == 14
    assert_same(model, ProtoPINVClassifier(**SMALL).fit(*blobs))


def test_ctrl_c_in_a_callback_still_interrupts(blobs) -> None:
    failing = Failing("on_epoch_end", KeyboardInterrupt())
    with pytest.warns(match="interrupted after 1 epochs"):
        model = ProtoPINVClassifier(**SMALL).fit(*blobs, callbacks=[failing])
    assert model.history_.ending == "interrupted"
    assert failing.told[-1] is model


def test_an_error_of_the_training_is_told_and_raised(blobs) -> None:
    listener = Listener()

    def refuse(_: EpochReport) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ProtoPINVClassifier(**SMALL).fit(*blobs, observer=refuse, callbacks=[listener])
    assert isinstance(listener.told[-1], ZeroDivisionError)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([EarlyStop], "Got the class EarlyStop"),
        ([print], "give a function as observer="),
        (EarlyStop(), "must be a list"),
        (3, "must be a list"),
    ],
)
def test_what_is_no_callback_is_refused(blobs, given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ProtoPINVClassifier(**SMALL).fit(*blobs, callbacks=given)


def test_looks_are_numbered_and_the_one_that_is_kept_goes_on(blobs, tmp_path: Path) -> None:
    X, y = blobs
    listener, file = Listener(), tmp_path / "history.jsonl"
    stop = EarlyStop(patience=1, min_delta=1e9)
    model = ProtoPINVClassifier(**LOOKED_AT)
    model.fit(X, y, callbacks=[listener, HistoryFile(file), stop])
    start, *epochs, _ = listener.told
    looks = [look for look, *_ in epochs]
    assert len(start.candidates) == len(model.candidates_) > 1
    assert {look for look in looks if look is not None} == set(range(len(start.candidates)))
    proper = [epoch for look, epoch, *_ in epochs if look is None]
    assert proper[0] == looks.count(0)  # where its look has ended
    # patience counts from there: one epoch to compare with, one that is no better
    assert len(proper) == 2
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["candidate"] for row in rows] == [None if n is None else n + 1 for n in looks]


def test_early_stop_waits_for_its_patience(blobs) -> None:
    for options, ended in (
        ({"patience": 4, "min_delta": 1e9}, 5),
        ({"patience": 4, "monitor": "loss", "min_delta": 1e9}, 5),
        ({"patience": 12}, 12),
    ):
        model = ProtoPINVClassifier(**SMALL).fit(*blobs, callbacks=[EarlyStop(**options)])
        assert model.n_iter_ == ended
        assert model.history_.ending == ("stopped early" if ended < 12 else "finished")


def test_early_stop_watches_rows_that_are_held_out() -> None:
    random = np.random.default_rng(0)
    X, y = random.standard_normal((60, 5)), random.integers(0, 2, 60)  # nothing to be learned
    options = {**SMALL, "max_epochs": 200, "lr": 0.1, "ridge": 0.01}
    watched = {**options, "validation_fraction": 0.3}
    models = [
        ProtoPINVClassifier(**each).fit(X, y, callbacks=[EarlyStop(5, monitor=monitor)])
        for each, monitor in (
            (watched, "auto"),
            (watched, "validation_loss"),
            (watched, "validation_score"),
            (watched, "loss"),
        )
    ]
    auto, loss, score, training = (model.n_iter_ for model in models)
    assert auto == loss < training
    assert score < training
    held = models[0].history_.validation_loss
    assert min(held) == held[-6]  # five epochs before the last
    with pytest.warns(CallbackWarning, match="This training holds out none"):
        ProtoPINVClassifier(**SMALL).fit(X, y, callbacks=[EarlyStop(monitor="validation_loss")])


@pytest.mark.parametrize("options", [{"patience": 0}, {"min_delta": -1}, {"monitor": "accuracy"}])
def test_early_stop_refuses_what_it_cannot_do(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        EarlyStop(**options)


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_a_history_file_holds_what_the_history_does(blobs, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"history{ending}"
    for _ in range(2):  # a second training writes it anew
        model = ProtoPINVRegressor(**SMALL, validation_fraction=0.2)
        model.fit(*blobs, callbacks=[HistoryFile(file)])
    if ending == ".csv":
        with file.open(newline="") as stream:
            rows: list[Any] = list(csv.DictReader(stream))
    else:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [int(row["epoch"]) for row in rows] == list(range(1, 13))
    history = model.history_
    for name in ("loss", "lr", "validation_loss", "validation_score"):
        assert [float(row[name]) for row in rows] == pytest.approx(getattr(history, name))
    ridges = [[float(row[f"ridge_{n}"]) for n in (1, 2)] for row in rows]
    assert np.allclose(ridges, history.ridge)
    seconds = [float(row["seconds"]) for row in rows]
    assert seconds == sorted(seconds)


def test_a_history_file_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Got history\.txt"):
        HistoryFile(tmp_path / "history.txt")
    with pytest.raises(OutputError, match="There is no"):
        HistoryFile(tmp_path / "nowhere" / "history.csv")


def test_a_killed_run_keeps_its_epochs_and_a_resumed_one_goes_on(tmp_path: Path) -> None:
    """Looks too: the lines are those of a run that nothing has stopped, in any order of looks."""
    program = f"""
import sys, time
import numpy as np
from protopinv import ProtoPINVClassifier
from protopinv.callbacks import HistoryFile
path, pace = sys.argv[1:]
X = np.random.default_rng(0).standard_normal((120, 4))
slow = (lambda report: time.sleep(0.02)) if pace == "slow" else None
ProtoPINVClassifier(**{LOOKED_AT!r}).fit(
    X, X[:, 0] * X[:, 1] > 0, observer=slow,
    callbacks=[HistoryFile(path + ".csv"), HistoryFile(path + ".jsonl")],
    checkpoint=path + ".checkpoint", checkpoint_every=3, resume=True)
"""

    def started(name: str, pace: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", program, str(tmp_path / name), pace])

    def of_csv(name: str) -> list[list[str]]:
        text = (tmp_path / f"{name}.csv").read_text().splitlines()
        return sorted(row[:-1] for row in csv.reader(text))

    def of_json(name: str) -> list[list[str]]:
        rows = map(json.loads, (tmp_path / f"{name}.jsonl").read_text().splitlines())
        return sorted([str(row[name]) for name in row if name != "seconds"] for row in rows)

    whole = started("whole", "quick")
    killed, file = started("killed", "slow"), tmp_path / "killed.csv"
    deadline = time.monotonic() + 60
    while not file.exists() or len(file.read_text().splitlines()) < 8:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    for kept in (file, file.with_suffix(".jsonl")):
        assert len(kept.read_text().splitlines()) >= 7
        with kept.open("a") as stream:
            stream.write("cut o")  # as a kill in the middle of a line would leave it
    again = started("killed", "quick")
    assert again.wait() == whole.wait() == 0
    assert of_csv("killed") == of_csv("whole")
    assert of_json("killed") == of_json("whole")


def test_only_the_first_rank_writes_and_all_of_them_stop(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((600, 3))
    folder = tmp_path / "rows"
    folder.mkdir()
    columns = {f"x{number}": column for number, column in enumerate(X.T)}
    table = pa.table({**columns, "y": (X[:, 0] > 0).astype(int)})
    pq.write_table(table, folder / "a.parquet", row_group_size=100)
    program = tmp_path / "program.py"
    program.write_text(f"""
import os, pathlib, sys
from protopinv import ProtoPINVClassifier, open_rows
from protopinv.callbacks import Callback, EarlyStop, HistoryFile
class Told(Callback):
    def on_train_end(self, model):
        pathlib.Path(sys.argv[1], "told-" + os.environ["RANK"]).touch()
model = ProtoPINVClassifier(**{SMALL!r})
model.fit(open_rows(sys.argv[2], "y"), callbacks=[
    HistoryFile(sys.argv[1] + "/history.csv"), EarlyStop(3, min_delta=1e9), Told()])
pathlib.Path(sys.argv[1], f"epochs-{{os.environ['RANK']}}-{{model.n_iter_}}").touch()
""")
    torchrun = shutil.which("torchrun", path=str(Path(sys.executable).parent)) or "torchrun"
    command = [torchrun, "--standalone", "--nproc-per-node", "2", str(program)]
    subprocess.run([*command, str(tmp_path), str(folder)], check=True, timeout=240)
    made = {path.name for path in tmp_path.iterdir()} - {"rows", "program.py"}
    assert made == {"history.csv", "told-0", "epochs-0-4", "epochs-1-4"}
    with (tmp_path / "history.csv").open(newline="") as stream:
        assert [row["epoch"] for row in csv.DictReader(stream)] == ["1", "2", "3", "4"]


def test_tensorboard_reads_back_what_was_written(blobs, tmp_path: Path) -> None:
    reading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed: pip install 'protopinv[tensorboard]'",
    )
    model = ProtoPINVClassifier(**SMALL, validation_fraction=0.2)
    for _ in range(2):  # a second training in the same folder takes the place of the first
        model.fit(*blobs, callbacks=[TensorBoard(tmp_path)])
    events = reading.EventAccumulator(str(tmp_path)).Reload()
    for name in ("loss", "validation_loss", "validation_score", "lr"):
        points = events.Scalars(name)
        assert [point.step for point in points] == list(range(1, 13))
        assert [point.value for point in points] == pytest.approx(getattr(model.history_, name))
    assert [p.value for p in events.Scalars("ridge_2")] == pytest.approx(
        [ridge for _, ridge in model.history_.ridge]
    )
    (text,) = events.Tensors("configuration/text_summary")[-1:]
    assert b"|n_prototypes|12|" in text.tensor_proto.string_val[0]


def test_looks_are_runs_of_their_own_in_tensorboard(blobs, tmp_path: Path) -> None:
    reading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed: pip install 'protopinv[tensorboard]'",
    )
    model = ProtoPINVClassifier(**LOOKED_AT).fit(*blobs, callbacks=[TensorBoard(tmp_path)])
    looks = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert looks == [f"candidate {number}" for number in range(1, len(model.candidates_) + 1)]
    steps = {
        place: [p.step for p in reading.EventAccumulator(str(place)).Reload().Scalars("loss")]
        for place in (tmp_path / "candidate 1", tmp_path)
    }
    look, kept = steps.values()
    assert look[0] == 1
    assert kept == list(range(screening_epochs(20, 1) + 1, 21))


def test_mlflow_holds_parameters_metrics_and_the_model(blobs, tmp_path: Path, monkeypatch) -> None:
    mlflow = pytest.importorskip(
        "mlflow", reason="mlflow is not installed: pip install 'protopinv[mlflow]'"
    )
    from protopinv.callbacks import MLflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # files are on their way out there
        model = ProtoPINVClassifier(**SMALL, validation_fraction=0.2)
        model.fit(*blobs, callbacks=[MLflow("first")])
        assert mlflow.active_run() is None
        with mlflow.start_run() as own:
            looked_at = ProtoPINVClassifier(**LOOKED_AT).fit(*blobs, callbacks=[MLflow()])
            assert mlflow.active_run().info.run_id == own.info.run_id
        runs = mlflow.search_runs(output_format="list")
        client = mlflow.MlflowClient()
        first = next(run for run in runs if run.info.run_name == "first")
        second = client.get_run(own.info.run_id)
        points = client.get_metric_history(first.info.run_id, "validation_loss")
        (artefact,) = client.list_artifacts(first.info.run_id)
        file = client.download_artifacts(first.info.run_id, artefact.path, str(tmp_path))
    assert (first.info.status, second.info.status) == ("FINISHED", "FINISHED")
    assert first.data.params["n_prototypes"] == "12"
    assert first.data.params["rows"] == "90"
    assert [p.value for p in points] == pytest.approx(model.history_.validation_loss)
    assert [p.step for p in points] == list(range(1, 13))
    assert_same(load(file), model)
    assert second.data.params["activation"] == looked_at.config_.activation
    assert {"loss", "candidate_1/loss", "candidate_2/loss"} <= set(second.data.metrics)


@pytest.mark.parametrize("name", ["TensorBoard", "MLflow"])
def test_without_its_package_the_extra_is_named_before_any_work(name: str) -> None:
    program = (  # a process of its own: what is imported stays
        f"import sys; sys.modules['{name.lower()}'] = None\n"
        f"from protopinv.callbacks import {name}\n"
        f"{name}('runs')"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert f"pip install 'protopinv[{name.lower()}]'" in result.stderr
