"""How many epochs: chosen by folds that train beside the bank of all rows."""

import time

import numpy as np
import pytest
import torch
from configs import concrete, data_of_arrays
from trainings import train_model

from benchmarks.baselines.mlp import MLPBaselineClassifier
from benchmarks.population import run_to_end
from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, load
from protopinv.errors import ConfigError
from protopinv.objective import Classes
from protopinv.train.data import fold_weights
from protopinv.train.history import EpochReport
from protopinv.train.prepare import first_banks, prepare
from protopinv.train.rows import Rows
from protopinv.train.state import LEAST_PATIENCE, EpochChoice
from protopinv.train.step import BankStep
from protopinv.train.survey import deal_folds


def test_folds_hold_every_row_once_and_every_class_evenly() -> None:
    labels = np.array([0] * 41 + [1] * 22 + [2] * 5)
    folds = deal_folds(labels, 4, seed=0)
    assert folds.shape == (68,)
    assert set(folds) == {0, 1, 2, 3}
    counts = np.array([np.bincount(labels[folds == fold], minlength=3) for fold in range(4)])
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()
    np.testing.assert_array_equal(folds, deal_folds(labels, 4, seed=0))
    assert not np.array_equal(folds, deal_folds(labels, 4, seed=1))


def test_a_class_with_fewer_rows_than_folds_is_never_held_out() -> None:
    labels = np.array([0] * 20 + [1] * 3 + [2] * 4)
    folds = deal_folds(labels, 4, seed=0)
    assert set(labels[folds >= 0]) == {0, 2}
    assert (folds[labels == 1] == -1).all()


def test_rows_of_rare_classes_only_are_trained_on_to_the_end() -> None:
    assert (deal_folds(np.array([0, 1]), 4, seed=0) == -1).all()
    X = np.array([[0.0], [1.0]])
    model = ProtoPINVClassifier(
        n_prototypes=4, max_epochs=20, early_stopping="cross", random_state=0
    )
    assert model.fit(X, [0, 1]).n_iter_ == 20


def chosen_length(*curves: np.ndarray) -> int:
    """Epochs that are chosen where folds have these losses; the state is the number of epochs."""
    choice = EpochChoice([torch.zeros(len(curves) + 1, 1)], n_full=1, max_epochs=1000)
    for epoch, losses in enumerate(zip(*curves, strict=True), start=1):
        choice.remember([torch.full((len(curves) + 1, 1), float(epoch))])
        choice.judge(torch.tensor([0.0, *losses]))
    choice.finish()
    length = choice.length_on_host()
    assert (choice.best[0] == length).all()
    return length


def test_the_best_length_is_the_lowest_mean_but_no_single_lucky_epoch() -> None:
    curve = np.abs(np.arange(100) - 40) / 100 + 1.0
    lucky = curve.copy()
    lucky[80] = 0.5
    assert chosen_length(curve, curve) == 41
    assert chosen_length(lucky, curve) == 41
    broken = curve.copy()
    broken[60:] = np.nan
    assert chosen_length(broken, curve) == 41


def test_the_lowest_loss_is_of_those_that_are_known() -> None:
    choice = EpochChoice([torch.zeros(2, 1)], 0, 100)
    assert choice.lowest_on_host() == np.inf
    choice._on_gpu = True  # where what is not known stays a tensor of NaN
    for loss in (np.nan, 2.0, 1.0, 3.0, np.nan):
        choice.remember([torch.zeros(2, 1)])
        choice.judge(torch.tensor([loss, loss]))
    assert choice.lowest_on_host() == 1


@pytest.mark.parametrize("n", [1, 2, 4, 5, 9, 30])
def test_a_loss_that_only_falls_or_rises_is_best_at_its_end(n: int) -> None:
    assert chosen_length(1.0 - np.arange(n) / 100) == n
    assert chosen_length(1.0 + np.arange(n) / 100) == 1


