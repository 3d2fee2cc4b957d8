"""Laws of products with rows: every library and order gives the same numbers."""

import numpy as np
import pytest
import torch
from torch import Generator
from torch.utils._python_dispatch import TorchDispatchMode

from protopinv.kernels import switched_off
from protopinv.objective import Classes
from protopinv.solve import LayerSolve
from protopinv.train import products
from protopinv.train.data_pass import data_pass
from protopinv.train.products import as_layers, product, put_product, put_sum
from protopinv.train.rows import Rows


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=dtype)


def solved(
    A: torch.Tensor, T: torch.Tensor, ridge: float, form: str = "dual"
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor] | None]:
    """W, and A and S with W = A'S where there are such."""
    solve = LayerSolve([A], [T], torch.tensor([ridge]), form=form)
    (W,), (S,) = solve.weights, solve.duals
    return W, None if S is None else (A, S)


class Operations(TorchDispatchMode):
    """Writes down the names of the operations done in it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.name().partition(".")[0])
        return func(*args, **(kwargs or {}))


def layouts(M: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same matrix, its numbers lying in memory in different ways."""
    gaps = torch.zeros(len(M), M.shape[1] + 3, dtype=M.dtype)
    gaps[:, 1:-2] = M
    return {"rows": M, "columns": M.T.contiguous().T, "gaps": gaps[:, 1:-2]}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("h", [3, 40])
@pytest.mark.parametrize("x_lies", ["rows", "columns", "gaps"])
@pytest.mark.parametrize("w_lies", ["rows", "columns", "gaps"])
def test_a_product_does_not_depend_on_how_matrices_lie(dtype, h, x_lies, w_lies) -> None:
    X, W, b = (normal(*shape, dtype=dtype) for shape in ((30, 20), (20, h), (h,)))
    exact = X.double() @ W.double() + b.double()
    found = product(layouts(X)[x_lies], layouts(W)[w_lies], b)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)
    total = torch.full((20, h), torch.nan, dtype=dtype)
    put_product(total, layouts(X)[x_lies].T, exact.to(dtype))
    torch.testing.assert_close(total.double(), X.double().T @ exact, rtol=1e-4, atol=1e-3)


@pytest.mark.skipif(products.ONE_DNN is None, reason="needs a torch built with oneDNN")
@pytest.mark.parametrize(
    ("n", "h", "reached"),
    [(2**12, 64, True), (2**8, 64, False), (2**9, 10, True), (2**5, 10, False)],
    ids=["much work", "little work", "few columns", "few columns, little work"],
)
def test_one_dnn_gives_the_same_where_there_is_work_enough(n: int, h: int, reached: bool) -> None:
    X, W, b = (normal(*shape) for shape in ((n, 64), (64, h), (h,)))
    exact = X.double() @ W.double() + b.double()
    layer = products.WideLayer(torch.cat([b[None], W])[None])
    with Operations() as done:
        found, rectified = product(X, W, b), layer.rectified(X)
    assert ("mkldnn::_linear_pointwise" in done.names) == reached == (rectified is not None)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-4)
    if rectified is not None:
        torch.testing.assert_close(rectified.double(), exact.relu(), rtol=1e-5, atol=1e-4)
    with switched_off(), Operations() as plain:
        torch.testing.assert_close(product(X, W, b), found, rtol=1e-5, atol=1e-4)
        assert layer.rectified(X) is None
    assert "mkldnn::_linear_pointwise" not in plain.names


@pytest.mark.skipif(products.ONE_DNN is None, reason="needs a torch built with oneDNN")
@pytest.mark.parametrize("x_lies", ["rows", "columns", "gaps"])
@pytest.mark.parametrize("w_lies", ["rows", "columns", "gaps"])
def test_one_dnn_is_spared_matrices_with_gaps(x_lies: str, w_lies: str) -> None:
    X, W, b = normal(2**12, 64), normal(64, 64), normal(64)
    with Operations() as done:
        found = product(layouts(X)[x_lies], layouts(W)[w_lies], b)
    assert ("mkldnn::_linear_pointwise" in done.names) == ("gaps" not in (x_lies, w_lies))
    exact = X.double() @ W.double() + b.double()
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-4)


