"""Training as a whole: it learns, it stops, it recovers, and it gives up with a clear error."""

import math
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from configs import concrete
from sklearn.datasets import load_iris

from benchmarks.population import run_to_end
from protopinv import ProtoPINVClassifier
from protopinv.bank import Bank, balanced_groups, population, start_bank
from protopinv.errors import GuardWarning, InterruptedWarning, TrainingError
from protopinv.objective import Classes
from protopinv.train.config import TrainConfig
from protopinv.train.history import EpochReport, History
from protopinv.train.rows import Rows
from protopinv.train.step import BankStep

CLASSES = Classes(np.arange(2))


def moons(n: int, seed: int) -> Rows:
    """Two interleaved half circles: not linearly separable."""
    random = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    angle = torch.pi * torch.rand(n, generator=random)
    side = 1.0 - 2.0 * y
    X = torch.stack([side * angle.cos() + y - 0.5, side * angle.sin() + 0.5 * y - 0.25], dim=1)
    return Rows(X + 0.1 * torch.randn(n, 2, generator=random), y)


def fresh_bank(rows: Rows, ridge: float = 1.0) -> Bank:
    """A population of one."""
    random, wanted = torch.Generator().manual_seed(0), balanced_groups(20, 2)
    one = start_bank(
        torch.randn(20, rows.X.shape[1], generator=random).to(rows.X),
        CLASSES.first_outputs(wanted, wanted),
        hidden_sizes=(32,),
        hidden_scale=1.0,
        ridge=(ridge, ridge),
        learn_ridge=(False, False),
        generator=random,
    )
    return population([one])


def run(
    rows: Rows,
    *,
    bank: Bank | None = None,
    validation: Rows | None = None,
    observer: Callable[[EpochReport], None] | None = None,
    **options: object,
) -> tuple[Bank, History]:
    config = concrete(hidden_sizes=(32,), **options)
    bank = (bank or fresh_bank(rows)).snapshot()
    step = BankStep(bank, config, CLASSES, generator=torch.Generator().manual_seed(0))
    clock = time.perf_counter
    (history,) = run_to_end(step, rows, clock=clock, validation=validation, observer=observer)
    return step.state, history


@pytest.mark.parametrize("batch_size", [None, 50])
def test_full_batch_and_mini_batches_both_learn(batch_size: int | None) -> None:
    _, history = run(moons(300, 0), validation=moons(200, 1), max_epochs=100, batch_size=batch_size)
    assert history.validation_score[-1] > 0.97
    assert history.loss[-1] < 0.1 < history.loss[0]
    assert history.steps == 100 * (1 if batch_size is None else 6)
    assert history.skipped_steps == 0
    assert history.ending == "finished"


def test_the_history_has_an_entry_for_every_epoch() -> None:
    _, history = run(moons(60, 0), validation=moons(40, 1), max_epochs=7, warmup_epochs=2)
    columns = (history.loss, history.lr, history.ridge, history.validation_loss)
    assert {len(column) for column in columns} == {7}
    assert history.n_epochs == 7
    assert history.lr[:3] == pytest.approx([0.025, 0.05, 0.05])
    assert history.kept_score == history.validation_score[-1]


def test_early_stopping_restores_the_best_bank() -> None:
    rows, validation = moons(40, 0), moons(100, 5)
    scores: list[float] = []
    bank, history = run(
        rows,
        validation=validation,
        observer=lambda report: scores.append(float(report.validation_score)),
        max_epochs=400,
        lr=0.3,
        early_stopping=True,
        n_iter_no_change=10,
    )
    assert history.ending == "stopped early"
    assert history.n_epochs < 400
    assert history.best_epoch is not None
    assert history.n_epochs - 1 - history.best_epoch == 10
    assert history.kept_score == max(scores)
    again, _ = run(rows, validation=validation, max_epochs=400, lr=0.3)
    assert not torch.equal(bank.inputs, again.inputs)
    one_more = concrete(hidden_sizes=(32,))
    assert _score(bank, validation, one_more) == pytest.approx(max(scores))


def _score(bank: Bank, rows: Rows, config: TrainConfig) -> float:
    step = BankStep(bank.snapshot(), config, CLASSES, chunk=64, generator=torch.Generator())
    return step.evaluate(rows)[0].item()


def test_the_same_seed_gives_the_same_bank() -> None:
    options = {"max_epochs": 20, "input_noise": 0.1, "hidden_dropout": 0.1, "batch_size": 32}
    first, second = (run(moons(100, 0), **options)[0] for _ in range(2))
    assert all(map(torch.equal, first.trained, second.trained))


