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

from benchmarks.baselines.random_hidden import RandomHiddenClassifier
from benchmarks.record import newest_records
from benchmarks.speed.steps import pinv_ridge
from protopinv import ProtoPINVClassifier
from protopinv.bank import Bank, start_bank
from protopinv.diagnose import diagnose_layer
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
    """Without ridge the network interpolates: prototypes go to their outputs. Twice breaks it.

    Eq. (2) has the activation once, so what is solved there fits what is predicted here.
    """
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


def test_the_complexity_leaves_out_the_first_layer(generator: Generator) -> None:
    """Products of the listing's first solve grow with d^2; no term of the paper has d in it."""
    p, h = 20, 16

    def products(d: int) -> int:
        Xp, Hp = draw(generator, p, d), draw(generator, p, h)
        with FlopCounterMode(display=False) as counted:
            pinv_ridge(with_bias(Xp), 1.0) @ Hp
        return int(counted.get_total_flops())

    papers = p * h**2 + h**3
    for d in (64, 256):
        assert products(d) == 2 * p * (d + 1) ** 2 + 2 * p * (d + 1) * h > papers
    assert products(512) > 10 * products(128)


@pytest.mark.parametrize("smallest", [1.0, 1e-3, 1e-9, 0.0])
def test_the_ridge_bounds_lemma_1_whatever_the_smallest_singular_value(
    smallest: float, generator: Generator
) -> None:
    """C_2 = max s / (s^2 + ridge) is below 1 / s_min, and below 1 / (2 sqrt(ridge)) for any s."""
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
    assert smallest * exact <= 1  # what the paper says holds, and says little


def with_singular_values(values: list[float], shape: tuple[int, int], g: Generator) -> Tensor:
    left, _ = torch.linalg.qr(draw(g, shape[0], len(values)))
    right, _ = torch.linalg.qr(draw(g, shape[1], len(values)))
    return (left * torch.tensor(values, dtype=torch.float64)) @ right.T


def largest_response(A: Tensor, T: Tensor, ridge: float) -> float:
    """C_1 itself: the largest ||dW|| for a dA of size one."""

    def weights(design: Tensor) -> Tensor:
        return ridge_solve(design, T, torch.tensor(ridge, dtype=torch.float64)).weights[0]

    jacobian = torch.autograd.functional.jacobian(weights, A)
    return float(torch.linalg.matrix_norm(jacobian.reshape(-1, A.numel()), 2))


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_c1_does_not_grow_with_kappa(shape: tuple[int, int], generator: Generator) -> None:
    """It stays below 2 ||T|| / (s_min^2 + ridge), from kappa = 10 to 10,000 all but unchanged.

    What makes it grow is a small s_min, and even then it stays finite.
    """
    T, ridge, others = draw(generator, shape[0], 3), 0.25, [1.0] * (min(shape) - 1)
    size, same = float(torch.linalg.matrix_norm(T, 2)), Generator()
    found = [
        largest_response(
            with_singular_values([kappa, *others], shape, same.manual_seed(0)), T, ridge
        )
        for kappa in (10.0, 100.0, 1e3, 1e4)
    ]
    assert max(found) <= 2 * size / (1 + ridge)
    assert max(found) < 1.01 * min(found)  # where the lemma has a factor of a thousand
    flat = with_singular_values([4.0, *others[1:], 0.0], shape, generator)
    assert largest_response(flat, T, ridge) <= 2 * size / ridge


def test_the_bound_of_proposition_1_can_be_infinite_for_a_network_that_stays_the_same(
    generator: Generator,
) -> None:
    """Every prototype twice and the ridges doubled: the same weights, and a kappa without bound.

    That takes fewer prototypes than columns; with more of them kappa stays as it is.
    """
    few, many = (kappas_of_a_bank_and_its_double(generator, p) for p in (4, 12))  # of 9 columns
    assert few[0] < 1e3
    assert few[1] == math.inf
    assert many[0] < 1e3
    assert many[1] == pytest.approx(many[0])


def kappas_of_a_bank_and_its_double(generator: Generator, p: int) -> list[float]:
    bank = tanh_bank(generator, ridge=0.5, p=p)
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
    return [
        diagnose_layer(with_bias(each.inputs), each.hidden[0], 1.0).condition
        for each in (bank, twice)
    ]


def test_the_last_term_of_proposition_1_needs_a_bounded_loss() -> None:
    """One network that is fixed beforehand, so that nothing but the last term stands between.

    A hundredth of all rows is of another class, and the network is sure that none is. More than
    half of all samples of 50 rows hold none of them; in each of these the gap is above the term.
    """
    sure, rare, n, delta = 40.0, 0.01, 50, 0.05
    outputs = torch.tensor([[sure, 0.0]], dtype=torch.float64)
    common_loss, rare_loss = (
        float(torch.nn.functional.cross_entropy(outputs, torch.tensor([label]))) for label in (0, 1)
    )
    expected = (1 - rare) * common_loss + rare * rare_loss
    gap = expected - common_loss
    term = math.sqrt(math.log(1 / delta) / (2 * n))
    assert (1 - rare) ** n > delta
    assert gap > term
    assert rare * 1.0 < term  # with a loss of at most one it would hold


def test_the_listing_overwrites_what_it_calls_next() -> None:
    """F is torch.nn.functional until a line of the listing makes it the training rows."""
    X_train, y_train = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
    listing = "F = add_bias(X_train)\nloss = F.cross_entropy(F[:, :2], y_train)"
    names = {"F": torch.nn.functional, "torch": torch, "add_bias": with_bias}
    names |= {"X_train": X_train, "y_train": y_train}
    with pytest.raises(AttributeError, match="cross_entropy"):
        exec(listing, names)
    exec(listing.replace("loss = F.", "loss = torch.nn.functional."), names)
    assert torch.isfinite(names["loss"])


def test_130k_and_138k_are_two_counts() -> None:
    """The abstract's number is that of the MLP; ours is what the table says."""
    ours, mlp = 150 * (400 + 512 + 10), 785 * 165 + 166 * 10
    assert (ours, mlp) == (138_300, 131_185)
    cells = newest_records(RECORDS)["paper-cuda"]["cells"]
    assert cells["test/protopinv/mnist/seed0"]["trained"] == ours
    assert cells["test/mlp-165/mnist/seed0"]["trained"] == mlp
    assert abs(ours / 130_000 - 1) > 0.05 > abs(mlp / 130_000 - 1)


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
    assert RandomHiddenClassifier(128).fit(X, y).n_shipped_ == 128 * 785 + 129 * 10 == 101_770
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
    assert np.median([cell["seconds"] for cell in fits]) < 5  # the first of all also compiles
    assert np.mean([cell["test"] for cell in fits[:5]]) > 0.98


def test_random_linear_features_are_a_linear_model(blobs) -> None:
    X, y = blobs
    model = RandomHiddenClassifier(300, activation="identity", random_state=0).fit(X, y)
    middle = model.decision_function((X[:40] + X[40:80]) / 2)
    ends = model.decision_function(X[:40]) + model.decision_function(X[40:80])
    np.testing.assert_allclose(middle, ends / 2, rtol=1e-8, atol=1e-10)


def test_the_page_names_every_test_here_and_no_other() -> None:
    page = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    here = {name for name in globals() if name.startswith("test_")}
    assert named == here - {"test_the_page_names_every_test_here_and_no_other"}