def test_sums_of_rough_rows_are_kept_in_the_type_of_the_total() -> None:
    B, total = normal(500, 7), torch.full((1, 7), torch.nan)
    put_sum(total, B.bfloat16())
    torch.testing.assert_close(total[0], B.sum(0), rtol=0.02, atol=0.6)
    assert total.dtype == torch.float32


@pytest.mark.parametrize(("p", "factored"), [(10, True), (90, False)])
def test_rows_go_through_factors_only_where_that_is_less_work(p: int, factored: bool) -> None:
    A, T, X = normal(p, 61), normal(p, 50, seed=1), normal(40, 60, seed=2)
    W, factors = solved(A, T, 5.0)
    assert factors is not None
    (layer,) = as_layers([W[None]], [factors], X)
    assert (layer.factors is not None) == factored
    torch.testing.assert_close(layer(X), X @ W[1:] + W[0], rtol=1e-3, atol=1e-4)
    (rough,) = as_layers([W[None]], [factors], X.bfloat16())
    assert rough.factors is None


@pytest.mark.parametrize("k", [3, 40])
@pytest.mark.parametrize("own_rows", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_layers_of_several_members_are_those_of_each(k: int, own_rows: bool, dtype) -> None:
    m, n, d, h = 3, 30, 20, 17
    W = [normal(m, d + 1, h, dtype=dtype), normal(m, h + 1, k, seed=1, dtype=dtype)]
    X = normal(m, n, d, seed=2, dtype=dtype) if own_rows else normal(n, d, seed=2, dtype=dtype)
    close = {"rtol": 1e-5, "atol": 1e-4}
    first, last = products.as_layers(W, (), X)
    between = first(X)
    outputs, G = last.outputs(between), normal(n, m * k, seed=3, dtype=dtype)
    back = last.back(G, lambda: torch.empty(n, m * h, dtype=dtype))
    totals = [torch.full((m, d, h), torch.nan), torch.full((m, h, k), torch.nan)]
    totals = [total.to(dtype) for total in totals]
    last.put_gradient(totals[1], between, G)
    first.put_gradient(totals[0], X, back)
    for member in range(m):
        Z = X[member] if own_rows else X
        hidden = Z @ W[0][member, 1:] + W[0][member, 0]
        of = slice(member * h, (member + 1) * h), slice(member * k, (member + 1) * k)
        torch.testing.assert_close(between[:, of[0]], hidden, **close)
        expected = hidden @ W[1][member, 1:] + W[1][member, 0]
        torch.testing.assert_close(outputs[member].T, expected, **close)
        behind = G[:, of[1]] @ W[1][member, 1:].T
        torch.testing.assert_close(back[:, of[0]], behind, **close)
        torch.testing.assert_close(totals[1][member], hidden.T @ G[:, of[1]], **close)
        torch.testing.assert_close(totals[0][member], Z.T @ behind, rtol=1e-4, atol=1e-2)


def test_fast_paths_and_plain_ones_give_the_same_gradients() -> None:
    """Chunks are large enough for oneDNN: both layers have the work it needs."""
    n, d, h = 2 * 4096, 60, 80
    A, T, X = normal(10, d + 1), normal(10, h, seed=1), normal(n, d, seed=2)
    W, factors = solved(A, T, 5.0)
    weights = [W[None], normal(1, h + 1, 4, seed=3)]
    rows, objective = Rows(X, torch.arange(n) % 4), Classes(np.arange(4))
    options = {"chunk": n // 2, "factors": [factors, None]}
    with Operations() as done:
        fast = data_pass(rows, weights, "relu", objective, **options)
    assert ("mkldnn::_linear_pointwise" in done.names) == (products.ONE_DNN is not None)
    with switched_off():
        plain = data_pass(rows, weights, "relu", objective, **options)
    torch.testing.assert_close(fast.loss, plain.loss, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(fast.gradients, plain.gradients, rtol=1e-3, atol=1e-5)


def test_only_the_dual_form_has_factors_and_they_make_the_weights() -> None:
    A, T = normal(8, 20), normal(8, 5, seed=1)
    for form in ("dual", "primal", "svd"):
        W, factors = solved(A, T, 0.5, form)
        assert (factors is not None) == (form == "dual")
        if factors is not None:
            torch.testing.assert_close(factors[0].T @ factors[1], W)