def rows_and_folds(n: int = 61) -> tuple[Rows, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    y = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()
    weight = torch.rand(1, n, generator=generator, dtype=torch.float64) + 0.1
    fold = torch.from_numpy(deal_folds(y.numpy(), 3, seed=0))
    return Rows(X, y, weight / weight.mean()), fold


def crossed(rows: Rows, fold: torch.Tensor, n_full: int) -> Rows:
    """For so many members that see all rows, and one for each fold."""
    weight = rows.weight / rows.weight.mean()
    masses = torch.bincount(fold, weight[0])
    weight, held = fold_weights(weight, fold, masses, n_full, len(rows))
    return Rows(rows.X, rows.y, weight, held, fold)


def test_copies_of_images_are_trained_on_in_their_fold_and_never_judged() -> None:
    X = np.random.default_rng(0).random((40, 36))
    y = np.arange(40) % 2
    data = data_of_arrays(X, y, Classes(np.unique(y)), folds=True)
    config = concrete(
        image_shape=(6, 6), image_copies=2, early_stopping="cross", n_members=5, dtype="float64"
    )
    rows = prepare(data, config, torch.device("cpu"), seed=0).rows
    assert rows.weight.shape == rows.held.shape == (5, 120)
    assert torch.equal(rows.fold.view(3, 40), rows.fold[:40].expand(3, 40))
    assert (rows.held[:, 40:] == 0).all()
    torch.testing.assert_close(rows.held[1:].sum(1), torch.ones(4).double())
    torch.testing.assert_close(rows.weight.mean(1), torch.ones(5).double())


def test_a_fold_counts_its_own_rows_and_is_judged_by_the_others() -> None:
    rows, fold = rows_and_folds()
    both = crossed(rows, fold, n_full=2)
    torch.testing.assert_close(both.weight[:2], rows.weight.expand(2, -1))
    assert (both.held[:2] == 0).all()
    for number in range(3):
        left_out, weight = fold == number, both.weight[2 + number]
        assert ((weight == 0) == left_out).all()
        assert weight.mean() == pytest.approx(1)
        kept = ~left_out
        ratio = weight[kept] / rows.weight[0, kept]
        torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))
        held = both.held[2 + number]
        assert ((held > 0) == left_out).all()
        assert held.sum() == pytest.approx(1)


@pytest.mark.parametrize("batch_size", [None, 16])
def test_a_fold_is_trained_as_if_there_were_no_other_rows(batch_size: int | None) -> None:
    """Its bank, its loss on rows that it has not seen, and the bank of all rows beside it."""
    rows, fold = rows_and_folds()
    objective = Classes(np.arange(3))
    config = concrete(
        n_prototypes=8, hidden_sizes=6, max_epochs=12, dtype="float64", batch_size=batch_size
    )
    both = crossed(rows, fold, n_full=1)
    bank = first_banks(both, objective, config, range(4))
    step = BankStep(bank.snapshot(), config, objective, generator=torch.Generator())
    choice = EpochChoice(step.trained, 1, 10**6)
    histories = run_to_end(step, both, clock=time.perf_counter, choice=choice)
    losses = []
    for number in range(4):
        kept, left_out = fold != number - 1, fold == number - 1
        own = Rows(rows.X[kept], rows.y[kept], rows.weight[:, kept] / rows.weight[0, kept].mean())
        if batch_size is not None:  # the same batches: rows left out weigh nothing
            own = Rows(rows.X, rows.y, both.weight[number][None])
        one = bank.members([number])
        alone = BankStep(one.snapshot(), config, objective, generator=torch.Generator())
        said: list[float] = []

        def judge(report: EpochReport, alone=alone, left_out=left_out, said=said) -> None:
            if bool(left_out.any()):
                unseen = rows.weight[:, left_out] / rows.weight[0, left_out].mean()
                held = Rows(rows.X[left_out], rows.y[left_out], unseen)
                said.append(float(alone.evaluate(held)[1]))

        (history,) = run_to_end(alone, own, clock=time.perf_counter, observer=judge)
        np.testing.assert_allclose(histories[number].loss, history.loss, rtol=1e-9)
        if number > 0:
            losses.append(said)
    np.testing.assert_allclose(histories[0].validation_loss, np.mean(losses, axis=0), rtol=1e-9)
    assert histories[0].kept_epoch + 1 == choice.length_on_host() == chosen_length(*losses)


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
    chosen = {"n_prototypes": 60, "hidden_sizes": 64, "max_epochs": 120, "random_state": 0}
    plain = ProtoPINVClassifier(early_stopping=False, **chosen).fit(X, y)
    crossed = ProtoPINVClassifier(early_stopping="cross", n_members=1, **chosen).fit(X, y)
    assert plain.n_iter_ == 120
    assert crossed.history_.kept_epoch < 59
    assert crossed.n_iter_ < 120
    assert crossed.history_.ending == "stopped early"
    assert crossed.score(X_new, truth) > plain.score(X_new, truth) + 0.05
    several = ProtoPINVClassifier(early_stopping="cross", **chosen).fit(X, y)
    assert several.bank_.n_members == 5
    assert several.score(X_new, truth) > plain.score(X_new, truth) + 0.05


