"""Tuning: it finds, it resumes, it gives up poor trials, it saves a model."""

import json
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, load, tune
from protopinv.errors import (
    CheckpointWarning,
    ConfigError,
    DataFileError,
    OutputError,
    TrainingError,
)
from protopinv.estimators import ConvStem

SHORT = ProtoPINVClassifier(max_epochs=30, device="cpu")


def small_space(trial: Any, n_rows: int) -> dict[str, Any]:
    """Six prototypes with a rate from useless to good."""
    return {
        "n_prototypes": 6,
        "hidden_sizes": (8,),
        "lr": trial.suggest_float("lr", 1e-4, 0.1, log=True),
    }


def test_the_winner_is_the_best_trial_trained_on_all_rows(blobs, tmp_path: Path) -> None:
    X, y = blobs
    found = tune(X, y, n_trials=8, estimator=SHORT, space=small_space)
    assert found.n_trials == 8
    assert found.score > 0.9
    assert found.model.score(X, y) > 0.9
    assert found.model.get_params()["lr"] == found.parameters["lr"] > 1e-3
    found.model.save(tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").get_params()["lr"] == found.parameters["lr"]


def test_the_same_seed_finds_the_same(blobs) -> None:
    X, y = blobs
    first, second = (tune(X, y, n_trials=4, estimator=SHORT, space=small_space) for _ in range(2))
    assert first.parameters == second.parameters
    np.testing.assert_array_equal(first.model.predict_proba(X), second.model.predict_proba(X))


def test_a_search_goes_on_where_it_stopped(blobs, tmp_path: Path) -> None:
    X, y = blobs
    file = tmp_path / "study.log"
    chosen = {"study_file": file, "estimator": SHORT, "space": small_space}
    first = tune(X, y, n_trials=3, **chosen)
    size = file.stat().st_size
    more = tune(X, y, n_trials=5, **chosen)
    assert (first.n_trials, more.n_trials) == (3, 5)
    assert more.score >= first.score
    assert file.stat().st_size > size
    again = tune(X, y, n_trials=5, **chosen)
    assert again.n_trials == 5
    assert again.parameters == more.parameters


def test_poor_trials_are_given_up(blobs) -> None:
    """A rate of a millionth learns nothing; the pruner sees that after its warm-up."""
    X, y = blobs
    rates = iter([0.1] * 6 + [1e-6] * 4)

    def space(trial: Any, n_rows: int) -> dict[str, Any]:
        return {**small_space(trial, n_rows), "lr": next(rates), "output_init": "normal"}

    long = ProtoPINVClassifier(max_epochs=60, device="cpu")
    found = tune(X, y, n_trials=10, estimator=long, space=space)
    assert found.n_pruned >= 2
    assert found.parameters["lr"] == 0.1


def test_a_trial_that_cannot_be_trained_is_passed_over(blobs) -> None:
    X, y = blobs
    calls = iter(range(100))

    def space(trial: Any, n_rows: int) -> dict[str, Any]:
        if next(calls) == 0:
            raise TrainingError("The loss must stay finite.")
        return {**small_space(trial, n_rows), "lr": 0.05}

    assert tune(X, y, n_trials=2, estimator=SHORT, space=space).score > 0.9


def test_the_default_space_is_valid_everywhere(blobs) -> None:
    X, y = blobs
    found = tune(X, y, n_trials=2, estimator=ProtoPINVClassifier(device="cpu"))
    assert set(found.parameters) <= set(ProtoPINVClassifier().get_params())
    assert found.model.config_.early_stopping == "cross"


def test_folds_that_train_beside_a_trial_score_it(blobs) -> None:
    X, y = blobs
    found = tune(X, y, n_trials=1, estimator=SHORT, space=small_space, random_state=3)
    alone = ProtoPINVClassifier(**SHORT.get_params()).set_params(
        **found.parameters, early_stopping="cross", random_state=3
    )
    assert found.score == alone.fit(X, y).history_.kept_score
    np.testing.assert_array_equal(found.model.predict_proba(X), alone.predict_proba(X))


def test_who_says_how_to_stop_is_scored_on_a_fifth_of_the_rows(blobs) -> None:
    X, y = blobs
    all_epochs = ProtoPINVClassifier(max_epochs=30, early_stopping=False, device="cpu")
    found = tune(X, y, n_trials=1, estimator=all_epochs, space=small_space)
    assert found.model.n_iter_ == 30
    assert (found.score * len(y) / 5) % 1 == pytest.approx(0)


def test_numbers_are_searched_for_by_r2(blobs) -> None:
    X, y = blobs
    short = ProtoPINVRegressor(max_epochs=30, device="cpu")
    found = tune(X, X[:, 0] * 3 + 7, n_trials=3, estimator=short, space=small_space)
    assert isinstance(found.model, ProtoPINVRegressor)
    assert 0.5 < found.score <= 1

    def for_classes(trial: Any, n_rows: int) -> dict[str, Any]:
        return {**small_space(trial, n_rows), "label_smoothing": 0.1}

    whole = tune(X, y.astype(float), n_trials=1, estimator=short, space=for_classes)
    assert "label_smoothing" not in whole.parameters


def test_several_labels_are_searched_for_by_the_share_that_is_right(blobs) -> None:
    X, y = blobs
    labels = np.eye(3, dtype=int)[y]
    found = tune(X, labels, n_trials=3, estimator=SHORT, space=small_space)
    assert found.score > 0.9
    assert found.model.predict(X).shape == labels.shape


def test_a_space_may_reach_into_a_stem() -> None:
    images = np.random.RandomState(0).rand(60, 8, 8)
    y = np.arange(60) % 2
    base = ProtoPINVClassifier(stem=ConvStem("random", filters=2, patch=3, pool=2), device="cpu")
    base.set_params(max_epochs=2)

    def space(trial: Any, n_rows: int) -> dict[str, Any]:
        filters = trial.suggest_int("filters", 3, 4)
        return {**small_space(trial, n_rows), "stem__filters": filters}

    found = tune(images, y, n_trials=1, estimator=base, space=space)
    assert found.model.stem.filters == found.parameters["stem__filters"]


def test_trials_may_stop_early_by_themselves(blobs) -> None:
    X, y = blobs
    early = ProtoPINVClassifier(max_epochs=30, early_stopping=True, device="cpu")
    found = tune(X, y, n_trials=2, estimator=early, space=small_space)
    assert found.model.config_.early_stopping is True
    assert found.score > 0.5


def test_another_seed_searches_elsewhere(blobs) -> None:
    chosen = {"n_trials": 1, "estimator": SHORT, "space": small_space}
    first, same, other = (tune(*blobs, **chosen, random_state=seed) for seed in (0, 0, 1))
    assert first.parameters == same.parameters != other.parameters
    assert other.model.get_params()["random_state"] == 1


@pytest.mark.parametrize("fails", [False, True], ids=["a search", "a search that fails"])
def test_optuna_talks_afterwards_as_it_did_before(blobs, fails: bool) -> None:
    optuna = pytest.importorskip("optuna")

    def space(trial: Any, n_rows: int) -> dict[str, Any]:
        if fails:
            raise LookupError("a defect of the space")
        return small_space(trial, n_rows)

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.DEBUG)
    try:
        with pytest.raises(LookupError) if fails else nullcontext():
            tune(*blobs, n_trials=1, estimator=SHORT, space=space)
        assert optuna.logging.get_verbosity() == optuna.logging.DEBUG
    finally:
        optuna.logging.set_verbosity(before)


