"""Laws of objectives: gradients, losses by a reference, units, and the best constant."""

import numpy as np
import pytest
import torch
from configs import numbers_of_targets
from torch import Generator, Tensor
from torch.nn import functional

from protopinv.objective import Classes, Labels, Numbers, Objective

N, K, MEMBERS = 17, 3, 2


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def labels_of(n: int = N) -> Tensor:
    return torch.arange(n) % K


def shares_of(n: int = N) -> Tensor:
    return torch.softmax(drawn(n, K, seed=5), dim=1)


def matrix_of(n: int = N) -> Tensor:
    return (drawn(n, K, seed=6) > 0.3).double()


def numbers(loss: str, k: int = K) -> Numbers:
    return Numbers((1.0,) * k, (2.0,) * k, (1.5,) * k, is_column=False, loss=loss)


CASES: dict[str, tuple[Objective, Tensor]] = {
    "classes": (Classes(np.arange(K)), labels_of()),
    "smoothed": (Classes(np.arange(K), 0.1), labels_of()),
    "shares": (Classes(np.arange(K)), shares_of()),
    "shares, smoothed": (Classes(np.arange(K), 0.1), shares_of()),
    "labels": (Labels(K), matrix_of()),
    "labels, smoothed": (Labels(K, 0.1), matrix_of()),
    "squared": (numbers("squared"), 3 * drawn(N, K, seed=7)),
    "huber": (numbers("huber"), 3 * drawn(N, K, seed=7)),
}
every_case = pytest.mark.parametrize(("objective", "targets"), CASES.values(), ids=CASES)


@every_case
def test_the_gradient_is_that_of_the_losses(objective: Objective, targets: Tensor) -> None:
    outputs = drawn(MEMBERS, K, N, seed=1)
    judged = objective.judge(outputs.clone(), targets)

    def losses(given: Tensor) -> Tensor:
        return objective.judge(given, targets).losses.sum()

    step = 1e-6
    for place in [(0, 0, 0), (1, 2, 3), (0, 1, N - 1), (1, 0, 5)]:
        moved = torch.zeros_like(outputs)
        moved[place] = step
        slope = (losses(outputs + moved) - losses(outputs - moved)) / (2 * step)
        assert float(judged.gradient[place]) == pytest.approx(float(slope), abs=1e-7)
    leaf = outputs.clone().requires_grad_()
    (expected,) = torch.autograd.grad(reference(objective, leaf, targets).sum(), leaf)
    torch.testing.assert_close(judged.gradient, expected, rtol=1e-12, atol=1e-12)


def reference(
    objective: Objective, outputs: Tensor, targets: Tensor, smooth: bool = True
) -> Tensor:
    """The losses of every member and row, by torch's own functions."""
    found = []
    for member, given in enumerate(outputs):
        knob = getattr(objective, "label_smoothing", 0.0)
        share = float(knob[member]) if isinstance(knob, Tensor) else knob
        share = share if smooth else 0.0
        if isinstance(objective, Classes):
            losses = functional.cross_entropy(
                given.T, targets, reduction="none", label_smoothing=share
            )
        elif isinstance(objective, Labels):
            soft = targets * (1 - share) + share / 2
            losses = functional.binary_cross_entropy_with_logits(
                given.T, soft, reduction="none"
            ).mean(1)
        elif objective.loss == "squared":
            losses = functional.mse_loss(given.T, targets, reduction="none").mean(1)
        else:  # torch has half of it
            losses = 2 * functional.huber_loss(given.T, targets, reduction="none").mean(1)
        found.append(losses)
    return torch.stack(found)


@every_case
def test_losses_are_those_of_torch_and_plain_ones_know_no_smoothing(
    objective: Objective, targets: Tensor
) -> None:
    outputs = drawn(MEMBERS, K, N, seed=1)
    judged = objective.judge(outputs.clone(), targets)
    close = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(judged.losses, reference(objective, outputs, targets), **close)
    plain = reference(objective, outputs, targets, smooth=False)
    torch.testing.assert_close(judged.plain, plain, **close)


@every_case
def test_outputs_and_targets_are_left_alone(objective: Objective, targets: Tensor) -> None:
    outputs, before = drawn(MEMBERS, K, N, seed=1), targets.clone()
    objective.judge(outputs, targets)
    objective.scores(outputs, targets)
    assert torch.equal(outputs, drawn(MEMBERS, K, N, seed=1))
    assert torch.equal(targets, before)


