"""Weights of rows: two is the same row twice, zero is no row, at every stage of a training."""

from functools import partial

import numpy as np
import pytest
import torch
from configs import concrete, data_of_arrays, leaves_of
from torch import Generator, Tensor

from protopinv.bank import Bank, balanced_groups, normal_inputs, pick_rows, population, start_bank
from protopinv.features import (
    Squash,
    fit_feature_map,
    fit_wide_feature_map,
    merged_moments,
    moments_of_chunk,
)
from protopinv.network import Architecture, designs_of, propagate, solve_weights
from protopinv.objective import Classes, Labels, Numbers, Objective
from protopinv.solve import spread
from protopinv.train.bank_pass import BankPass, SolverSettings
from protopinv.train.data_pass import data_pass, score_and_loss
from protopinv.train.prepare import first_banks, fit_features, fit_front, prepare, sampled
from protopinv.train.rows import Rows

N, K = 23, 3
CLOSE = {"rtol": 1e-12, "atol": 1e-12}
HOST = torch.device("cpu")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def times_of(n: int = N, seed: int = 0) -> Tensor:
    """How often each row is there: 0 to 3 times."""
    times = torch.randint(4, (n,), generator=Generator().manual_seed(seed))
    times[:2] = torch.tensor([0, 2])
    return times


def weight_of(times: Tensor) -> Tensor:
    """The same as weights, one on average."""
    return times / times.double().mean()


OBJECTIVES: dict[str, tuple[Objective, Tensor]] = {
    "classes": (Classes(np.arange(K), 0.1), torch.arange(N) % K),
    "shares": (Classes(np.arange(K)), torch.softmax(drawn(N, K, seed=5), dim=1)),
    "labels": (Labels(K, 0.1), (drawn(N, K, seed=6) > 0).double()),
    "squared": (Numbers((0.0,) * K, (1.0,) * K, (2.0,) * K, False), drawn(N, K, seed=7)),
    "huber": (Numbers((0.0,) * K, (1.0,) * K, (2.0,) * K, False, "huber"), 3 * drawn(N, K, seed=7)),
}
every_objective = pytest.mark.parametrize(
    ("objective", "y"), OBJECTIVES.values(), ids=OBJECTIVES.keys()
)


def networks(members: int) -> list[Tensor]:
    return [drawn(members, 5, 6, seed=1), drawn(members, 7, K, seed=2)]


@every_objective
@pytest.mark.parametrize("chunk", [4, 100])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_loss_gradients_and_score(objective: Objective, y: Tensor, chunk, activation) -> None:
    X, times = drawn(N, 4), times_of()
    weighted = Rows(X, y, weight_of(times)[None])
    repeated = Rows(X.repeat_interleave(times, 0), y.repeat_interleave(times, 0))
    one, other = (
        data_pass(rows, networks(1), activation, objective, chunk=chunk)
        for rows in (weighted, repeated)
    )
    torch.testing.assert_close(one.loss, other.loss, **CLOSE)
    for mine, theirs in zip(one.gradients, other.gradients, strict=True):
        torch.testing.assert_close(mine, theirs, **CLOSE)
    judged = [
        score_and_loss(rows, networks(1), activation, objective, chunk=chunk)
        for rows in (weighted, repeated)
    ]
    torch.testing.assert_close(*judged, **CLOSE)