@pytest.mark.parametrize(
    "content",
    [
        b"f0,f1,kind\n1,2,ant\n",
        b"no line ends here",
        b'{"lr": 0.1}\n',
        b"[1, 2]\n",
        b"\x80\xff\x00\n",
        b'{"op_code":0}\n',
        b'{"op_code":0,"worker_id":"w","study_name":"protopinv-3"}\n{"op_c\n{"op_code":9}\n',
    ],
    ids=["a table", "text", "another JSON", "a list", "bytes", "half an entry", "cut within"],
)
def test_a_file_that_is_no_study_is_refused_and_left_alone(
    blobs, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "study.log"
    file.write_bytes(content)
    with pytest.raises(DataFileError, match=r"A study must be a file.*study\.log is neither"):
        tune(*blobs, n_trials=1, estimator=SHORT, space=small_space, study_file=file)
    assert file.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["study.log"]


def other_space(trial: Any, n_rows: int) -> dict[str, Any]:
    """The same under another name."""
    return small_space(trial, n_rows)


@pytest.fixture(scope="module")
def begun(blobs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of two trials."""
    file = tmp_path_factory.mktemp("study") / "study.log"
    tune(*blobs, n_trials=2, estimator=SHORT, space=small_space, study_file=file)
    return file


NUMBERS = ProtoPINVRegressor(max_epochs=30, device="cpu")
OTHERS: dict[str, tuple[str, Any]] = {
    "rows": ("other rows", lambda X, y: (X + 1, y, SHORT, small_space)),
    "columns": ("other rows", lambda X, y: (X[:, :4], y, SHORT, small_space)),
    "a frame": ("other rows", lambda X, y: (pl.DataFrame(X), y, SHORT, small_space)),
    "target": ("another target", lambda X, y: (X, np.roll(y, 1), SHORT, small_space)),
    "task": ("another task", lambda X, y: (X, y, NUMBERS, small_space)),
    "space": ("another space", lambda X, y: (X, y, SHORT, other_space)),
    "parameters": (
        "other parameters",
        lambda X, y: (X, y, ProtoPINVClassifier(max_epochs=31), small_space),
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_study_goes_on_with_what_it_was_begun_with(blobs, begun: Path, other: str) -> None:
    words, changed = OTHERS[other]
    X, y, estimator, space = changed(*blobs)
    before = begun.read_bytes()
    with pytest.raises(DataFileError, match=f"goes on with the rows.*{words}.*another file"):
        tune(X, y, n_trials=3, estimator=estimator, space=space, study_file=begun)
    assert begun.read_bytes() == before


def test_a_study_that_does_not_say_what_it_is_of_is_not_gone_on_with(
    blobs, begun: Path, tmp_path: Path
) -> None:
    lines = begun.read_bytes().splitlines(keepends=True)
    old = tmp_path / "old.log"
    old.write_bytes(b"".join(line for line in lines if b"fingerprint" not in line))
    with pytest.raises(DataFileError, match="goes on with the rows"):
        tune(*blobs, n_trials=3, estimator=SHORT, space=small_space, study_file=old)


def test_a_line_that_was_cut_off_is_dropped_and_the_search_goes_on(
    blobs, begun: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.log"
    cut.write_bytes(begun.read_bytes() + b'{"op_code":6,"worker')
    chosen = {"estimator": SHORT, "space": small_space, "study_file": cut}
    with pytest.warns(CheckpointWarning, match=r"The last line of .*cut\.log was cut off"):
        assert tune(*blobs, n_trials=3, **chosen).n_trials == 3
    assert tune(*blobs, n_trials=3, **chosen).n_trials == 3


def test_a_study_on_a_full_disk_stays_whole_and_goes_on_later(blobs, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    chosen = {"estimator": SHORT, "space": small_space, "study_file": tmp_path / "study.log"}
    first = tune(*blobs, n_trials=1, **chosen)
    size = (tmp_path / "study.log").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 700, limits[1]))  # within the next trial
    try:
        with pytest.raises(OutputError, match=r"A study must be writable.*Make room"):
            tune(*blobs, n_trials=3, **chosen)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert (tmp_path / "study.log").read_bytes().endswith(b"\n")
    found = tune(*blobs, n_trials=3, **chosen)
    assert found.n_trials == 3
    assert found.score >= first.score


def test_who_was_killed_while_writing_holds_nobody_up(blobs, tmp_path: Path) -> None:
    """One that has locked the study, and one of an earlier version that left a file as its lock."""
    pytest.importorskip("fcntl")
    file = tmp_path / "study.log"
    program = "import sys, time; from protopinv.journal import *; from pathlib import Path"
    program += (
        "\nwith Journal(Path(sys.argv[1]))._alone(): print('held', flush=True); time.sleep(99)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(file)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.communicate()
    (tmp_path / "study.log.lock").symlink_to(file)
    started = time.monotonic()
    tune(*blobs, n_trials=1, estimator=SHORT, space=small_space, study_file=file)
    assert time.monotonic() - started < 20  # such a file used to be waited for thirty seconds


def test_control_c_while_a_trial_is_taken_down_ends_the_search(
    blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the very moment its entry is written, in which Optuna has an error of its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    study = tmp_path / "study.log"

    def fsync(_: Any) -> None:
        if b'"state":1' in study.read_bytes():  # a finished trial
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("protopinv.journal.os.fsync", fsync)
    try:
        with pytest.warns(UserWarning, match="The search was interrupted"):
            found = tune(*blobs, n_trials=9, estimator=SHORT, space=small_space, study_file=study)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (found.interrupted, found.n_trials) == (True, 1)


def test_a_study_needs_a_place(blobs, tmp_path: Path) -> None:
    for file in (tmp_path, tmp_path / "no" / "study.log"):
        with pytest.raises(OutputError, match="An output"):
            tune(*blobs, n_trials=1, estimator=SHORT, space=small_space, study_file=file)


def test_bad_calls_are_named(blobs) -> None:
    with pytest.raises(ConfigError, match=r"n_trials must be 1 or more\. Got 0"):
        tune(*blobs, n_trials=0)


def test_the_command_saves_the_winner(blobs, tmp_path: Path) -> None:
    X, y = blobs
    header = ",".join([*(f"f{i}" for i in range(5)), "kind"])
    table = np.column_stack([X, y])
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header=header, comments="", fmt="%.6g")
    command = [sys.executable, "-m", "protopinv", "tune", str(tmp_path / "t.csv"), "--json"]
    command += ["--target", "kind", "--trials", "2"]
    command += ["--study", str(tmp_path / "s.log"), "-o", str(tmp_path / "m.safetensors")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    answer = json.loads(result.stdout)
    assert answer["trials"] == 2
    model = load(tmp_path / "m.safetensors")
    assert model.get_params()["lr"] == answer["lr"]
    assert model.feature_names_in_.tolist() == [f"f{i}" for i in range(5)]


def test_rows_of_hardly_any_weight_do_not_count_in_scores(blobs) -> None:
    X, y = blobs
    wrong = np.arange(len(y)) % 2 == 1
    targets = np.where(wrong, (y + 1) % 3, y)
    weight = np.where(wrong, 1e-9, 1.0)
    for early_stopping in (True, "cross"):
        base = ProtoPINVClassifier(max_epochs=30, device="cpu", early_stopping=early_stopping)
        chosen = {"n_trials": 3, "estimator": base, "space": small_space}
        found = tune(X, targets, weight, **chosen)
        assert found.score > 0.95
        assert found.model.score(X, y) > 0.95
        assert tune(X, targets, **chosen).score < 0.7


def test_weights_belong_to_a_study(blobs, tmp_path: Path) -> None:
    X, y = blobs
    chosen = {"study_file": tmp_path / "s.log", "estimator": SHORT, "space": small_space}
    tune(X, y, np.ones(90), n_trials=1, **chosen)
    with pytest.raises(DataFileError, match="has other rows"):
        tune(X, y, np.arange(90) + 1.0, n_trials=2, **chosen)


@pytest.mark.parametrize("widths", [16, (9,), (9, 8, 7)])
def test_what_is_fixed_is_not_searched(blobs, tmp_path: Path, widths: Any) -> None:
    X, y = blobs
    base = ProtoPINVClassifier(
        hidden_sizes=widths, lr=0.03, activation="gelu", max_epochs=5, device="cpu"
    )
    fixed = ["hidden_sizes", "lr", "max_epochs"]
    chosen = {"n_trials": 2, "estimator": base, "study_file": tmp_path / "s.log"}
    found = tune(X, y, fixed=fixed, **chosen)
    assert not {*fixed} & {*found.parameters}
    model = found.model.get_params()
    assert (model["hidden_sizes"], model["lr"], model["max_epochs"]) == (widths, 0.03, 5)
    assert len(found.model.config_.ridges) == np.size(widths) + 1
    with pytest.raises(DataFileError, match="has another space"):
        tune(X, y, fixed=fixed[1:], **chosen)
    with pytest.raises(ConfigError, match="fixed must name parameters"):
        tune(X, y, fixed=["width"], estimator=base)


def test_a_ridge_for_each_layer_fixes_their_number(blobs) -> None:
    X, y = blobs
    base = ProtoPINVClassifier(ridge=(1.0, 2.0, 3.0), max_epochs=5, device="cpu")
    found = tune(X, y, n_trials=2, estimator=base, fixed=["ridge", "max_epochs"])
    assert len(found.model.config_.widths) == 2
