"""Laws of the solve: the forms agree, the normal equations hold, the derivative is exact."""

import gc
import weakref

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from protopinv.solve import FORMS, ridge_solve, solve_layers

SHAPES = {"wide": (7, 12), "tall": (12, 7), "square": (9, 9)}


def problem(
    p: int, d: int, h: int = 4, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(p * 100 + d)
    A = torch.randn(p, d, generator=random, dtype=torch.float64)
    T = torch.randn(p, h, generator=random, dtype=torch.float64)
    return A.to(dtype), T.to(dtype), torch.tensor(0.3, dtype=dtype)


def conditioned(p: int, d: int, condition: float) -> Tensor:
    """A float64 design whose singular values fall from 10 to 10 / condition."""
    random = torch.Generator().manual_seed(1)
    rank = min(p, d)
    left, _ = torch.linalg.qr(torch.randn(p, rank, generator=random, dtype=torch.float64))
    right, _ = torch.linalg.qr(torch.randn(d, rank, generator=random, dtype=torch.float64))
    powers = torch.linspace(0, 1, rank, dtype=torch.float64)
    return 10 * left * condition**-powers @ right.T


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_normal_equations_hold(form: str, shape: tuple[int, int]) -> None:
    A, T, ridge = problem(*shape)
    W = ridge_solve(A, T, ridge, form=form).weights[0]
    torch.testing.assert_close(A.T @ (A @ W - T) + ridge * W, torch.zeros_like(W))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_forms_agree_forward_and_backward(form: str, shape: tuple[int, int]) -> None:
    def solve_and_pull(name: str) -> list[Tensor]:
        leaves = [tensor.requires_grad_() for tensor in problem(*shape)]
        W = ridge_solve(*leaves, form=name).weights[0]
        return [W.detach(), *torch.autograd.grad((W**3).sum(), leaves)]

    for mine, theirs in zip(solve_and_pull(form), solve_and_pull("svd"), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("form", [*FORMS, "auto"])
def test_derivative_is_exact_in_design_target_and_ridge(form: str, shape: tuple[int, int]) -> None:
    leaves = [tensor.requires_grad_() for tensor in problem(*shape)]
    assert torch.autograd.gradcheck(
        lambda A, T, ridge: ridge_solve(A, T, ridge, form=form).weights[0], leaves
    )


@pytest.mark.parametrize("form", FORMS)
def test_derivative_equals_autograd_through_a_plain_solve(form: str) -> None:
    A, T, ridge = (tensor.requires_grad_() for tensor in problem(6, 8))
    W = ridge_solve(A, T, ridge, form=form).weights[0]
    plain = torch.linalg.solve(A.T @ A + ridge * torch.eye(8, dtype=A.dtype), A.T @ T)
    torch.testing.assert_close(W, plain)
    for mine, theirs in zip(
        torch.autograd.grad(W.square().sum(), (A, T, ridge)),
        torch.autograd.grad(plain.square().sum(), (A, T, ridge)),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("form", FORMS)
def test_duplicated_prototypes_have_finite_and_equal_gradients(form: str) -> None:
    A, T, ridge = problem(5, 8)
    A, T = A.repeat(2, 1).requires_grad_(), T.repeat(2, 1).requires_grad_()
    ridge_solve(A, T, ridge, form=form).weights[0].square().sum().backward()
    for gradient in (A.grad, T.grad):
        assert gradient is not None
        assert gradient.isfinite().all()
        torch.testing.assert_close(gradient[:5], gradient[5:])


def test_layers_solved_together_equal_layers_solved_apart() -> None:
    shapes = [(6, 9, 4), (6, 5, 3), (6, 12, 2)]  # dual, primal, dual
    designs, targets, _ = zip(*(problem(*shape) for shape in shapes), strict=True)
    ridges = torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64)
    together = solve_layers(designs, targets, ridges)
    for layer, (A, T) in enumerate(zip(designs, targets, strict=True)):
        apart = ridge_solve(A, T, ridges[layer])
        torch.testing.assert_close(together.weights[layer], apart.weights[0])
        torch.testing.assert_close(together.error[layer], apart.error[0])


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_cholesky_that_lost_its_digits_says_so(shape: tuple[int, int]) -> None:
    """The case of a float32 Cholesky that succeeds and is tens of percent wrong."""
    A = conditioned(*shape, condition=1e4)
    T = problem(*shape)[1]
    ridge = torch.tensor(1e-8)
    exact = ridge_solve(A, T, ridge.double(), form="svd").weights[0]

    def relative_error(W: Tensor) -> float:
        return float((W.double() - exact).norm() / exact.norm())

    cholesky = ridge_solve(A.float(), T.float(), ridge)
    assert relative_error(cholesky.weights[0]) > 0.05
    assert cholesky.error.item() > 1
    for better in (
        ridge_solve(A.float(), T.float(), ridge, form="svd"),
        ridge_solve(A.float(), T.float(), ridge, precision=torch.float64),
    ):
        assert relative_error(better.weights[0]) < 1e-2
        assert better.error.item() < 0.05


@pytest.mark.parametrize("condition", [1e1, 1e2, 1e3, 1e4])
@pytest.mark.parametrize("ridge", [1.0, 1e-2, 1e-4])
def test_the_error_estimate_of_cholesky_bounds_the_true_error(
    condition: float, ridge: float
) -> None:
    A, T = conditioned(20, 30, condition), problem(20, 30)[1]
    exact = ridge_solve(A, T, torch.tensor(ridge, dtype=torch.float64), form="svd").weights[0]
    solution = ridge_solve(A.float(), T.float(), torch.tensor(ridge))
    true = (solution.weights[0].double() - exact).norm() / exact.norm()
    assert true < solution.error.item() < 1000 * true


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_failure_is_a_status_and_not_an_exception(form: str, bad: float) -> None:
    A, T, ridge = problem(6, 8)
    A[2, 3] = bad
    assert ridge_solve(A, T, ridge, form=form).error.item() == torch.inf


def test_the_failure_of_one_layer_leaves_the_others_alone() -> None:
    good, bad = problem(6, 8), problem(6, 9)
    bad[0][0, 0] = torch.nan
    solution = solve_layers([good[0], bad[0]], [good[1], bad[1]], good[2].repeat(2))
    assert solution.error[0] < 1e-6
    assert solution.error[1] == torch.inf
    torch.testing.assert_close(solution.weights[0], ridge_solve(*good).weights[0])


def test_the_svd_form_takes_values_that_cannot_be_squared() -> None:
    A, T, ridge = problem(6, 8, dtype=torch.float32)
    solution = ridge_solve(A * 1e20, T, ridge, form="svd")
    exact = ridge_solve(A.double() * 1e20, T.double(), ridge.double(), form="svd")
    torch.testing.assert_close(solution.weights[0].double(), exact.weights[0], rtol=1e-3, atol=0)
    assert 0 < solution.error.item() < 1e-3


class CountCalls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_one_factorisation_serves_all_dual_layers_forward_and_backward() -> None:
    designs, targets, _ = zip(*(problem(6, d) for d in (8, 12, 20)), strict=True)
    leaves = [A.requires_grad_() for A in designs]
    with CountCalls() as calls:
        solution = solve_layers(leaves, targets, torch.ones(3, dtype=torch.float64))
        sum(W.sum() for W in solution.weights).backward()
    assert calls.names.count("linalg_cholesky_ex") == 1


def test_weights_come_back_in_the_type_of_the_design() -> None:
    solution = ridge_solve(*problem(6, 8, dtype=torch.float32), precision=torch.float64)
    assert solution.weights[0].dtype == torch.float32


@pytest.mark.parametrize("form", FORMS)
def test_a_solve_is_freed_without_the_garbage_collector(form: str) -> None:
    A, T, ridge = (tensor.requires_grad_() for tensor in problem(6, 8))
    gc.disable()
    try:
        W = ridge_solve(A, T, ridge, form=form).weights[0]
        node = weakref.ref(W.grad_fn)
        del W
        assert node() is None
    finally:
        gc.enable()