@pytest.mark.parametrize("size", [1e3, 1e6])
@every_case
def test_huge_outputs_give_finite_losses(
    objective: Objective, targets: Tensor, size: float
) -> None:
    judged = objective.judge(size * drawn(MEMBERS, K, N, seed=1), targets)
    for found in (judged.losses, judged.plain, judged.gradient):
        assert found.isfinite().all()


@every_case
def test_every_member_is_judged_as_if_it_were_alone(objective: Objective, targets: Tensor) -> None:
    outputs = drawn(MEMBERS, K, N, seed=1)
    together = objective.judge(outputs.clone(), targets)
    for member in range(MEMBERS):
        alone = objective.judge(outputs[member : member + 1].clone(), targets)
        for name in ("losses", "gradient", "plain"):
            mine, theirs = getattr(together, name)[member], getattr(alone, name)[0]
            torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "y",
    [
        np.array(["bee", "ant", "cat", "ant"]),
        np.array(["bee", "ant", "cat", "ant"], dtype=object),
        np.array([10**12, -5, 0, -5]),
        np.array([2.5, 1.0, 3.0, 1.0]),
        np.array([True, False, True, False]),
    ],
    ids=["str", "object", "int", "float", "bool"],
)
def test_classes_come_back_as_they_were(y: np.ndarray) -> None:
    objective = Classes(np.unique(y))
    codes = torch.from_numpy(objective.encode(y))
    back = objective.decode(functional.one_hot(codes, objective.n_outputs).double().numpy())
    assert back.tolist() == y.tolist()
    assert back.dtype == y.dtype


def test_labels_come_back_as_they_were() -> None:
    y = matrix_of().numpy().astype(int)
    objective = Labels(K)
    outputs = objective.first_outputs(torch.zeros(N).long(), torch.from_numpy(objective.encode(y)))
    np.testing.assert_array_equal(objective.decode(outputs.double().numpy()), y)


@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("k", [0, 1, 3])
def test_numbers_come_back_as_they_were(loss: str, k: int) -> None:
    """0: a plain list of numbers."""
    y = 1e6 + 50 * drawn(40, *([k] if k else []), seed=3).numpy()
    objective = numbers_of_targets(y, None, loss)
    scaled = objective.encode(y)
    assert scaled.shape == (40, max(k, 1))
    assert np.abs(scaled).max() < 10
    if loss == "squared":
        np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-9)
        np.testing.assert_allclose(scaled.std(0), 1)
    # the network that answers with what it is given, in scaled units, then folded
    identity = torch.cat([torch.zeros(1, max(k, 1)), torch.eye(max(k, 1))]).double()
    W = objective.fold(identity)
    outputs = (W[0] + torch.from_numpy(scaled) @ W[1:]).numpy()
    back = objective.decode(outputs)
    assert back.shape == y.shape
    np.testing.assert_allclose(back, y, rtol=1e-12)


@pytest.mark.parametrize("objective", [Classes(np.arange(K)), Labels(K)], ids=["classes", "labels"])
def test_folding_changes_nothing_where_there_are_no_units(objective: Objective) -> None:
    W = drawn(5, K)
    assert torch.equal(objective.fold(W), W)


CONSTANTS = {
    name: CASES[name] for name in ("classes", "labels", "squared", "smoothed", "labels, smoothed")
}


@pytest.mark.parametrize(("objective", "targets"), CONSTANTS.values(), ids=CONSTANTS)
def test_no_other_constant_is_better(objective: Objective, targets: Tensor) -> None:
    weight = drawn(N, seed=9).square()
    weight = weight / weight.sum()
    best = objective.constant(targets, weight)

    def loss(constant: Tensor) -> float:
        outputs = constant[None, :, None].expand(1, -1, N).contiguous()
        return float(objective.judge(outputs, targets).losses[0] @ weight)

    lowest = loss(best)
    assert objective.constant_loss(targets, weight) == pytest.approx(lowest, rel=1e-12)
    assert objective.constant_loss(targets, 7 * weight) == pytest.approx(lowest, rel=1e-12)
    for seed in range(20):
        moved = drawn(K, seed=20 + seed)
        moved = moved - moved.mean() if isinstance(objective, Classes) else moved
        assert loss(best + 0.1 * moved) > lowest
        assert loss(best + 1e-3 * moved) > lowest


