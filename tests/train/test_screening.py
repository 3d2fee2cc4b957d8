"""Laws of a look: the candidate with the best folds is kept, as if it had been alone."""

import math
import os
import signal
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from configs import concrete, data_of_arrays, numbers_of_targets
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from trainings import Model, train_model

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.errors import TrainingError
from protopinv.objective import Classes, Labels
from protopinv.train.config import TrainConfig
from protopinv.train.history import EpochReport
from protopinv.train.loop import Run
from protopinv.train.training import LEAST_SCREENING, SCREENING, SCREENING_STEPS, screening_epochs

PLAIN = concrete(
    n_prototypes=12,
    hidden_sizes=(10,),
    ridge=1.0,
    max_epochs=40,
    warmup_epochs=2,
    early_stopping="cross",
    n_members=5,
    label_smoothing=0.1,
    dtype="float64",
    projection="none",
)
# It can hardly move, so that its folds are worse after any number of epochs.
LAME = replace(PLAIN, lr=1e-6, hidden_sizes=(6,))


def trained(*candidates: TrainConfig, **more: Any) -> Model:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 4))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    objective = Classes(np.unique(y))
    return train_model(
        data_of_arrays(X, y, objective, folds=candidates[0].early_stopping == "cross"),
        candidates,
        **more,
    )


def finite_losses(model: Model) -> list[bool]:
    return [math.isfinite(each.held_loss) for each in model.candidates]


@pytest.mark.parametrize("order", [(PLAIN, LAME), (LAME, PLAIN)], ids=["first", "second"])
def test_the_best_candidate_is_trained_as_if_it_were_alone(order: tuple[TrainConfig, ...]) -> None:
    chosen, alone = trained(*order), trained(PLAIN)
    assert chosen.trained.config == PLAIN
    assert [each.config for each in chosen.candidates] == list(order)
    assert alone.candidates == ()
    losses = {each.config: each.held_loss for each in chosen.candidates}
    assert losses[PLAIN] < losses[LAME]
    for mine, theirs in zip(chosen.network.weights, alone.network.weights, strict=True):
        assert mine.equal(theirs)
    assert chosen.trained.history.loss == alone.trained.history.loss
    assert chosen.trained.history.kept_epoch == alone.trained.history.kept_epoch


def test_threads_find_what_one_after_another_finds() -> None:
    apart, together = (trained(LAME, PLAIN, LAME, workers=n) for n in (1, 3))
    assert apart.candidates == together.candidates
    assert apart.trained.history.loss == together.trained.history.loss
    for mine, theirs in zip(apart.network.weights, together.network.weights, strict=True):
        assert mine.equal(theirs)


def test_a_candidate_that_cannot_be_trained_is_passed_over(monkeypatch) -> None:
    def advance(self: Run, until: int | None = None, *, observer: Any = None) -> None:
        if self.step.config == LAME:
            raise TrainingError("The loss must stay finite.")
        usual(self, until, observer=observer)

    usual = Run.advance
    monkeypatch.setattr(Run, "advance", advance)
    model = trained(LAME, PLAIN)
    assert model.trained.config == PLAIN
    assert model.candidates[0].held_loss == math.inf
    with pytest.raises(TrainingError, match="must stay finite"):
        trained(LAME, LAME)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_observer_is_told_which_reports_are_of_screening(workers: int) -> None:
    seen: list[EpochReport] = []
    trained(PLAIN, LAME, observer=seen.append, workers=workers)
    screened = [(each.candidate, each.epoch) for each in seen if each.candidate is not None]
    n = round(SCREENING * PLAIN.max_epochs)
    assert sorted(screened) == [(number, epoch) for number in (0, 1) for epoch in range(n)]
    after = [report.epoch for report in seen if report.candidate is None]
    assert after[0] == n
    assert after == list(range(n, n + len(after)))


def test_screening_takes_a_share_of_the_epochs_or_enough_steps() -> None:
    assert screening_epochs(250, 1) == round(SCREENING * 250) == 50
    assert screening_epochs(60, 20) == LEAST_SCREENING
    assert screening_epochs(60, 10) * 10 == SCREENING_STEPS
    assert screening_epochs(1, 1) == 1


def test_control_c_while_screening_keeps_the_best_so_far() -> None:
    def interrupt(report: EpochReport) -> None:
        if report.candidate == 1 and report.epoch == 3:
            raise KeyboardInterrupt

    model = trained(PLAIN, LAME, PLAIN, observer=interrupt)
    assert model.trained.history.ending == "interrupted"
    assert model.trained.history.n_epochs == round(SCREENING * PLAIN.max_epochs)
    assert finite_losses(model) == [
        True,
        True,
        False,
    ]
    assert model.trained.config == PLAIN


