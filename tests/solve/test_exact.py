"""Laws of exact products: a solve does not depend on the precision that others have chosen."""

from collections.abc import Iterator

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from protopinv.solve import FORMS, ridge_solve, spread
from protopinv.solve.exact import exact_products

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
    """Writes down the settings at every product."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[str, str, str]] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "mm" in func.name():
            self.seen.add(settings())
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
def test_every_product_of_a_solve_is_exact_and_the_choice_is_put_back(choose, form: str) -> None:
    choose()
    before = settings()
    A, T, ridge = leaves()
    with Watch() as forward:
        found = spread(A, ridge)[0] if form == "spread" else ridge_solve(A, T, ridge, form=form)
    value = found if form == "spread" else (found.weights[0] ** 3).sum()
    assert settings() == before
    with Watch() as backward:
        value.backward()
    assert settings() == before
    for watch in (forward, backward):
        assert watch.seen
        for _, *newer in watch.seen:
            assert set(newer) <= {"ieee", "none"}
    assert A.grad is not None


@pytest.mark.parametrize("choose", CHOICES)
def test_the_choice_is_put_back_after_an_error(choose) -> None:
    choose()
    before = settings()
    with pytest.raises(ZeroDivisionError), exact_products():
        _ = 1 / 0
    assert settings() == before


def test_what_was_left_to_the_setting_above_still_follows_it() -> None:
    chosen_for_all()
    with exact_products():
        assert settings()[1:] == ("ieee", "ieee")
    torch.backends.fp32_precision = "ieee"
    assert settings() == ("highest", "ieee", "ieee")


def test_where_products_are_exact_nothing_is_touched() -> None:
    torch.set_float32_matmul_precision("highest")
    before = settings()
    with exact_products():
        assert settings() == before
