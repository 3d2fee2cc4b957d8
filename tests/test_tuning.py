"""Tuning: it finds, it resumes, it gives up poor trials, it saves a model."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, load, tune
from protopinv.errors import ConfigError, DataFileError, OutputError, TrainingError
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
        b'{"op_code":0,"worker_id":"w","study_name":"protopinv-3","directions":[2]}\n{"op_c',
    ],
    ids=["a table", "text", "another JSON", "a list", "bytes", "half an entry", "cut short"],
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