def with_twins(bank: Bank) -> Bank:
    """Every hidden target twice: without a ridge the second layer has no solution."""
    half = bank.n_prototypes // 2
    return replace(bank, hidden=tuple(H[:, :half].repeat(1, 2, 1) for H in bank.hidden))


@pytest.mark.parametrize(("ridge", "rungs"), [(1e-7, ["Cholesky"]), (1e-13, ["Cholesky", "SVD"])])
def test_an_ill_conditioned_bank_falls_back_and_trains(ridge: float, rungs: list[str]) -> None:
    rows = moons(100, 0)
    bank, history = run(rows, bank=with_twins(fresh_bank(rows, ridge)), max_epochs=60)
    assert [event.partition("went on with ")[2] for event in history.events] == [
        f"{rung} in float64" for rung in rungs
    ]
    assert history.skipped_steps == len(rungs)
    assert history.loss[-1] < history.loss[len(rungs)]
    assert all(tensor.isfinite().all() for tensor in bank.trained)


def test_a_solver_in_float64_has_one_rung_less() -> None:
    rows = moons(100, 0)
    rows = Rows(rows.X.double(), rows.y)
    _, history = run(rows, bank=with_twins(fresh_bank(rows, 1e-13)), max_epochs=5)
    assert [event.partition("went on with ")[2] for event in history.events] == ["SVD in float64"]


def test_steps_that_overflow_go_back_to_the_best_bank_at_a_lower_rate() -> None:
    rows = moons(100, 0)
    rows.X[7] = torch.inf  # the mini-batch that holds it fails in every epoch
    _, history = run(rows, max_epochs=3, batch_size=20)
    assert history.skipped_steps == history.rate_cuts == 3
    assert all(loss < 0.8 for loss in history.loss)  # the mean of the steps that were taken
    assert history.best_epoch is not None
    assert history.lr[-1] < history.lr[0]
    (warning,) = history.warnings()
    assert isinstance(warning, GuardWarning)
    assert re.search(r"3 of 15 steps were skipped\..*back to the best bank with lr", str(warning))


def test_the_guard_gives_up_when_lower_rates_do_not_help() -> None:
    rows = moons(100, 0)
    rows.X[7] = torch.inf  # the mini-batch that holds it fails in every epoch
    with pytest.raises(TrainingError, match=r"after 6 cuts of the learning rate\. Scale"):
        run(rows, max_epochs=20, batch_size=20)


def test_a_rate_that_throws_the_bank_away_is_cut() -> None:
    """Prototypes of 1e17 cannot be solved in any form: only a lower rate helps."""
    rows = moons(100, 0)
    _, history = run(rows, max_epochs=40, lr=1e17, warmup_epochs=0)
    assert history.rate_cuts >= 1
    assert math.isfinite(history.loss[-1])


def test_rows_that_overflow_give_one_clear_error() -> None:
    rows = moons(50, 0)
    with pytest.raises(TrainingError, match=r"The loss must stay finite\..*Scale the features"):
        run(Rows(rows.X * 1e38, rows.y), max_epochs=5)


def test_a_bank_that_is_not_finite_gives_one_clear_error() -> None:
    rows = moons(50, 0)
    bank = fresh_bank(rows)
    bank.inputs[0, 0, 0] = torch.nan
    with pytest.raises(TrainingError, match=r"must be solvable\..*Raise ridge"):
        run(rows, bank=bank, max_epochs=5)


@pytest.fixture
def terminal() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where the tests are a job in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class PressedWhenGone:
    """Python drops what is raised in a destructor."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("terminal")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("press", [lambda: signal.raise_signal(signal.SIGINT), PressedWhenGone])
def test_control_c_keeps_the_best_bank_and_warns(press: Callable[[], object]) -> None:
    X, y = load_iris(return_X_y=True)
    model = ProtoPINVClassifier(
        n_prototypes=20,
        hidden_sizes=(8,),
        max_epochs=400,
        early_stopping=False,
        schedule="constant",
        random_state=0,
    )

    def observe(report: EpochReport) -> None:
        if report.epoch == 200:
            press()

    with pytest.warns(InterruptedWarning, match=r"interrupted after 20\d .*the best so far"):
        model.fit(X, y, observer=observe)
    history = model.history_
    assert history.ending == "interrupted"
    assert history.kept_epoch == history.best_epoch
    assert history.loss[history.best_epoch] < 1.01 * min(history.loss)
    assert model.score(X, y) > 0.8
