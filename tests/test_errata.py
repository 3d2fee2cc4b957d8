"""What the paper says wrongly, each with the law that holds instead: docs/errata.md in code."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator, Tensor
from torch.utils.flop_counter import FlopCounterMode

from protopinv import ProtoPINVClassifier
from protopinv.bank import Bank, start_bank
from protopinv.baselines import ELMClassifier, RandomFeatureRidgeClassifier
from protopinv.bench.record import newest_records
from protopinv.diagnose.conditioning import diagnose_layer
from protopinv.features import FeatureMap
from protopinv.network import Architecture, propagate, solve_weights, with_bias
from protopinv.objective import Classes
from protopinv.solve import ridge_solve
from protopinv.train.data_pass import data_pass
from protopinv.train.rows import Rows

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "benchmarks" / "records"


def draw(generator: Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def tanh_bank(generator: Generator, ridge: float, p: int = 6) -> Bank:
    return start_bank(
        draw(generator, p, 8),
        draw(generator, p, 3),
        hidden_sizes=(10,),
        hidden_scale=1.0,
        ridge=(ridge, ridge),
        learn_ridge=(False, False),
        generator=generator,
    )


def test_the_activation_is_applied_once(generator: Generator) -> None:
    """Without ridge the network interpolates: prototypes go to their outputs. Twice breaks it."""
    bank = tanh_bank(generator, ridge=1e-10)
    weights = solve_weights(bank, Architecture("tanh")).weights
    torch.testing.assert_close(
        propagate(bank.inputs, weights, "tanh"), bank.outputs, rtol=1e-4, atol=1e-4
    )
    first, second = weights
    twice = with_bias(torch.tanh(torch.tanh(with_bias(bank.inputs) @ first))) @ second
    assert (twice - bank.outputs).abs().max() > 0.1


def test_the_derivative_has_one_more_inverse(generator: Generator) -> None:
    """dL = tr(dR'U) - tr(dG'U W') with U = G^-1 grad L; the paper's V = G^-T (R grad L')."""
    A, T, gradient = draw(generator, 5, 4), draw(generator, 5, 3), draw(generator, 4, 3)
    dA, ridge, step = draw(generator, 5, 4), 0.3, 1e-6

    def weights(shift: float) -> Tensor:
        strength = torch.tensor(ridge, dtype=torch.float64)
        return ridge_solve(A + shift * dA, T, strength).weights[0]

    measured = float((gradient * (weights(step) - weights(-step))).sum()) / (2 * step)
    G = A.T @ A + ridge * torch.eye(4, dtype=torch.float64)
    R = A.T @ T
    dG, dR = dA.T @ A + A.T @ dA, dA.T @ T
    U = torch.linalg.solve(G, gradient)
    W = torch.linalg.solve(G, R)
    ours = float((dR * U).sum() - (dG * (U @ W.T)).sum())
    V = torch.linalg.solve(G.T, R @ gradient.T)
    papers = float((dR * U).sum() - (dG * V).sum())
    assert ours == pytest.approx(measured, rel=1e-6)
    assert abs(papers - measured) > 0.1 * abs(measured)


def test_back_projection_carries_the_mean_with_a_minus(generator: Generator) -> None:
    """[[1, -mu'U], [0, U]] W_z; the paper's [[1, 0], [mu, U]] has not even the right shape."""
    U, _ = torch.linalg.qr(draw(generator, 7, 3))
    mean, W = draw(generator, 7), draw(generator, 4, 2)
    lift = torch.cat(
        [
            torch.cat([torch.ones(1, 1, dtype=torch.float64), -(mean @ U)[None]], dim=1),
            torch.cat([torch.zeros(7, 1, dtype=torch.float64), U], dim=1),
        ]
    )
    papers = torch.cat(
        [
            torch.eye(1, 4, dtype=torch.float64),
            torch.cat([mean[:, None], U], dim=1),
        ]
    )
    X = draw(generator, 9, 7)
    wanted = with_bias((X - mean) @ U) @ W
    torch.testing.assert_close(with_bias(X) @ lift @ W, wanted)
    folded = FeatureMap(mean, torch.ones_like(mean), U).back_project(W)
    torch.testing.assert_close(folded, lift @ W)
    assert (with_bias(X) @ papers @ W - wanted).abs().max() > 0.1


def test_the_listings_solver_is_not_a_cholesky() -> None:
    """An indefinite matrix has no Cholesky factor, and linalg.solve solves it all the same."""
    indefinite = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    _, status = torch.linalg.cholesky_ex(indefinite)
    assert int(status) != 0
    solved = torch.linalg.solve(indefinite, torch.eye(2))
    torch.testing.assert_close(indefinite @ solved, torch.eye(2))


def flops(rows: int, generator: Generator) -> tuple[int, int]:
    """Of the bank pass and of the data pass over so many rows."""
    bank = tanh_bank(generator, ridge=1.0)
    data = Rows(draw(generator, rows, 8), torch.arange(rows) % 3)
    with FlopCounterMode(display=False) as bank_pass:
        weights = solve_weights(bank, Architecture("tanh")).weights
    with FlopCounterMode(display=False) as whole:
        one = [W[None] for W in weights]
        data_pass(data, one, "tanh", Classes(np.arange(3)), chunk=64)
    return bank_pass.get_total_flops(), whole.get_total_flops()


def test_an_epoch_is_linear_in_the_rows_and_only_the_solves_are_not(generator: Generator) -> None:
    (bank_small, data_small), (bank_large, data_large) = (
        flops(256, generator),
        flops(1024, generator),
    )
    assert bank_small == bank_large > 0
    assert data_large == 4 * data_small > bank_small


@pytest.mark.parametrize("smallest", [1.0, 1e-3, 1e-9, 0.0])
def test_the_ridge_bounds_lemma_1_whatever_the_smallest_singular_value(
    smallest: float, generator: Generator
) -> None:
    """C_2 = max s / (s^2 + ridge) <= 1 / (2 sqrt(ridge)), not 1 / s_min; kappa has the ridge in."""
    U, _ = torch.linalg.qr(draw(generator, 3, 3))
    A = (
        U
        @ torch.diag(torch.tensor([4.0, 2.0, smallest], dtype=torch.float64))
        @ torch.eye(3, 5, dtype=torch.float64)
    )
    layer = diagnose_layer(A, draw(generator, 3, 2), ridge=0.25)
    assert layer.sensitivity.to_targets <= 1 / (2 * math.sqrt(0.25))
    G = A.T @ A + 0.25 * torch.eye(5, dtype=torch.float64)
    exact = float(torch.linalg.matrix_norm(torch.linalg.solve(G, A.T), 2))
    assert layer.sensitivity.to_targets == pytest.approx(exact)
    assert layer.system_condition == pytest.approx((16 + 0.25) / (smallest**2 + 0.25))


def test_the_bound_of_proposition_1_can_be_infinite_for_a_network_that_stays_the_same(
    generator: Generator,
) -> None:
    """Every prototype twice and the ridges doubled: the same weights, and a kappa without bound."""
    bank = tanh_bank(generator, ridge=0.5, p=4)
    twice = Bank(
        bank.inputs.repeat(2, 1),
        tuple(H.repeat(2, 1) for H in bank.hidden),
        bank.outputs.repeat(2, 1),
        bank.raw_ridge,
        bank.learnable_ridge,
    )
    doubled = torch.log(torch.expm1(2 * bank.ridge))
    twice = replace(twice, raw_ridge=doubled)
    once, again = (solve_weights(each, Architecture("tanh")).weights for each in (bank, twice))
    for mine, theirs in zip(once, again, strict=True):
        torch.testing.assert_close(mine, theirs)
    kappas = [
        diagnose_layer(with_bias(each.inputs), each.hidden[0], 1.0).condition
        for each in (bank, twice)
    ]
    assert kappas[0] < 1e3
    assert kappas[1] == math.inf


def test_trained_and_shipped_numbers_are_counted_apart() -> None:
    random = np.random.RandomState(0)
    X, y = random.standard_normal((500, 784)), np.arange(500) % 10
    sizes = {"n_prototypes": 150, "hidden_sizes": 512, "n_components": 400, "n_members": 1}
    model = ProtoPINVClassifier(**sizes, max_epochs=1).fit(X, y)
    assert model.n_trained_ == 150 * (400 + 512 + 10) == 138_300
    weights = solve_weights(model.bank_.member(0), Architecture("relu")).weights
    in_pca_space = sum(W.numel() for W in weights)
    assert in_pca_space == 401 * 512 + 513 * 10 == 210_442
    assert model.n_shipped_ == 785 * 512 + 513 * 10 == 407_050


def test_102k_is_10200_units_or_128() -> None:
    random = np.random.RandomState(0)
    X, y = random.standard_normal((100, 784)), np.arange(100) % 10
    assert ELMClassifier(128).fit(X, y).n_shipped_ == 128 * 785 + 129 * 10 == 101_770
    cells = newest_records(RECORDS)["paper-cuda"]["cells"]
    many = cells["test/elm-10200/mnist/seed0"]
    assert many["trained"] == (10_200 + 1) * 10 == 102_010
    assert many["shipped"] == 785 * 10_200 + 102_010
    assert many["test"] > 0.96
    assert cells["test/elm-128/mnist/seed0"]["test"] < 0.9


def test_an_mlp_on_a_gpu_needs_seconds() -> None:
    cells = newest_records(RECORDS)["paper-cuda"]["cells"]
    fits = [cell for key, cell in cells.items() if key.startswith("test/mlp-165/")]
    assert len(fits) == 10
    assert all(cell["seconds"] < 5 for cell in fits)
    assert np.mean([cell["test"] for cell in fits[:5]]) > 0.98


def test_random_linear_features_are_a_linear_model(blobs) -> None:
    X, y = blobs
    model = RandomFeatureRidgeClassifier(300, kind="linear", random_state=0).fit(X, y)
    middle = model.decision_function((X[:40] + X[40:80]) / 2)
    ends = model.decision_function(X[:40]) + model.decision_function(X[40:80])
    np.testing.assert_allclose(middle, ends / 2, rtol=1e-8, atol=1e-10)


def test_the_page_names_every_test_here_and_no_other() -> None:
    page = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    here = {name for name in globals() if name.startswith("test_")}
    assert named == here - {"test_the_page_names_every_test_here_and_no_other"}
