"""A training that was killed goes on as if nothing had happened, or says why it cannot."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from protopinv import ArrayRows, ProtoPINVClassifier
from protopinv.errors import CheckpointError, CheckpointWarning, ConfigError, OutputError
from protopinv.train import checkpoint as module
from protopinv.train.checkpoint import Every, previous

SMALL = {"n_prototypes": 20, "hidden_sizes": 16, "random_state": 3, "device": "cpu"}
KINDS = {
    "full batch": {"batch_size": None, "early_stopping": False, "max_epochs": 30},
    "mini-batches": {
        "batch_size": 100,
        "early_stopping": True,
        "max_epochs": 6,
        "input_noise": 0.1,
        "hidden_dropout": 0.1,
        "averaging": 0.9,
    },
    "folds": {"max_epochs": 12, "batch_size": None},
    "members": {"n_members": 3, "early_stopping": False, "max_epochs": 20, "optimizer": "muon"},
    "streamed": {"batch_size": 100, "early_stopping": True, "max_epochs": 5, "mixup": 0.1},
}


class KilledError(BaseException):
    """What stands for kill -9 where a process of its own would take too long."""


def rows() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).standard_normal((900, 5))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


def given(kind: str) -> tuple:
    X, y = rows()
    return (ArrayRows(X, y, memory=0),) if kind == "streamed" else (X, y)


def numbers(model) -> list[np.ndarray]:
    bank = model.bank_
    parts = [bank.inputs, *bank.hidden, bank.outputs, *model.network_.weights]
    return [part.numpy() for part in parts]


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_that_was_killed_anywhere_goes_on_bit_for_bit(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ProtoPINVClassifier(**SMALL, **KINDS[kind])
    whole = model.fit(*given(kind))
    expected, history, tried = numbers(whole), whole.history_, whole.tried_
    written = module.Checkpoints.write
    left = 0

    def write_and_die(self) -> None:
        nonlocal left
        written(self)
        left -= 1
        if left == 0:
            raise KilledError

    monkeypatch.setattr(module.Checkpoints, "write", write_and_die)
    path = tmp_path / "run.checkpoint"
    random = np.random.default_rng(1)
    for _ in range(4):
        left = int(random.integers(1, 12))
        try:
            ProtoPINVClassifier(**SMALL, **KINDS[kind]).fit(
                *given(kind), checkpoint=path, checkpoint_every="0.000001s", resume=True
            )
        except KilledError:
            assert previous(path).exists() or left == 0
    left = 0
    again = ProtoPINVClassifier(**SMALL, **KINDS[kind]).fit(
        *given(kind), checkpoint=path, checkpoint_every=1000, resume=True
    )
    for mine, theirs in zip(numbers(again), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert again.history_.loss == history.loss
    assert again.history_.validation_score == history.validation_score
    assert [each.held_loss for each in again.tried_] == [each.held_loss for each in tried]


PROGRAM = """
import sys, numpy as np
from safetensors.numpy import save_file
sys.path.insert(0, {folder!r})
import test_checkpoint as t
model = t.ProtoPINVClassifier(**t.SMALL, **{{**t.KINDS["mini-batches"], "max_epochs": 40}})
model.fit(*t.given("streamed"), checkpoint={path!r}, checkpoint_every="0.02s", resume=True)
save_file({{str(i): np.ascontiguousarray(n) for i, n in enumerate(t.numbers(model))}}, {out!r})
"""


def started(tmp_path: Path, out: str) -> subprocess.Popen:
    program = PROGRAM.format(
        folder=str(Path(__file__).parent),
        path=str(tmp_path / "run.checkpoint"),
        out=str(tmp_path / out),
    )
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program], stderr=subprocess.PIPE, text=True
    )


def wait_for(path: Path, process: subprocess.Popen) -> None:
    for _ in range(3000):
        if path.exists() or process.poll() is not None:
            return
        time.sleep(0.01)


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_that_gets_a_signal_leaves_a_checkpoint_to_go_on_from(
    kind: signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "run.checkpoint"
    process = started(tmp_path, "first")
    wait_for(path, process)
    process.send_signal(kind)
    process.communicate(timeout=60)
    if kind == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:  # training ended early, and the program after it went on
        assert process.returncode == 0
    again = started(tmp_path, "second")
    _, errors = again.communicate(timeout=120)
    assert again.returncode == 0, errors
    expected = ProtoPINVClassifier(**SMALL, **{**KINDS["mini-batches"], "max_epochs": 40})
    expected.fit(*given("streamed"))
    found = load_file(tmp_path / "second")
    for place, mine in enumerate(numbers(expected)):
        np.testing.assert_array_equal(mine, found[str(place)])


def test_a_checkpoint_of_something_else_is_refused_and_what_differs_is_said(tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    X, y = rows()
    options = {**SMALL, **KINDS["full batch"]}
    ProtoPINVClassifier(**options).fit(X, y, checkpoint=path, checkpoint_every=5)

    def going_on(X=X, y=y, **changed):
        model = ProtoPINVClassifier(**{**options, **changed})
        return model.fit(X, y, checkpoint=path, checkpoint_every=5, resume=True)

    with pytest.raises(CheckpointError, match=r"another configuration: 0\.lr was .* and is 0\.01"):
        going_on(lr=0.01)
    with pytest.raises(CheckpointError, match=r"other rows: rows was 900 and is 800"):
        going_on(X[:800], y[:800])
    with pytest.raises(CheckpointError, match="other rows: numbers was"):
        going_on(X + 1e-9)
    with pytest.raises(CheckpointError, match="seed was"):
        going_on(random_state=4)
    # who has no seed takes that of the checkpoint
    assert going_on(random_state=None).history_.n_epochs == 30


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    X, y = rows()
    model = ProtoPINVClassifier(**SMALL, **KINDS["full batch"])
    expected = numbers(model.fit(X, y, checkpoint=path, checkpoint_every=5))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.warns(CheckpointWarning, match=r"damaged .*previous"):
        model.fit(X, y, checkpoint=path, checkpoint_every=100, resume=True)
    for mine, theirs in zip(numbers(model), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    path.write_bytes(b"nothing")
    previous(path).write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="must be readable"):
        model.fit(X, y, checkpoint=path, resume=True)


def test_a_checkpoint_holds_no_pickle_and_every_tensor_has_a_name(tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    model = ProtoPINVClassifier(**SMALL, **KINDS["folds"])
    model.fit(*rows(), checkpoint=path, checkpoint_every=3)
    length = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + length])
    state = json.loads(header["__metadata__"]["protopinv"])
    assert state["format"] == 1
    names = set(header) - {"__metadata__"}
    assert {"runs.0.step.trained.0", "runs.0.best.score", "runs.0.choice.best.1"} <= names


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_stops_training_and_spares_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.checkpoint"
    X, y = rows()
    model = ProtoPINVClassifier(**SMALL, **KINDS["full batch"])
    model.fit(X, y, checkpoint=path, checkpoint_every=5)
    before = path.read_bytes()
    saved = module.save_file

    def to_a_full_disk(tensors, temporary, metadata) -> None:
        saved(tensors, temporary, metadata=metadata)
        with Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"x")

    monkeypatch.setattr(module, "save_file", to_a_full_disk)
    with pytest.raises(OutputError, match=r"written whole.*No space left"):
        model.fit(X, y, checkpoint=path, checkpoint_every=5)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_how_often_is_a_number_of_epochs_or_a_time() -> None:
    assert Every.of(3) == Every(epochs=3)
    assert Every.of("7") == Every(epochs=7)
    assert Every.of("30s") == Every(seconds=30)
    assert Every.of("1.5min") == Every(seconds=90)
    assert Every.of("2h") == Every(seconds=7200)
    for wrong in (0, -1, "soon", "0s", "-5min", "", True, None):
        with pytest.raises(ConfigError, match="checkpoint_every must be"):
            Every.of(wrong)
    with pytest.raises(ConfigError, match="needs a checkpoint"):
        ProtoPINVClassifier().fit(*rows(), resume=True)


def test_a_folder_that_cannot_be_written_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="existing folder"):
        ProtoPINVClassifier().fit(*rows(), checkpoint=tmp_path / "no" / "run")
    assert list(tmp_path.iterdir()) == []