@every_objective
@pytest.mark.parametrize("chunk", [4, 100])
@pytest.mark.parametrize("own_rows", [False, True])
def test_every_member_has_weights_of_its_own(
    objective: Objective, y: Tensor, chunk: int, own_rows: bool
) -> None:
    """And rows that it holds out, by which it is judged in the same pass."""
    m, weights = 3, networks(3)
    X = drawn(m, N, 4, seed=3) if own_rows else drawn(N, 4)
    times = torch.stack([times_of(seed=seed) for seed in range(m)])
    weight = torch.stack([weight_of(each) for each in times])
    held = (times == 0).double()
    held = held / held.sum(1, keepdim=True)
    together = data_pass(Rows(X, y, weight, held), weights, "relu", objective, chunk=chunk)
    scores, losses = score_and_loss(Rows(X, y, weight), weights, "relu", objective, chunk=chunk)
    for member in range(m):
        seen = X[member] if own_rows else X
        own = [W[member : member + 1] for W in weights]
        count = times[member]
        rows = Rows(seen.repeat_interleave(count, 0), y.repeat_interleave(count, 0))
        alone = data_pass(rows, own, "relu", objective, chunk=chunk)
        torch.testing.assert_close(together.loss[member], alone.loss[0], **CLOSE)
        for mine, theirs in zip(together.gradients, alone.gradients, strict=True):
            torch.testing.assert_close(mine[member], theirs[0], **CLOSE)
        score, loss = score_and_loss(rows, own, "relu", objective, chunk=chunk)
        torch.testing.assert_close(scores[member], score[0], **CLOSE)
        torch.testing.assert_close(losses[member], loss[0], **CLOSE)
        left = Rows(seen[count == 0], y[count == 0])
        score, loss = score_and_loss(left, own, "relu", objective, chunk=chunk)
        torch.testing.assert_close(together.held[0][member], score[0], **CLOSE)
        torch.testing.assert_close(together.held[1][member], loss[0], **CLOSE)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("pieces", [1, 4])
