"""The two passes: chunked equals whole, and the whole gradient equals autograd's."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from configs import concrete, leaves_of
from torch.nn.functional import cross_entropy

from protopinv.bank import Bank, population, start_bank
from protopinv.network import Architecture, designs_of, propagate, solve_weights
from protopinv.objective import Classes
from protopinv.solve import spread
from protopinv.train.data_pass import data_pass, score_and_loss
from protopinv.train.rows import CPU_CHUNK_BYTES, CPU_CHUNK_MOST, Rows, chunk_rows
from protopinv.train.step import BankStep


@pytest.fixture
def rows(generator: torch.Generator) -> Rows:
    X = torch.randn(50, 5, generator=generator, dtype=torch.float64)
    return Rows(X, torch.arange(50) % 3)


@pytest.fixture
def bank(generator: torch.Generator) -> Bank:
    """A population of one."""
    one = start_bank(
        torch.randn(8, 5, generator=generator, dtype=torch.float64),
        torch.randn(8, 3, generator=generator, dtype=torch.float64),
        hidden_sizes=(6, 4),
        hidden_scale=1.0,
        ridge=(1.0, 0.5, 0.2),
        learn_ridge=(False, True, True),
        generator=generator,
    )
    return population([one])


def objective(smoothing: float = 0.0) -> Classes:
    return Classes(np.arange(3), smoothing)


def step_of(bank: Bank, chunk: int = 100, **options: object) -> BankStep:
    config = concrete(hidden_sizes=(6, 4), activation="tanh", **options)
    generator = torch.Generator().manual_seed(0)
    return BankStep(bank, config, objective(), chunk=chunk, generator=generator)


@pytest.mark.parametrize("chunk", [1, 7, 25, 49, 50, 1000])
def test_chunked_gradients_equal_the_whole(rows: Rows, bank: Bank, chunk: int) -> None:
    weights = solve_weights(bank, Architecture("tanh")).weights
    whole = data_pass(rows, weights, "tanh", objective(0.1), chunk=50)
    chunked = data_pass(rows, weights, "tanh", objective(0.1), chunk=chunk)
    torch.testing.assert_close(chunked.loss, whole.loss)
    for mine, theirs in zip(chunked.gradients, whole.gradients, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_evaluation_is_the_same_in_chunks(rows: Rows, bank: Bank) -> None:
    weights = solve_weights(bank, Architecture("tanh")).weights
    whole, chunked = (
        score_and_loss(rows, weights, "tanh", objective(0.1), chunk=size) for size in (50, 7)
    )
    torch.testing.assert_close(chunked, whole)
    outputs = propagate(rows.X, [W[0] for W in weights], "tanh")
    assert whole[0].item() == pytest.approx((outputs.argmax(1) == rows.y).double().mean().item())
    torch.testing.assert_close(whole[1][0], cross_entropy(outputs, rows.y))


@pytest.mark.parametrize("chunk", [7, 100])
def test_a_step_takes_the_gradient_of_the_whole_objective(
    rows: Rows, bank: Bank, chunk: int
) -> None:
    leaves = leaves_of(bank.member(0))
    solution = solve_weights(leaves, Architecture("tanh"))
    outputs = propagate(rows.X, solution.weights, "tanh")
    designs = designs_of(leaves, Architecture("tanh"))
    loss = (
        cross_entropy(outputs, rows.y, label_smoothing=0.1)
        + 0.01 * sum((W**2).sum() for W in solution.weights)
        + 0.02 * sum(spread(A, ridge)[0] for A, ridge in zip(designs, leaves.ridge, strict=True))
    )
    expected = torch.autograd.grad(loss, leaves.trained)
    step = step_of(bank, chunk, weight_penalty=0.01, condition_penalty=0.02, label_smoothing=0.1)
    given = taken_gradients(step)
    report = step(rows, factor=0.0)
    torch.testing.assert_close(report.loss[0], loss.detach())
    for mine, gradient in zip(given[0], expected, strict=True):
        torch.testing.assert_close(mine[0], gradient)


def taken_gradients(step: BankStep) -> list[list[torch.Tensor]]:
    """What the optimizer is given, a list for every step from now on."""
    given, update = [], step.optimizer.step

    def watched(gradients, skip) -> None:
        given.append(gradients)
        update(gradients, skip)

    step.optimizer.step = watched
    return given


def test_a_step_lowers_the_loss(rows: Rows, bank: Bank) -> None:
    step = step_of(bank, lr=0.01)
    losses = [step(rows, factor=1.0).loss.item() for _ in range(30)]
    assert losses[-1] < 0.9 * losses[0]


def test_decay_and_rate_are_separate_for_each_block(rows: Rows, bank: Bank) -> None:
    before = bank.snapshot()
    step = step_of(bank, lr=0.1, lr_ratios=(0.0, 1.0, 0.0), output_decay=0.5)
    step(rows, factor=1.0)
    assert torch.equal(bank.inputs, before.inputs)
    assert not torch.equal(bank.hidden[0], before.hidden[0])
    assert torch.equal(bank.outputs, before.outputs)  # decay is decoupled: it follows the rate

    step = step_of(bank, lr=0.1, hidden_decay=0.5)
    before = bank.snapshot()
    step.optimizer.set_rate(1.0)
    step.optimizer.step([torch.zeros_like(tensor) for tensor in bank.trained], None)
    torch.testing.assert_close(bank.hidden[0], before.hidden[0] * (1 - 0.1 * 0.5))
    assert torch.equal(bank.inputs, before.inputs)


def test_a_fixed_ridge_never_moves(rows: Rows, bank: Bank) -> None:
    before = bank.ridge.detach().clone()
    step = step_of(bank)
    for _ in range(5):
        step(rows, factor=1.0)
    assert bank.ridge[0, 0] == before[0, 0]
    assert (bank.ridge[0, 1:] != before[0, 1:]).all()


@pytest.mark.parametrize("options", [{"input_noise": 0.5}, {"hidden_dropout": 0.3}])
def test_noise_and_dropout_change_a_step_and_follow_the_seed(
    rows: Rows, bank: Bank, options: dict[str, float]
) -> None:
    plain = step_of(bank)(rows, factor=0.0).loss
    first, again = (step_of(bank, **options)(rows, factor=0.0).loss for _ in range(2))
    assert first != plain
    assert first == again


def test_dropout_keeps_the_mean_of_the_hidden_targets(bank: Bank) -> None:
    wide = torch.ones(1, 8, 5000, dtype=torch.float64)
    step = step_of(replace(bank, hidden=(wide, bank.hidden[1])), hidden_dropout=0.25)
    dropped = wide * step.weights(training=True)._dropout[0]
    assert (dropped == 0).double().mean() == pytest.approx(0.25, abs=0.01)
    assert dropped.mean() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("poison", ["rows", "bank"])
def test_a_step_that_is_not_finite_changes_nothing(rows: Rows, bank: Bank, poison: str) -> None:
    step = step_of(bank)
    step(rows, factor=1.0)
    if poison == "rows":
        rows.X[3, 2] = torch.inf
    else:
        bank.inputs[0, 0, 0] = torch.inf
    before = bank.snapshot()
    report = step(rows, factor=1.0)
    assert step.failures.tolist() == [[int(poison == "bank"), int(poison == "rows")]]
    assert report.loss.isnan().all()
    assert all(map(torch.equal, bank.trained, before.trained))


def test_batches_hold_every_row_once_in_a_new_order(rows: Rows, generator: torch.Generator) -> None:
    first, second = (torch.cat([batch.X for batch in rows.batches(8, generator)]) for _ in range(2))
    assert not torch.equal(first, second)
    for epoch in (first, second):
        torch.testing.assert_close(epoch.sort(dim=0).values, rows.X.sort(dim=0).values)
    assert [len(batch) for batch in rows.batches(8, generator)] == [8] + [7] * 6  # none of two
    assert [len(batch) for batch in rows.batches(None, generator)] == [50]


def test_chunks_fit_the_cache_budget() -> None:
    rows = chunk_rows(512, torch.float32, torch.device("cpu"))
    assert 2**0.5 / 2 <= rows * 512 * 4 / CPU_CHUNK_BYTES <= 2**0.5
    assert rows & (rows - 1) == 0
    assert chunk_rows(10**9, torch.float32, torch.device("cpu")) == 256
    assert chunk_rows(1, torch.float32, torch.device("cpu")) == CPU_CHUNK_MOST


@pytest.mark.parametrize("options", [{}, {"averaging": 0.5}, {"hidden_dropout": 0.2}])
def test_looking_at_validation_changes_no_step(
    rows: Rows, bank: Bank, options: dict[str, float]
) -> None:
    looked, alone = (step_of(copy, **options) for copy in (bank.snapshot(), bank.snapshot()))
    for turn in range(4):
        scores = [looked.evaluate(rows) for _ in range(turn)]
        assert all(score == scores[0] for score in scores)
        if turn == 3:  # someone moves the bank between a look and a step
            for step in (looked, alone):
                step.go_back([tensor + 0.1 for tensor in step.trained])
        assert looked(rows, 1.0).loss == alone(rows, 1.0).loss
    assert all(map(torch.equal, looked.trained, alone.trained))
