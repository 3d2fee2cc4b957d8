"""A training that was killed goes on as if nothing had happened, or says why it cannot."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

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
    expected, history, tried = numbers(whole), whole.history_, whole.candidates_
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
    assert [each.held_loss for each in again.candidates_] == [each.held_loss for each in tried]


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
    with pytest.warns(
        CheckpointWarning, match=r"run.checkpoint cannot .*damaged.*run.checkpoint.previous"
    ):
        model.fit(X, y, checkpoint=path, checkpoint_every=100, resume=True)
    for mine, theirs in zip(numbers(model), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_damaged_checkpoint_never_takes_the_place_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.checkpoint"
    model = ProtoPINVClassifier(**SMALL, **KINDS["full batch"])
    model.fit(*rows(), checkpoint=path, checkpoint_every=5)
    before = previous(path).read_bytes()
    path.write_bytes(b"nothing")

    def die(*_: object) -> None:
        raise KilledError

    # just before the new one is put in its place
    monkeypatch.setattr("protopinv.files._sync", die)
    message = "cannot be used"
    with pytest.raises(KilledError), pytest.warns(CheckpointWarning, match=message):
        model.fit(*rows(), checkpoint=path, checkpoint_every=1, resume=True)
    assert previous(path).read_bytes() == before


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "run.checkpoint"
    model = ProtoPINVClassifier(**SMALL, **KINDS["members"])
    model.fit(*rows(), checkpoint=path, checkpoint_every=10)
    return path.read_bytes()


def test_where_both_checkpoints_are_damaged_the_error_names_both(tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    path.write_bytes(b"nothing")
    previous(path).write_bytes(b"")
    message = r"whole. .*run.checkpoint cannot .* nor can .*run.checkpoint.previous .*start anew"
    with pytest.raises(CheckpointError, match=message):
        ProtoPINVClassifier().fit(*rows(), checkpoint=path, resume=True)
    assert path.read_bytes() == b"nothing"


def test_a_checkpoint_from_before_checksums_is_refused(sound: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    path.write_bytes(sound)
    tensors = load_file(path)
    with safe_open(path, "np") as file:
        state = {**json.loads(file.metadata()["protopinv"]), "format": 1}
    save_file(tensors, path, metadata={"protopinv": json.dumps(state)})
    with pytest.raises(CheckpointError, match="written by a version that gave it no checksum"):
        ProtoPINVClassifier().fit(*rows(), checkpoint=path, resume=True)
    # a later format has a checksum, and says so too
    save_file(tensors, path, metadata={"protopinv": json.dumps(state), "sha256": module.ZEROS})
    path.write_bytes(module._sealed(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"of format 1, where this version reads 4"):
        ProtoPINVClassifier().fit(*rows(), checkpoint=path, resume=True)


def test_after_screening_a_checkpoint_holds_only_the_candidates_that_won(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.checkpoint"
    options = {**SMALL, "max_epochs": 12}
    model = ProtoPINVClassifier(**options).fit(*rows(), checkpoint=path, checkpoint_every=1)
    assert len(model.candidates_) > 1
    runs = {name.split(".")[1] for name in load_file(path) if name.startswith("runs.")}
    order = sorted(
        range(len(model.candidates_)), key=lambda number: model.candidates_[number].held_loss
    )
    best = order[: model.config_.ensemble_size]
    assert len(best) > 1
    assert runs == set(map(str, best))
    begun = module.Checkpoints.watch
    numbers_begun = []

    def watch(self, number: int, run):
        numbers_begun.append(number)
        return begun(self, number, run)

    monkeypatch.setattr(module.Checkpoints, "watch", watch)
    again = ProtoPINVClassifier(**options).fit(*rows(), checkpoint=path, resume=True)
    assert numbers_begun == sorted(best)  # who lost is not trained again
    assert again.candidates_ == model.candidates_
    for mine, theirs in zip(numbers(again), numbers(model), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_checkpoint_holds_no_pickle_and_every_tensor_has_a_name(tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    model = ProtoPINVClassifier(**SMALL, **KINDS["folds"])
    model.fit(*rows(), checkpoint=path, checkpoint_every=3)
    length = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + length])
    state = json.loads(header["__metadata__"]["protopinv"])
    assert state["format"] == 4
    names = set(header) - {"__metadata__"}
    assert {"runs.0.step.trained.0", "runs.0.best.score", "runs.0.choice.best.1"} <= names


FULL = """
import resource, sys, warnings
sys.path.insert(0, {folder!r})
import test_checkpoint as t
from pathlib import Path
path = Path({path!r})
X, y = t.rows()
model = t.ProtoPINVClassifier(**t.SMALL, **t.KINDS["full batch"])
model.fit(X, y, checkpoint=path, checkpoint_every=20)
before = path.read_bytes()
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    whole = t.numbers(model.fit(X, y, checkpoint=path, checkpoint_every=5))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
said = [str(each.message) for each in heard if each.category is t.CheckpointWarning]
assert len(said) == 1, said
assert "was not written" in said[0] and "too large" in said[0], said
assert path.read_bytes() == before
assert [each.name for each in path.parent.iterdir() if each.name != path.name] == []
again = t.numbers(model.fit(X, y, checkpoint=path, resume=True))
assert all((a == b).all() for a, b in zip(again, whole, strict=True))
"""


def test_a_checkpoint_that_does_not_fit_on_the_disk_is_a_warning_and_spares_the_last(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    program = FULL.format(folder=str(Path(__file__).parent), path=str(folder / "run.checkpoint"))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_trouble_with_the_disk_is_told_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.checkpoint"
    sync, calls = os.fsync, 0
    # a checkpoint that is written is synced with its folder
    kinds = [errno.ENOSPC, errno.ENOSPC, errno.EIO, 0, 0, errno.EIO]

    def failing(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls <= len(kinds) and kinds[calls - 1]:
            raise OSError(kinds[calls - 1], os.strerror(kinds[calls - 1]))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    model = ProtoPINVClassifier(**SMALL, **{**KINDS["full batch"], "max_epochs": 5})
    with pytest.warns(CheckpointWarning) as heard:
        model.fit(*rows(), checkpoint=path, checkpoint_every=1)
    said = [str(each.message) for each in heard if each.category is CheckpointWarning]
    assert [("space" in text.split(")")[0]) for text in said] == [True, False, False]
    assert model.history_.n_epochs == 5


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