def test_moments(diagonal: bool, pieces: int) -> None:
    X, Y, times = 100 + drawn(N, 4), drawn(N, 2, seed=1), times_of()
    weight = times.double() / 3
    chunks = X.chunk(pieces), Y.chunk(pieces), weight.chunk(pieces)
    one = merged_moments(map(partial(moments_of_chunk, diagonal=diagonal), *chunks))
    again = (X.repeat_interleave(times, 0), Y.repeat_interleave(times, 0), None)
    other = moments_of_chunk(*again, diagonal=diagonal)
    assert one.n == pytest.approx(other.n / 3)
    torch.testing.assert_close(one.x_mean, other.x_mean, **CLOSE)
    torch.testing.assert_close(one.y_mean, other.y_mean, **CLOSE)
    torch.testing.assert_close(3 * one.x_scatter, other.x_scatter, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(3 * one.xy_scatter, other.xy_scatter, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("scaling", ["none", "global", "feature"])
@pytest.mark.parametrize("projection", ["none", "pca", "pls"])
@pytest.mark.parametrize("d", [4, 40])
def test_feature_maps(scaling: str, projection: str, d: int) -> None:
    """Also of more features than rows, where weights and copies of rows take different ways."""
    X, Y, times = 5 + drawn(N, d), drawn(N, 2, seed=1), times_of()
    options = {"scaling": scaling, "projection": projection, "n_components": 3}
    again = (X.repeat_interleave(times, 0), Y.repeat_interleave(times, 0), None)
    maps = [
        fit_feature_map(moments_of_chunk(X, Y, times.double()), **options),
        fit_feature_map(moments_of_chunk(*again), **options),
    ]
    if projection != "none":
        maps += [
            fit_wide_feature_map(X, Y, times.double(), **options),
            fit_wide_feature_map(*again, **options),
        ]
    expected = maps[0].project(X)
    for features in maps[1:]:
        torch.testing.assert_close(features.project(X), expected, rtol=1e-8, atol=1e-8)


def heavy(n: int) -> Tensor:
    return torch.cat([drawn(n, 2).mul(2).exp(), drawn(n, 1, seed=1)], dim=1)


def test_squashed_columns() -> None:
    X, times = heavy(200), times_of(200)
    one, other = Squash.fit(X, times.double() / 3), Squash.fit(X.repeat_interleave(times, 0))
    assert one.chosen.tolist() == [True, True, False]
    assert torch.equal(one.chosen, other.chosen)
    torch.testing.assert_close(one.features(X), other.features(X), **CLOSE)


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_are_picked(seed: int) -> None:
    X, groups, times = drawn(N, 4), torch.arange(N) % K, times_of()
    again = torch.arange(N).repeat_interleave(times)
    wanted = balanced_groups(20, K)
    one = pick_rows(X, wanted, groups, Generator().manual_seed(seed), weight_of(times))
    other = pick_rows(X[again], wanted, groups[again], Generator().manual_seed(seed))
    assert torch.equal(one, again[other])
    assert (times[one] > 0).all()


def test_heavier_rows_are_picked_more_often() -> None:
    X = drawn(40, 1)
    weight = torch.ones(40)
    weight[7] = 20
    wanted, groups = torch.zeros(60).long(), torch.zeros(40).long()
    picked = pick_rows(X, wanted, groups, Generator().manual_seed(0), weight)
    assert (picked == 7).sum().item() == pytest.approx(20, abs=1)


def test_the_scale_of_normal_inputs() -> None:
    X, times = drawn(N, 4), times_of()
    one = normal_inputs(5, X, Generator().manual_seed(0), weight_of(times))
    other = normal_inputs(5, X.repeat_interleave(times, 0), Generator().manual_seed(0))
    torch.testing.assert_close(one, other, **CLOSE)


@every_objective
@pytest.mark.parametrize("input_init", ["stratified", "normal"])
def test_first_banks(objective: Objective, y: Tensor, input_init: str) -> None:
    if y.dtype.is_floating_point and isinstance(objective, Classes):
        y = y.argmax(1)
    X, times = drawn(N, 4), times_of()
    config = concrete(
        n_prototypes=12,
        hidden_sizes=5,
        input_init=input_init,
        dtype="float64",
    )
    weights = torch.stack([weight_of(times), torch.ones(N)])
    banks = first_banks(Rows(X, y, weights), objective, config, (3, 4))
    again = torch.arange(N).repeat_interleave(times)
    one = first_banks(Rows(X[again], y[again]), objective, config, (3,))
    other = first_banks(Rows(X, y), objective, config, (4,))
    for member, alone in enumerate((one, other)):
        for mine, theirs in zip(banks.trained, alone.trained, strict=True):
            torch.testing.assert_close(mine[member], theirs[0], **CLOSE)


@pytest.mark.parametrize("scaling", ["squash", "feature"])
@pytest.mark.parametrize("projection", ["none", "pca", "pls"])
def test_what_is_prepared(scaling: str, projection: str) -> None:
    X, times = heavy(60).numpy(), times_of(60).numpy()
    y = np.arange(60) % K
    config = concrete(scaling=scaling, projection=projection, dtype="float64")
    objective = Classes(np.arange(K))
    weighted = data_of_arrays(X, y, objective, times / 3)
    repeated = data_of_arrays(X.repeat(times, axis=0), y.repeat(times), objective)
    maps = []
    for source in (weighted, repeated):
        prepared = prepare(source, config, HOST, seed=0)
        front = prepared.front
        seen = torch.from_numpy(X) if front is None else front.features(torch.from_numpy(X))
        assert (front is None) == (scaling != "squash")
        maps.append(prepared.features.project(seen))
        if prepared.rows.weight is not None:
            assert float(prepared.rows.weight.mean()) == pytest.approx(1)
    torch.testing.assert_close(*maps, rtol=1e-9, atol=1e-9)
    assert fit_features(weighted, None, config, HOST).n_components == maps[0].shape[1]


def test_a_stem_is_made_from_rows_that_count() -> None:
    generator = Generator().manual_seed(0)
    X = torch.rand(30, 64, generator=generator).numpy()
    X[::2] = np.nan  # would spoil all filters
    weight = (np.arange(30) % 2).astype(float)
    data = data_of_arrays(X, np.arange(30) % 2, Classes(np.arange(2)), weight)
    config = concrete(
        stem="pca", stem_filters=3, stem_patch=3, stem_pool=2, image_shape=(8, 8), scaling="global"
    )
    stem = fit_front(sampled(data, HOST), config, seed=0)
    assert all(tensor.isfinite().all() for tensor in stem.tensors().values())


SHAPES = {"wide": (6, 9), "square": (6, 5), "tall": (6, 3)}  # prototypes and features
OPTIONS = {
    "plain": {},
    "scale": {"scale": True},
    "ridge": {"learn": True},
    "penalty": {"penalty": 0.1},
    "penalty, ridge, scale": {"penalty": 0.1, "learn": True, "scale": True},
    "temperature": {"temperature": 0.7},
    "normalized": {"normalize": True},
    "all": {"penalty": 0.1, "learn": True, "scale": True, "temperature": 0.7, "normalize": True},
}


def banks(p: int, d: int, hidden: tuple[int, ...], *, learn: bool, scale: bool) -> Bank:
    members = []
    for seed in range(2):
        bank = start_bank(
            drawn(p, d, seed=seed),
            drawn(p, K, seed=10 + seed),
            hidden_sizes=hidden,
            hidden_scale=1.0,
            ridge=(0.7, 0.5, 0.3)[: len(hidden) + 1],
            learn_ridge=(learn,) * (len(hidden) + 1),
            generator=Generator().manual_seed(seed),
            learn_scale=scale,
        )
        if bank.scale is not None:
            bank.scale.copy_(1 + 0.3 * drawn(d, seed=30 + seed))
        members.append(bank)
    return population(members)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("hidden", [(5,), (7, 4)])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("form", ["auto", "dual", "primal", "svd"])
def test_the_gradient_of_the_weighted_loss_in_the_bank_is_that_of_autograd(
    shape: tuple[int, int], hidden: tuple[int, ...], options: dict, form: str
) -> None:
    given = {"learn": False, "scale": False, "penalty": 0.0, "temperature": 0.0, "normalize": False}
    given |= options
    bank = banks(*shape, hidden, learn=given["learn"], scale=given["scale"])
    architecture = Architecture("tanh", given["temperature"], given["normalize"])
    objective = Classes(np.arange(K))
    X, y = drawn(N, shape[1], seed=4), torch.arange(N) % K
    weight = torch.stack([weight_of(times_of(seed=seed)) for seed in range(2)])
    solver = SolverSettings(form, torch.float64)
    solved = BankPass(bank, architecture, solver, [], ridge=bank.ridge)
    passed = data_pass(Rows(X, y, weight), solved.weights, "tanh", objective, chunk=7)
    found, penalty = solved.pullback(
        passed.gradients, with_ridge=given["learn"], condition_penalty=given["penalty"]
    )
    loss = passed.loss if penalty is None else passed.loss + penalty.value
    for member in range(2):
        leaves = leaves_of(bank.member(member))
        solution = solve_weights(leaves, architecture, form=form)
        outputs = propagate(X, solution.weights, "tanh")
        losses = torch.nn.functional.cross_entropy(outputs, y, reduction="none")
        expected = (losses * weight[member]).sum() / N
        designs = designs_of(leaves, architecture)
        if given["penalty"]:
            spreads = [
                spread(A, r, form=form)[0] for A, r in zip(designs, leaves.ridge, strict=True)
            ]
            expected = expected + given["penalty"] * sum(spreads)
        gradients = torch.autograd.grad(expected, leaves.trained, allow_unused=True)
        torch.testing.assert_close(loss[member], expected.detach(), rtol=1e-10, atol=1e-10)
        for mine, theirs in zip(found, gradients, strict=True):
            if mine is None:
                assert not given["learn"]
            else:
                torch.testing.assert_close(mine[member], theirs, rtol=1e-8, atol=1e-10)
