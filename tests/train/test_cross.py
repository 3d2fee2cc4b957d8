"""How many epochs: chosen in folds, then trained on all rows."""

import time

import numpy as np
import pytest
import torch

from protopinv import ProtoPINVClassifier, load
from protopinv.baselines import MLPBaselineClassifier
from protopinv.errors import ConfigError
from protopinv.train.config import TrainConfig
from protopinv.train.loop import EpochReport
from protopinv.train.model import best_length, stratified_folds, train_classifier
from protopinv.train.prepare import LabelledRows


def test_folds_hold_every_row_once_and_every_class_evenly() -> None:
    labels = np.array([0] * 41 + [1] * 22 + [2] * 5)
    folds = stratified_folds(labels, 4, seed=0)
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(68))
    counts = np.array([np.bincount(labels[fold], minlength=3) for fold in folds])
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()
    again, other = stratified_folds(labels, 4, seed=0), stratified_folds(labels, 4, seed=1)
    assert all(map(np.array_equal, folds, again))
    assert not all(map(np.array_equal, folds, other))


def test_a_class_with_fewer_rows_than_folds_is_never_held_out() -> None:
    labels = np.array([0] * 20 + [1] * 3 + [2] * 4)
    folds = stratified_folds(labels, 4, seed=0)
    assert set(labels[np.concatenate(folds)]) == {0, 2}


def test_rows_of_rare_classes_only_are_trained_on_to_the_end() -> None:
    assert stratified_folds(np.array([0, 1]), 4, seed=0) == []
    X = np.array([[0.0], [1.0]])
    model = ProtoPINVClassifier(n_prototypes=4, max_epochs=20, early_stopping="cross", random_state=0)
    assert model.fit(X, [0, 1]).n_iter_ == 20


def test_the_best_length_is_the_lowest_mean_but_no_single_lucky_epoch() -> None:
    curve = np.abs(np.arange(100) - 40) / 100 + 1.0
    lucky = curve.copy()
    lucky[80] = 0.5
    assert best_length([curve, curve]) == 41
    assert best_length([lucky, curve]) == 41
    ended = curve[:70]  # its loss had risen for a while, so it counts with its last
    assert best_length([ended, curve]) == 41
    broken = curve.copy()
    broken[60:] = np.nan
    assert best_length([broken, curve]) == 41


def noisy_rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A straight border in ten features, and a third of the labels wrong."""
    random = np.random.RandomState(seed)
    X = random.standard_normal((n, 10))
    y = (X[:, 0] > 0).astype(int)
    wrong = random.random_sample(n) < 0.3
    return X, np.where(wrong, 1 - y, y)


def test_noisy_labels_are_stopped_early_and_it_pays() -> None:
    X, y = noisy_rows(300, 0)
    X_new, _ = noisy_rows(4000, 1)
    truth = (X_new[:, 0] > 0).astype(int)
    chosen = {"hidden_sizes": 64, "max_epochs": 120, "random_state": 0}
    plain = ProtoPINVClassifier(n_prototypes=60, early_stopping=False, **chosen).fit(X, y)
    crossed = ProtoPINVClassifier(n_prototypes=60, early_stopping="cross", **chosen).fit(X, y)
    assert plain.n_iter_ == 120
    assert crossed.n_iter_ < 60
    assert crossed.history_.ending == "stopped early"
    assert crossed.score(X_new, truth) > plain.score(X_new, truth) + 0.05


def test_the_start_of_a_longer_training_is_what_is_trained(blobs) -> None:
    """The schedule is that of all epochs; only its end is left out."""
    X, y = blobs
    chosen = {"hidden_sizes": 12, "max_epochs": 50, "random_state": 0}
    whole = ProtoPINVClassifier(n_prototypes=15, **chosen).fit(X, y)
    crossed = ProtoPINVClassifier(n_prototypes=15, early_stopping="cross", **chosen).fit(X, y)
    n = crossed.n_iter_
    np.testing.assert_allclose(crossed.history_.loss, whole.history_.loss[:n], rtol=1e-5)


def test_a_model_stopped_that_way_is_saved_and_loaded(blobs, tmp_path) -> None:
    X, y = blobs
    model = ProtoPINVClassifier(n_prototypes=15, hidden_sizes=12, max_epochs=20, early_stopping="cross")
    model.fit(X, y).save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert again.early_stopping == "cross"
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_the_mlp_says_that_it_cannot(blobs) -> None:
    with pytest.raises(ConfigError, match=r"early_stopping must be True or False here"):
        MLPBaselineClassifier(early_stopping="cross").fit(*blobs)


def test_folds_are_shown_but_an_observer_sees_the_last_training_only(blobs, capsys) -> None:
    X, y = blobs
    seen = []
    model = ProtoPINVClassifier(
        n_prototypes=10, hidden_sizes=8, max_epochs=30, early_stopping="cross", verbose=1
    )
    model.fit(X, y, observer=seen.append)
    assert [report.epoch for report in seen] == list(range(model.n_iter_))
    shown = capsys.readouterr().err
    assert "fold 1 of 4, epoch " in shown
    assert "fold 4 of 4, epoch " in shown
    assert f"epoch {model.n_iter_}/{model.n_iter_} loss" in shown


def test_a_fold_whose_loss_has_long_risen_is_ended() -> None:
    X, y = noisy_rows(300, 0)
    seen: list[EpochReport] = []
    rows = LabelledRows(X, y, 2)
    config = TrainConfig(n_prototypes=30, hidden_sizes=32, max_epochs=100, early_stopping="cross")
    device = torch.device("cpu")
    train_classifier(
        rows, config, seed=0, device=device, clock=time.perf_counter, observer=seen.append
    )
    lengths = [sum(r.fold == f"fold {n} of 4" for r in seen) for n in range(1, 5)]
    assert max(lengths) < 100
    assert min(lengths) >= 30  # the patience


def test_an_observer_may_end_the_training(blobs) -> None:
    X, y = blobs
    model = ProtoPINVClassifier(n_prototypes=10, hidden_sizes=8, max_epochs=30, early_stopping=False)
    model.fit(X, y, observer=lambda report: report.epoch == 6)
    assert model.n_iter_ == 7
    assert model.history_.ending == "stopped early"