def test_control_c_ends_every_thread_after_its_next_step() -> None:
    """No thread goes on to the end of its epoch."""
    batches = [replace(each, batch_size=1, max_epochs=100) for each in (PLAIN, LAME)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press(report: EpochReport) -> None:
        if (report.candidate, report.epoch) == (0, 0):
            os.kill(os.getpid(), signal.SIGINT)  # the main thread hears it

    try:
        model = trained(*batches, observer=press, workers=2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert model.trained.history.ending == "interrupted"
    assert model.trained.history.n_epochs <= 1
    assert model.trained.history.steps < 2 * 120 * PLAIN.n_members


def test_an_observer_may_end_all_of_it_in_a_look() -> None:
    model = trained(
        PLAIN, LAME, PLAIN, observer=lambda report: (report.candidate, report.epoch) == (1, 3)
    )
    assert model.trained.history.ending == "stopped early"
    assert model.trained.history.n_epochs == round(SCREENING * PLAIN.max_epochs)
    assert finite_losses(model) == [
        True,
        True,
        False,
    ]


def test_a_fit_says_what_it_tried() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3))
    model = ProtoPINVRegressor(max_epochs=30, random_state=0).fit(X, X[:, 0])
    assert model.config_ in [each.config for each in model.candidates_]
    assert sum(each.weight for each in model.candidates_) == pytest.approx(1)
    heaviest = max(model.candidates_, key=lambda each: each.weight)
    assert heaviest.config == model.config_
    one = ProtoPINVRegressor(max_epochs=30, random_state=0, ensemble_size=1).fit(X, X[:, 0])
    best = min(one.candidates_, key=lambda each: each.held_loss)
    assert best.config == one.config_
    assert [each.weight for each in one.candidates_ if each != best] == [0] * (
        len(one.candidates_) - 1
    )
    alone = ProtoPINVRegressor(effort="quick", number_encoding="raw", max_epochs=30)
    assert alone.fit(X, X[:, 0]).candidates_ == ()


def test_sharpness_is_where_held_out_rows_are_likeliest() -> None:
    rng = np.random.default_rng(0)
    truth = torch.from_numpy(rng.integers(0, 3, 500))
    outputs = torch.from_numpy(rng.standard_normal((1, 3, 500)))
    outputs += torch.nn.functional.one_hot(truth, 3).T
    objective, weight = Classes(np.arange(3)), torch.ones(500, dtype=torch.float64)
    best, _ = objective.sharpness(outputs, truth, weight)

    def loss(factor: float) -> float:
        return float(objective.judge(outputs * factor, truth).plain.mean())

    assert loss(best) <= min(loss(best * 0.99), loss(best * 1.01))
    assert objective.sharpness(outputs * 2, truth, weight)[0] == pytest.approx(best / 2, rel=1e-3)


def test_sharpness_has_bounds_and_numbers_have_none() -> None:
    truth = torch.tensor([0, 1] * 20)
    outputs = torch.nn.functional.one_hot(truth, 2).T[None].double()
    weight = torch.ones(40, dtype=torch.float64)
    assert Classes(np.arange(2)).sharpness(outputs, truth, weight)[0] == pytest.approx(4, rel=1e-3)
    assert Classes(np.arange(2)).sharpness(outputs, truth, 0 * weight)[0] == 1
    assert Classes(np.arange(2)).sharpness(outputs * torch.nan, truth, weight)[0] == 1
    labels = torch.nn.functional.one_hot(truth, 2).float()
    assert Labels(2).sharpness(-outputs, labels, weight)[0] == pytest.approx(1 / 4, rel=1e-3)
    numbers = numbers_of_targets(np.arange(40.0), None, "squared")
    assert numbers.sharpness(outputs[:, :1], truth[:, None], weight)[0] == 1


@pytest.mark.filterwarnings("error")
def test_smoothed_labels_do_not_make_shy_probabilities() -> None:
    """Half of all rows have a label by chance, so nobody should be sure of these."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 2))
    y = np.where(X[:, 0] > 0, 1, rng.integers(0, 2, 400))
    smoothed = ProtoPINVClassifier(effort="quick", label_smoothing=0.4, random_state=0).fit(X, y)
    sure = smoothed.predict_proba(X[X[:, 0] > 0.5])[:, 1]
    unsure = smoothed.predict_proba(X[X[:, 0] < -0.5])[:, 1]
    assert np.median(sure) > 0.93  # 0.8 is what the smoothed labels say
    assert 0.3 < np.median(unsure) < 0.7


def test_where_a_plane_parts_the_classes_odds_are_those_of_a_linear_model() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 11_500)
    X = rng.standard_normal((11_500, 20)) + (2 * truth[:, None] - 1) * 2 / np.sqrt(20)
    few, rest = slice(None, 1_500), slice(1_500, None)
    model = ProtoPINVClassifier(random_state=0).fit(X[few], truth[few])
    linear = LogisticRegression().fit(X[few], truth[few])
    ours, theirs = (log_loss(truth[rest], m.predict_proba(X[rest])) for m in (model, linear))
    assert ours < 1.05 * theirs
