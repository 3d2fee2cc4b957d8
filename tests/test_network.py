from dataclasses import replace
from itertools import pairwise
from typing import get_args

import pytest
import torch
from configs import leaves_of

from protopinv.bank import Bank, population, start_bank
from protopinv.network import (
    ACTIVATIONS,
    Architecture,
    Network,
    Quick,
    dense,
    mean_network,
    propagate,
    soft_labels,
    solve_weights,
    unit_rows,
    with_bias,
)
from protopinv.train.config import Activation


def bank_of(generator: torch.Generator, hidden_sizes: tuple[int, ...], p: int = 12) -> Bank:
    layers = len(hidden_sizes) + 1
    return start_bank(
        torch.randn(p, 5, generator=generator, dtype=torch.float64),
        torch.randn(p, 3, generator=generator, dtype=torch.float64),
        hidden_sizes=hidden_sizes,
        hidden_scale=1.0,
        ridge=(0.7,) * layers,
        learn_ridge=(True,) * layers,
        generator=generator,
    )


@pytest.mark.parametrize("hidden_sizes", [(4,), (20,), (4, 30), (6, 5, 4)])
def test_each_layer_is_the_ridge_regression_from_one_column_to_the_next(
    generator: torch.Generator, hidden_sizes: tuple[int, ...]
) -> None:
    bank = bank_of(generator, hidden_sizes)
    weights = solve_weights(bank, Architecture("tanh")).weights
    designs = [bank.inputs, *map(torch.tanh, bank.hidden)]
    targets = [*bank.hidden, bank.outputs]
    for W, A, T in zip(weights, map(with_bias, designs), targets, strict=True):
        torch.testing.assert_close(A.T @ (A @ W - T) + 0.7 * W, torch.zeros_like(W))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_reach_every_part_of_the_bank_exactly(
    generator: torch.Generator, activation: str
) -> None:
    bank = leaves_of(bank_of(generator, (4, 3), p=6))
    architecture = Architecture(activation, temperature=0.5, normalize_inputs=True)
    X = torch.randn(7, 5, generator=generator, dtype=torch.float64)

    def outputs(inputs, first, second, labels, raw_ridge):
        moved = Bank(inputs, (first, second), labels, raw_ridge, bank.learnable_ridge)
        return propagate(X, solve_weights(moved, architecture).weights, activation)

    assert torch.autograd.gradcheck(outputs, bank.trained)


def test_the_activation_is_applied_once(generator: torch.Generator) -> None:
    """The paper's equation for prediction applies it twice; its listing, and we, once."""
    X, W1, W2 = (torch.randn(shape, generator=generator) for shape in [(4, 3), (4, 6), (7, 2)])
    expected = with_bias(torch.tanh(with_bias(X) @ W1)) @ W2
    torch.testing.assert_close(propagate(X, [W1, W2], "tanh"), expected)


def test_unit_rows_have_unit_mean_square_and_zero_rows_stay_finite(
    generator: torch.Generator,
) -> None:
    X = torch.cat([5 * torch.randn(3, 4, generator=generator), torch.zeros(1, 4)])
    X.requires_grad_()
    norms = unit_rows(X).square().mean(dim=1)
    torch.testing.assert_close(norms, torch.tensor([1.0, 1.0, 1.0, 0.0]))
    (gradient,) = torch.autograd.grad(unit_rows(X).sum(), X)
    assert gradient.isfinite().all()


def test_the_configuration_offers_all_activations_but_those_of_random_features() -> None:
    assert (*get_args(Activation), "cos", "identity") == tuple(ACTIVATIONS)


def test_soft_labels_sharpen_with_falling_temperature_and_zero_leaves_them() -> None:
    Y = torch.tensor([[2.0, 1.0, 0.0]])
    assert torch.equal(soft_labels(Y, 0.0), Y)
    warm, cold = soft_labels(Y, 2.0), soft_labels(Y, 0.1)
    torch.testing.assert_close(warm.sum(), torch.tensor(1.0))
    assert cold[0, 0] > 0.99 > warm[0, 0]


def test_network_counts_and_names(generator: torch.Generator) -> None:
    weights = tuple(torch.randn(shape, generator=generator) for shape in [(4, 6), (7, 2)])
    network = Network(weights, "relu")
    assert network.sizes == (3, 6, 2)
    assert network.n_shipped == 4 * 6 + 7 * 2
    back = Network.from_tensors(network.tensors(), "relu")
    assert all(map(torch.equal, back.weights, weights))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("offset", "rough"), [(0.0, True), (1e6, False)])
def test_many_rows_stay_in_float32_only_where_their_digits_suffice(
    generator: torch.Generator, activation: str, offset: float, rough: bool
) -> None:
    X = torch.randn(5000, 40, generator=generator) + offset
    W, V = (0.1 * torch.randn(*shape, generator=generator) for shape in ((41, 200), (201, 3)))
    first = W.double()
    first[0] -= offset * first[1:].sum(0)
    network = Network((first, V.double()), activation)
    exact, found = network(X.double()), network(X)
    assert torch.equal(found, exact) is not rough
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-4)
    assert found.dtype == torch.float64


