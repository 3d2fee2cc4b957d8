"""Diagnoses against designs whose singular values are known, and Lemma 1 against perturbations."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import Generator, Tensor

from benchmarks.baselines.mlp import MLPBaselineClassifier
from protopinv import ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.data import load_data
from protopinv.diagnose import (
    Trace,
    diagnose,
    diagnose_layer,
    effective_rank,
    perturb,
)
from protopinv.errors import ConfigError
from protopinv.solve import ridge_solve, spread

SHAPES = [(6, 10), (10, 6), (8, 8)]


def draw(generator: Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def with_singular_values(values: list[float], d: int, generator: Generator) -> Tensor:
    p = len(values)
    U, _ = torch.linalg.qr(draw(generator, p, p))
    V, _ = torch.linalg.qr(draw(generator, d, p))
    return U @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ V.T


def test_a_layer_is_described_by_its_singular_values(generator: Generator) -> None:
    A = with_singular_values([4.0, 2.0, 1.0], 5, generator)
    layer = diagnose_layer(A, draw(generator, 3, 2), ridge=0.5)
    assert layer.singular_values == pytest.approx((4, 2, 1))
    assert layer.condition == pytest.approx(4)
    assert layer.system_condition == pytest.approx((16 + 0.5) / (1 + 0.5))
    assert layer.degrees_of_freedom == pytest.approx(16 / 16.5 + 4 / 4.5 + 1 / 1.5)
    assert 1 < layer.effective_rank < 3


def test_a_design_without_full_rank_is_infinitely_ill_conditioned(generator: Generator) -> None:
    A = with_singular_values([4.0, 2.0, 0.0], 5, generator)
    layer = diagnose_layer(A, draw(generator, 3, 2), ridge=0.5)
    assert layer.condition == math.inf
    assert layer.system_condition == pytest.approx((16 + 0.5) / 0.5)


def test_the_effective_rank_counts_equal_values() -> None:
    assert effective_rank(torch.tensor([3.0, 3.0, 3.0, 3.0])) == pytest.approx(4)
    assert effective_rank(torch.tensor([5.0, 0.0, 0.0])) == pytest.approx(1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ridge", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("size", [1e-6, 1e-4])
def test_weights_never_move_further_than_lemma_1_allows(
    shape: tuple[int, int], ridge: float, size: float, generator: Generator
) -> None:
    A, T = draw(generator, *shape), draw(generator, shape[0], 3)
    for _ in range(20):
        moved = perturb(A, T, ridge, size, generator)
        assert 0 < moved.change <= moved.bound * (1 + 1e-2)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_constant_of_the_targets_is_reached(
    shape: tuple[int, int], generator: Generator
) -> None:
    """The worst direction moves the weights by exactly C_2: the constant cannot be lowered."""
    A, T, ridge = draw(generator, *shape), draw(generator, shape[0], 1), 0.7
    U, s, _ = torch.linalg.svd(A, full_matrices=False)
    worst = U[:, (s / (s**2 + ridge)).argmax(), None]
    strength = torch.tensor(ridge, dtype=torch.float64)
    before, after = (ridge_solve(A, B, strength).weights[0] for B in (T, T + worst))
    constant = diagnose_layer(A, T, ridge).sensitivity.to_targets
    assert float((after - before).norm()) == pytest.approx(constant)
    assert constant <= 1 / (2 * math.sqrt(ridge))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_derivative_in_the_ridge_is_that_of_the_solve(
    shape: tuple[int, int], generator: Generator
) -> None:
    A, T, ridge, step = draw(generator, *shape), draw(generator, shape[0], 3), 0.7, 1e-6
    lower, upper = (
        ridge_solve(A, T, torch.tensor(ridge + side * step, dtype=torch.float64)).weights[0]
        for side in (-1, 1)
    )
    found = diagnose_layer(A, T, ridge).sensitivity
    assert found.to_ridge == pytest.approx(float((upper - lower).norm()) / (2 * step), rel=1e-5)
    assert found.weight_norm == pytest.approx(float(upper.norm()), rel=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_spread_is_the_log_ratio_of_two_means(
    shape: tuple[int, int], generator: Generator
) -> None:
    A, ridge = draw(generator, *shape), torch.tensor(0.3, dtype=torch.float64)
    eigenvalues = torch.linalg.svdvals(A) ** 2 + ridge
    expected = eigenvalues.mean().log() - eigenvalues.log().mean()
    for form in ("auto", "svd"):
        value, error = spread(A, ridge, form=form)
        torch.testing.assert_close(value, expected)
        assert error < 1e-8
    inputs = (A.requires_grad_(), ridge.requires_grad_())
    for form in ("auto", "svd"):
        value_of = partial(spread, form=form)
        assert torch.autograd.gradcheck(lambda *given, f=value_of: f(*given)[0], inputs)


def test_the_spread_of_a_singular_system_says_so_and_singular_values_still_find_it() -> None:
    A, ridge = torch.ones(5, 8), torch.tensor(1e-9)
    assert spread(A, ridge)[1] > 1
    value, error = spread(A, ridge, form="svd")
    assert error == 0
    eigenvalues = torch.tensor([40 + 1e-9] + [1e-9] * 4, dtype=torch.float64)
    expected = eigenvalues.mean().log() - eigenvalues.log().mean()
    assert float(value) == pytest.approx(float(expected), rel=0.05)


def test_an_even_design_has_no_spread() -> None:
    A, ridge = 3 * torch.eye(4, 7, dtype=torch.float64), torch.tensor(0.2, dtype=torch.float64)
    assert float(spread(A, ridge)[0]) == pytest.approx(0, abs=1e-12)


def test_the_condition_penalty_trains_for_better_conditioning() -> None:
    data = load_data("digits", split="train")
    plain, trained = (
        ProtoPINVClassifier(
            n_prototypes=40,
            hidden_sizes=50,
            condition_penalty=penalty,
            max_epochs=40,
            random_state=0,
        ).fit(data.X[:500], data.y[:500])
        for penalty in (0.0, 0.3)
    )
    for before, after in zip(plain.diagnose().layers, trained.diagnose().layers, strict=True):
        assert after.system_condition < 0.8 * before.system_condition
        assert after.effective_rank > before.effective_rank
    assert trained.score(data.X[500:], data.y[500:]) > 0.85


def test_the_condition_penalty_falls_back_with_the_solves() -> None:
    """Tripled rows and hardly a ridge: float32 cannot solve that, with the penalty or without."""
    data = load_data("digits", split="train")
    X, y = np.tile(data.X[:20], (3, 1)), np.tile(data.y[:20], 3)
    model = ProtoPINVClassifier(
        n_prototypes=60,
        hidden_sizes=30,
        projection="none",
        ridge=1e-8,
        condition_penalty=0.1,
        max_epochs=10,
        dtype="float32",
        random_state=0,
    ).fit(X, y)
    assert "float64" in model.history_.events[0]
    assert model.history_.rate_cuts == 0


def test_a_trace_ends_where_the_model_stands(blobs) -> None:
    X, y = blobs
    model = ProtoPINVClassifier(
        n_prototypes=12,
        hidden_sizes=8,
        max_epochs=9,
        early_stopping=False,
        dtype="float64",
        random_state=0,
    )
    trace = Trace(every=4)
    model.fit(X, y, observer=trace)
    assert [point.epoch for point in trace.points] == [0, 4, 8]
    assert trace.points[-1].diagnosis == model.diagnose()
    assert trace.points[0].diagnosis != model.diagnose()
    assert sum(trace.points[0].counts) == 12


def test_a_trace_follows_the_candidate_that_is_trained_with_its_own_activation(blobs) -> None:
    """At the default effort, where kinds of networks are looked at."""
    X, _ = blobs
    model = ProtoPINVRegressor(max_epochs=30, dtype="float64", random_state=0)
    trace = Trace()
    model.fit(X, X[:, 0] * X[:, 1], observer=trace)
    assert len(trace.screened) == len(model.candidates_) > 1
    assert [point.epoch for point in trace.points] == list(range(model.n_iter_))
    kept = model.history_.kept_epoch
    assert kept is not None
    (bank,) = [point for point in trace.points if point.epoch == kept]
    assert bank.diagnosis == model.diagnose()
    looked = trace.screened[model.config_]
    assert trace.points[: len(looked)] == looked


def test_a_model_must_be_fitted_to_be_diagnosed() -> None:
    with pytest.raises(NotFittedError):
        ProtoPINVClassifier().diagnose()


def test_a_trace_says_what_it_needs(blobs) -> None:
    with pytest.raises(ConfigError, match=r"every must be 1 or more\. Got 0"):
        Trace(every=0)
    with pytest.raises(ConfigError, match=r"A trace watches a bank"):
        MLPBaselineClassifier(hidden_sizes=8, max_epochs=2).fit(*blobs, observer=Trace())


def test_a_fitted_model_stays_within_lemma_1(blobs) -> None:
    model = ProtoPINVClassifier(
        n_prototypes=12, hidden_sizes=(8, 6), max_epochs=9, random_state=0
    ).fit(*blobs)
    moved = model.check_lemma(1e-6)
    assert len(moved) == 3
    assert all(0 < layer.change <= layer.bound * (1 + 1e-3) for layer in moved)
    with pytest.raises(NotFittedError):
        ProtoPINVClassifier().check_lemma()


def test_a_model_is_diagnosed_by_what_was_used_not_by_what_was_set_later(blobs) -> None:
    model = ProtoPINVClassifier(
        n_prototypes=12, hidden_sizes=8, max_epochs=5, activation="tanh", random_state=0
    ).fit(*blobs)
    found, moved = model.diagnose(), model.check_lemma()
    model.set_params(activation="relu", temperature=0.5, normalize_inputs=True)
    assert model.diagnose() == found
    assert model.check_lemma() == moved
    again = diagnose(model.bank_.member(0), model.config_.architecture)
    assert again == found
    assert diagnose(model.bank_.member(0), model.config().architecture) != found
