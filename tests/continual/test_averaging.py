"""The mean of the banks of the last calls, and when it begins anew."""

from dataclasses import replace

import pytest
import torch
from configs import numbers_of_targets
from torch import Generator, Tensor

from protopinv.bank import Bank, population, start_bank
from protopinv.continual.banks import answers
from protopinv.continual.replay import New, State
from protopinv.continual.update import LEAST_SHARE, between, followed_by, reviewed
from protopinv.memory import begin_memory
from protopinv.network import Architecture

ARCHITECTURE = Architecture("tanh")
ROWS = torch.randn(100, 4, generator=Generator().manual_seed(5), dtype=torch.float64)


def bank(seed: int) -> Bank:
    generator = Generator().manual_seed(seed)
    inputs = torch.randn(10, 4, generator=generator, dtype=torch.float64)
    outputs = torch.randn(10, 2, generator=generator, dtype=torch.float64)
    options = {"hidden_scale": 1.0, "ridge": [0.1] * 2, "learn_ridge": [False] * 2}
    return population(
        [start_bank(inputs, outputs, hidden_sizes=(6,), generator=generator, **options)]
    )


def state(first: Bank) -> State:
    ones = torch.ones(len(ROWS), dtype=torch.float64)
    memory = begin_memory(
        ROWS,
        ones.long() * 0,
        ones,
        n_groups=1,
        limit=500,
        generator=Generator().manual_seed(0),
    )
    objective = numbers_of_targets(torch.randn(50, 2).double().numpy(), None, "squared")
    return State(first, memory, objective)


def same(first: Bank, second: Bank) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first.trained, second.trained, strict=True))


def new(targets: Tensor) -> New:
    return New(ROWS, targets, torch.ones(len(ROWS), dtype=torch.float64))


def test_the_first_call_counts_in_full_and_the_others_are_averaged() -> None:
    banks = [bank(seed) for seed in range(4)]
    now = followed_by(state(banks[0]), banks[1], 0.0)
    assert same(now.bank, banks[1])
    assert now.last is None
    for trained in banks[2:]:
        now = followed_by(now, trained, 0.0)
    mean = torch.stack([b.inputs for b in banks[1:]]).mean(0)
    torch.testing.assert_close(now.bank.inputs, mean)
    assert same(now.to_train, banks[3])
    assert now.n_calls == 3


def test_a_late_call_counts_as_much_as_a_tenth() -> None:
    late = replace(state(bank(0)), n_calls=500)
    found = followed_by(late, bank(1), 0.0).bank
    assert same(found, between(bank(0), bank(1), LEAST_SHARE))


def test_what_is_forgotten_of_the_memory_is_forgotten_of_the_mean() -> None:
    late = replace(state(bank(0)), n_calls=500)
    assert same(followed_by(late, bank(1), 0.6).bank, between(bank(0), bank(1), 0.6))


def test_rows_of_elsewhere_leave_no_mean() -> None:
    found = followed_by(replace(state(bank(0)), n_calls=9), bank(1), 1.0)
    assert same(found.bank, bank(1))
    assert found.last is None


@pytest.mark.parametrize("right", ["mean", "last"])
def test_rows_that_neither_has_seen_say_which_to_go_on_with(right: str) -> None:
    now = replace(state(bank(0)), last=bank(1), n_calls=5)
    teacher = now.bank if right == "mean" else bank(1)
    found = reviewed(now, new(answers(teacher, ARCHITECTURE, ROWS)), ARCHITECTURE)
    if right == "mean":
        assert found is now
    else:
        assert same(found.bank, bank(1))
        assert found.last is None
        assert found.n_calls == 1


def test_another_bank_is_the_mean_of_nothing() -> None:
    found = replace(state(bank(0)), last=bank(1), n_calls=5).with_bank(bank(2))
    assert same(found.to_train, bank(2))
    assert found.n_calls == 0