def test_the_median_is_close_to_the_best_constant_for_huber_loss() -> None:
    y = drawn(400, 1, seed=4).numpy() ** 3
    objective = numbers_of_targets(y, None, "huber")
    targets = torch.from_numpy(objective.encode(y))
    assert (objective.constant(targets, torch.full((400,), 1 / 400)) == 0).all()
    grid = torch.linspace(-3, 3, 601, dtype=torch.float64)
    outputs = grid[:, None, None].expand(-1, 1, 400).contiguous()
    losses = objective.judge(outputs, targets).plain.mean(1)
    assert objective.constant_loss(targets, None) < 1.05 * float(losses.min())


@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("seed", range(4))
def test_a_weight_of_two_is_the_same_number_twice(loss: str, seed: int) -> None:
    random = np.random.RandomState(seed)
    y, weight = 1e3 + random.standard_normal((30, 2)) ** 3, random.randint(0, 4, 30)
    weighted = numbers_of_targets(y, weight / weight.max(), loss)
    repeated = numbers_of_targets(y.repeat(weight, axis=0), None, loss)
    for name in ("centre", "spread", "variance"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(repeated, name), rtol=1e-11)


@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("value", [0.0, 1e9, 0.1])
def test_numbers_that_never_vary_are_only_shifted(loss: str, value: float) -> None:
    objective = numbers_of_targets(np.full(50, value), None, loss)
    assert objective.spread == (1.0,)
    np.testing.assert_allclose(objective.encode(np.full(50, value)), 0, atol=1e-6)


def test_the_score_of_numbers_is_r2_and_that_of_classes_their_accuracy() -> None:
    from sklearn.metrics import accuracy_score, r2_score

    y = 5 + 3 * drawn(60, 2, seed=2).numpy()
    objective = numbers_of_targets(y, None, "squared")
    targets, outputs = torch.from_numpy(objective.encode(y)), drawn(2, 2, 60, seed=3)
    for member in range(2):
        predicted = outputs[member].T.numpy() * objective.spread + objective.centre
        found = float(objective.scores(outputs, targets)[member].mean())
        assert found == pytest.approx(r2_score(y, predicted))
    outputs = drawn(MEMBERS, K, N, seed=3)
    for targets in (labels_of(), functional.one_hot(labels_of(), K).double()):
        found = Classes(np.arange(K)).scores(outputs, targets).mean(1)
        expected = [accuracy_score(labels_of(), each.argmax(0)) for each in outputs]
        np.testing.assert_allclose(found, expected)
    found = Labels(K).scores(outputs, matrix_of()).mean(1)
    expected = [((each.T > 0) == (matrix_of() > 0)).double().mean() for each in outputs]
    np.testing.assert_allclose(found, expected)


@every_case
def test_dense_targets_are_judged_alike(objective: Objective, targets: Tensor) -> None:
    outputs, dense = drawn(MEMBERS, K, N, seed=1), objective.dense(targets, torch.float64)
    close = {"rtol": 1e-12, "atol": 1e-12}
    one, other = (objective.judge(outputs.clone(), y) for y in (targets, dense))
    torch.testing.assert_close(one.losses, other.losses, **close)
    torch.testing.assert_close(one.gradient, other.gradient, **close)
    assert torch.equal(objective.scores(outputs, targets), objective.scores(outputs, dense))
    assert torch.equal(objective.groups(targets), objective.groups(dense))


@every_case
def test_a_share_of_another_row_is_mixed_in_between(objective: Objective, targets: Tensor) -> None:
    others = targets.flip(0)
    ends = [objective.mixed(targets, others, torch.full((N, 1), s).double()) for s in (0, 1, 0.25)]
    torch.testing.assert_close(ends[2], 0.75 * ends[0] + 0.25 * ends[1])
    outputs = drawn(MEMBERS, K, N, seed=1)
    for mixed, given in zip(ends, (targets, others), strict=False):
        one, other = (objective.judge(outputs.clone(), y).losses for y in (mixed, given))
        torch.testing.assert_close(one, other)


def test_what_a_file_holds_is_plain_json() -> None:
    import json

    for objective in (Classes(np.array(["a", "b"])), Labels(3), numbers("huber")):
        text = json.dumps(objective.describe())
        assert json.loads(text) == objective.describe()
