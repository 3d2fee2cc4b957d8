"""Piecewise-linear encoding: what steps say of a number, and that they follow rows and weights."""

import pytest
import torch
from torch import Generator

from protopinv.features.steps import MOST_STEPS, Steps


def rows(n: int = 600) -> torch.Tensor:
    """A normal column, one of two values, one of five, a heavy tail, and a constant."""
    generator = Generator().manual_seed(0)
    normal = torch.randn(n, generator=generator, dtype=torch.float64)
    coin = (torch.rand(n, generator=generator) < 0.3).double()
    dice = torch.randint(5, (n,), generator=generator).double()
    return torch.stack([normal, coin, dice, torch.exp(3 * normal.flip(0)), 0 * normal], dim=1)


def made(*, alone: bool = False, weight: torch.Tensor | None = None) -> Steps:
    steps = Steps.fit(rows(), weight, alone=alone)
    assert steps is not None
    return steps


def test_each_step_rises_once_from_its_low_to_its_high_end() -> None:
    steps = Steps(
        1,
        torch.tensor([0]),
        torch.tensor([0, 0]),
        torch.tensor([0.0, 1.0]),
        torch.tensor([1.0, 3.0]),
        torch.zeros(2),
        torch.ones(2),
    )
    X = torch.tensor([[-5.0], [0.0], [0.25], [1.0], [2.0], [9.0]])
    expected = torch.tensor([[0, 0], [0, 0], [0.25, 0], [1, 0], [1, 0.5], [1, 1]])
    torch.testing.assert_close(steps(X), torch.cat([X, expected], 1))


def test_columns_of_two_values_have_no_steps() -> None:
    steps = made()
    assert steps.raw.tolist() == [0, 1, 2, 3, 4]
    assert steps.column.bincount(minlength=5).tolist() == [MOST_STEPS, 0, 4, MOST_STEPS, 0]


def test_alone_only_columns_without_steps_stay() -> None:
    assert made(alone=True).raw.tolist() == [1, 4]


def test_steps_are_standardised() -> None:
    rises = made()(rows())[:, 5:]
    torch.testing.assert_close(rises.mean(0), torch.zeros_like(rises[0]), atol=1e-9, rtol=0)
    torch.testing.assert_close(rises.std(0, correction=0), torch.ones_like(rises[0]))


def test_a_row_of_weight_two_is_the_row_twice() -> None:
    weight = torch.ones(600, dtype=torch.float64)
    weight[:200] = 2
    one, two = Steps.fit(rows(), weight), Steps.fit(torch.cat([rows(), rows()[:200]]))
    assert one is not None
    assert two is not None
    for name, tensor in one.tensors().items():
        torch.testing.assert_close(tensor, two.tensors()[name])


@pytest.mark.parametrize("alone", [False, True])
def test_restored_rows_are_the_rows_within_the_range_of_training(alone: bool) -> None:
    steps = made(alone=alone)
    torch.testing.assert_close(steps.restored(steps(rows())), rows())


def test_factors_of_columns_change_no_step() -> None:
    factors = torch.tensor([2.0, 3.0, 0.5, 10.0, 1.0], dtype=torch.float64)
    steps, r = made(), 5
    torch.testing.assert_close(
        steps.rescaled(factors)(rows() * factors)[:, r:], steps(rows())[:, r:]
    )


@pytest.mark.parametrize("alone", [False, True])
def test_further_columns_change_no_feature_that_was_there(alone: bool) -> None:
    steps, places = made(alone=alone), torch.tensor([1, 2, 4, 5, 6])
    wider, where = steps.widened(places, 8)
    X = torch.zeros(600, 8, dtype=torch.float64)
    X[:, places] = rows()
    torch.testing.assert_close(wider(X)[:, where], steps(rows()))
    assert wider.n_outputs == steps.n_outputs + 3


def test_what_goes_to_a_file_comes_back() -> None:
    steps = made()
    back = Steps.from_tensors(steps.tensors(), 5)
    torch.testing.assert_close(back(rows()), steps(rows()))
    assert back.fault() is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("column", torch.tensor([7])),
        ("raw", torch.tensor([-1])),
        ("low", torch.tensor([torch.nan])),
        ("high", torch.tensor([-1e9])),
        ("scale", torch.tensor([0.0])),
        ("mean", torch.tensor([torch.inf])),
    ],
)
def test_damage_is_a_fault(name: str, value: torch.Tensor) -> None:
    tensors = made().tensors()
    tensors[name] = value.to(tensors[name]).expand(tensors[name].shape)
    assert Steps.from_tensors(tensors, 5).fault() is not None


def test_few_rows_and_many_columns_have_few_steps_or_none() -> None:
    generator = Generator().manual_seed(0)
    few = Steps.fit(torch.randn(60, 2, generator=generator))
    assert few is not None
    assert few.column.bincount().tolist() == [3, 3]
    assert Steps.fit(torch.randn(60, 500, generator=generator)) is None


@pytest.mark.parametrize("alone", [False, True])
def test_marked_columns_stay_as_they_are(alone: bool) -> None:
    steps = Steps.fit(rows(), alone=alone, but=(True, False, False))
    assert steps is not None
    assert steps.column.bincount(minlength=5).tolist() == [0, 0, 4, MOST_STEPS, 0]
    assert 0 in steps.raw.tolist()


def test_numbers_that_float32_cannot_tell_apart_are_one_border() -> None:
    X = torch.tensor([0.0, 1.0, 1.0 + 1e-9, 2.0]).double().repeat(50)[:, None]
    steps = Steps.fit(X)
    assert steps is not None
    assert len(steps.column) == 2