def test_long_sums_that_hardly_differ_and_rough_products_are_not_left_to_float32(
    generator: torch.Generator,
) -> None:
    network = Network((torch.full((2001, 100), 0.1).double(), torch.ones(101, 2).double()), "relu")
    mixed = torch.randn(100, 2000, generator=generator)
    alike = 1 + 1e-5 * mixed
    assert torch.equal(network(alike), network(alike.double()))
    assert not torch.equal(network(mixed), network(mixed.double()))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert torch.equal(network(mixed), network(mixed.double()))
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(6,), (6, 4), (6, 4, 5)])
@pytest.mark.parametrize("members", [1, 2, 5])
def test_a_mean_network_answers_with_the_mean(
    generator: torch.Generator, activation: str, hidden: tuple[int, ...], members: int
) -> None:
    sizes = (3, *hidden, 2)
    shapes = [(a + 1, b) for a, b in pairwise(sizes)]
    draws = [
        [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
        for _ in range(members)
    ]
    networks = [Network(tuple(weights), activation) for weights in draws]
    X = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    mean = mean_network(networks)
    assert mean.sizes == (3, *(members * size for size in hidden), 2)
    expected = torch.stack([network(X) for network in networks]).mean(0)
    torch.testing.assert_close(mean(X), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mean(X[:2]), expected[:2], rtol=1e-12, atol=1e-12)  # by NumPy
    assert mean(X[:0]).shape == (0, 2)
    whole = Network(tuple(map(dense, mean.weights)), activation)
    assert whole.sizes == mean.sizes
    torch.testing.assert_close(whole(X), expected, rtol=1e-12, atol=1e-12)
    # the biases of the last layers are summed; nothing else is shared, and no zero is stored
    assert mean.n_shipped == sum(n.n_shipped for n in networks) - 2 * (members - 1)


@pytest.mark.parametrize("hidden_sizes", [(4,), (4, 30), (6, 5, 4)])
@pytest.mark.parametrize("members", [False, True])
def test_a_learned_scale_is_that_of_the_rows(
    generator: torch.Generator, hidden_sizes: tuple[int, ...], members: bool
) -> None:
    bank = bank_of(generator, hidden_sizes)
    scale = torch.rand(5, generator=generator, dtype=torch.float64) + 0.5
    scaled = replace(bank, scale=scale)
    if members:
        scaled = population([scaled, replace(bank, scale=2 * scale)])
    X = torch.randn(8, 5, generator=generator, dtype=torch.float64)
    folded = solve_weights(scaled, Architecture("tanh")).weights
    weights = solve_weights(bank, Architecture("tanh")).weights
    expected = propagate(X * scale, weights, "tanh")
    found = propagate(X, [W[0] for W in folded] if members else folded, "tanh")
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    if members:
        second = propagate(X, [W[1] for W in folded], "tanh")
        expected = propagate(2 * X * scale, weights, "tanh")
        torch.testing.assert_close(second, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("hidden_sizes", [(4,), (4, 30)])
def test_members_are_solved_as_each_alone(
    generator: torch.Generator, hidden_sizes: tuple[int, ...]
) -> None:
    banks = [bank_of(generator, hidden_sizes) for _ in range(3)]
    architecture = Architecture("gelu", temperature=0.5, normalize_inputs=True)
    for form in ("auto", "dual", "primal", "svd"):
        together = solve_weights(population(banks), architecture, form=form)
        for member, bank in enumerate(banks):
            alone = solve_weights(bank, architecture, form=form)
            for mine, theirs in zip(together.weights, alone.weights, strict=True):
                torch.testing.assert_close(mine[member], theirs, rtol=1e-9, atol=1e-9)
            assert together.error.shape == (3, len(alone.weights))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_rows_take_the_thin_way_and_arrive_at_the_same(
    generator: torch.Generator, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first layer has 5 directions of 40, which only the second network is told."""
    monkeypatch.setattr("protopinv.network.MUCH_WORK", 1)
    shapes = ((40, 5), (5, 60))
    left, right = (torch.randn(*shape, generator=generator).double() for shape in shapes)
    first = torch.cat([torch.randn(1, 60, generator=generator).double(), 0.1 * left @ right])
    last = torch.randn(61, 3, generator=generator).double()
    X = torch.randn(500, 40, generator=generator).to(dtype)
    plain, thin = Network((first, last), "relu"), Network((first, last), "relu", rank=5)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(thin(X), plain(X), rtol=0, atol=tolerance)
    assert Quick.of(plain).thin is None
    assert Quick.of(thin).thin.shape == (40, 5)
    wrong = Network((torch.randn(41, 60, generator=generator).double(), last), "relu", rank=5)
    assert Quick.of(wrong).thin is None  # a rank that is not true does no harm
    monkeypatch.undo()
    torch.testing.assert_close(thin(X), thin(X.double()), rtol=0, atol=tolerance)