@pytest.mark.parametrize("options", [{}, {"hidden_dropout": 0.05}, {"batch_size": 30}], ids=str)
def test_the_start_of_a_longer_training_is_what_is_kept(blobs, options) -> None:
    """The schedule is that of all epochs; the bank of all rows is one of its states."""
    X, y = blobs
    chosen = {"n_prototypes": 15, "hidden_sizes": 12, "max_epochs": 50, "random_state": 0}
    chosen |= {"n_members": 1, "effort": "quick", "label_smoothing": 0.0, **options}
    chosen["number_encoding"] = "raw"  # one candidate
    states: list[torch.Tensor] = []
    whole = ProtoPINVClassifier(early_stopping=False, **chosen).fit(
        X, y, observer=lambda report: states.append(report.state.inputs[0].clone())
    )
    crossed = ProtoPINVClassifier(early_stopping="cross", **chosen).fit(X, y)
    n = crossed.n_iter_
    np.testing.assert_allclose(crossed.history_.loss, whole.history_.loss[:n], rtol=1e-5)
    kept = states[crossed.history_.kept_epoch]
    torch.testing.assert_close(crossed.bank_.inputs[0], kept, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("n_members", "banks"), [("auto", 5), (1, 1), (3, 3), (7, 7)])
def test_the_mean_of_as_many_banks_as_asked_for_is_predicted(blobs, n_members, banks: int) -> None:
    X, y = blobs
    model = ProtoPINVClassifier(
        n_prototypes=12,
        hidden_sizes=8,
        max_epochs=12,
        early_stopping="cross",
        n_members=n_members,
        random_state=0,
    )
    assert model.fit(X, y).bank_.n_members == banks
    assert model.network_.sizes[1] == 8 * banks
    assert model.score(X, y) > 0.9


def test_a_model_stopped_that_way_is_saved_and_loaded(blobs, tmp_path) -> None:
    X, y = blobs
    model = ProtoPINVClassifier(
        n_prototypes=15, hidden_sizes=12, max_epochs=20, early_stopping="cross"
    )
    model.fit(X, y).save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert again.early_stopping == "cross"
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_the_mlp_says_that_it_cannot(blobs) -> None:
    with pytest.raises(ConfigError, match=r"early_stopping must be True or False here"):
        MLPBaselineClassifier(early_stopping="cross").fit(*blobs)


def test_an_observer_sees_every_epoch_once_and_it_is_shown(blobs, capsys) -> None:
    X, y = blobs
    seen = []
    model = ProtoPINVClassifier(
        effort="quick",
        n_prototypes=10,
        hidden_sizes=8,
        max_epochs=30,
        early_stopping="cross",
        number_encoding="raw",
        verbose=1,
    )
    model.fit(X, y, observer=seen.append)
    assert [report.epoch for report in seen] == list(range(model.n_iter_))
    assert {report.state.n_members for report in seen} == {5}
    shown = capsys.readouterr().err
    assert "epoch 3/30 loss" in shown
    assert "validation loss" in shown


def test_a_training_whose_folds_have_long_risen_is_ended() -> None:
    X, y = noisy_rows(300, 0)
    seen: list[EpochReport] = []
    objective = Classes(np.unique(y))
    config = concrete(n_prototypes=30, hidden_sizes=32, max_epochs=100, early_stopping="cross")
    data = data_of_arrays(X, y, objective, folds=True)
    history = train_model(data, [config], observer=seen.append).trained.history
    assert len(seen) == history.n_epochs < 100
    assert len(seen) >= LEAST_PATIENCE
    assert len(seen) - (history.kept_epoch + 1) >= LEAST_PATIENCE


def test_an_observer_may_end_the_training(blobs) -> None:
    X, y = blobs
    for early_stopping in (False, "cross"):
        model = ProtoPINVClassifier(
            n_prototypes=10, hidden_sizes=8, max_epochs=30, early_stopping=early_stopping
        )
        model.fit(X, y, observer=lambda report: report.epoch == 6)
        assert model.n_iter_ == 7
        assert model.history_.ending == "stopped early"


def test_numbers_are_dealt_into_folds_too() -> None:
    X, y = noisy_rows(120, 0)
    model = ProtoPINVRegressor(
        n_prototypes=20, hidden_sizes=16, max_epochs=60, early_stopping="cross", random_state=0
    )
    model.fit(X, X[:, 0] + y)
    assert len(model.history_.validation_score) == model.n_iter_
    assert model.history_.kept_score > 0.5
    assert model.bank_.n_members == 5
