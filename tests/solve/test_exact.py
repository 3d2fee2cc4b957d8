"""Laws of exact products: a solve does not depend on the precision that others have chosen."""

from collections.abc import Iterator

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from protopinv.solve import FORMS, exact_type, ridge_solve, spread

CUDA, CPU = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul


def settings() -> tuple[str, str, str]:
    """The old switch, and the newer ones for each device."""
    try:
        old = torch.get_float32_matmul_precision()
    except RuntimeError:
        old = "refused"
    return old, CUDA.fp32_precision, CPU.fp32_precision


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    torch.backends.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")


class Watch(TorchDispatchMode):
    """Writes down the settings and the type of numbers at every product."""

    def __init__(self) -> None:
        super().__init__()
        self.settings: set[tuple[str, str, str]] = set()
        self.types: set[torch.dtype] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "mm" in func.name():
            self.settings.add(settings())
            self.types |= {part.dtype for part in args if isinstance(part, torch.Tensor)}
        return func(*args, **(kwargs or {}))


def chosen_by_the_old_switch() -> None:
    torch.set_float32_matmul_precision("medium")


def chosen_by_a_setting() -> None:
    CUDA.fp32_precision = "tf32"


def chosen_for_all() -> None:
    """As in a process that never used the old switch."""
    CUDA.fp32_precision = CPU.fp32_precision = "none"
    torch.backends.fp32_precision = "tf32"


def chosen_by_both() -> None:
    torch.set_float32_matmul_precision("high")
    CPU.fp32_precision = "bf16"


CHOICES = [chosen_by_the_old_switch, chosen_by_a_setting, chosen_for_all, chosen_by_both]


def leaves() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    A, T = (torch.randn(6, n, generator=random).requires_grad_() for n in (9, 4))
    return A, T, torch.tensor(0.5, requires_grad=True)


@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize("form", [*FORMS, "spread"])
def test_every_product_of_a_solve_is_exact_and_the_choice_stays_for_all_threads(
    choose, form: str
) -> None:
    choose()
    before = settings()
    A, T, ridge = leaves()
    with Watch() as forward:
        found = spread(A, ridge)[0] if form == "spread" else ridge_solve(A, T, ridge, form=form)
    value = found if form == "spread" else (found.weights[0] ** 3).sum()
    with Watch() as backward:
        value.backward()
    for watch in (forward, backward):
        assert watch.settings == {before}
        assert watch.types == {torch.float64}
    assert settings() == before
    assert value.dtype == torch.float32
    assert A.grad is not None
    assert A.grad.dtype == torch.float32


@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize("form", [*FORMS, "spread"])
def test_a_solve_under_any_choice_is_that_of_float64(choose, form: str) -> None:
    A, T, ridge = (leaf.detach() for leaf in leaves())

    def solved(dtype: torch.dtype) -> torch.Tensor:
        if form == "spread":
            return spread(A.to(dtype), ridge.to(dtype))[0].float()
        return ridge_solve(A, T, ridge, form=form, precision=dtype).weights[0]

    expected = solved(torch.float64)
    choose()
    assert torch.equal(solved(torch.float32), expected)


def test_where_products_are_exact_they_stay_in_float32() -> None:
    torch.set_float32_matmul_precision("highest")
    assert exact_type(torch.float32) == torch.float32
    A, T, ridge = leaves()
    with Watch() as watch:
        ridge_solve(A, T, ridge)
    assert watch.types == {torch.float32}
