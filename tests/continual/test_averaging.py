"""The mean of the banks of the last calls, and when it begins anew."""

from dataclasses import replace

import pytest
import torch
from configs import numbers_of_targets
from torch import Generator, Tensor

from protopinv.bank import Bank, population, start_bank
from protopinv.continual.banks import mean_outputs
from protopinv.continual.update import LEAST_SHARE, New, between, followed_by, reviewed
from protopinv.memory import begin_memory
from protopinv.model import Model
from protopinv.train.config import TrainConfig

CONFIG = TrainConfig(activation="tanh")
ROWS = torch.randn(100, 4, generator=Generator().manual_seed(5), dtype=torch.float64)


def bank(seed: int) -> Bank:
    generator = Generator().manual_seed(seed)
    inputs = torch.randn(10, 4, generator=generator, dtype=torch.float64)
    outputs = torch.randn(10, 2, generator=generator, dtype=torch.float64)
    options = {"hidden_scale": 1.0, "ridge": [0.1] * 2, "learn_ridge": [False] * 2}
    return population(
        [start_bank(inputs, outputs, hidden_sizes=(6,), generator=generator, **options)]
    )


def model(first: Bank) -> Model:
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
    return Model(objective, None, None, CONFIG, None, 4, bank=first, memory=memory)


def same(first: Bank, second: Bank) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first.trained, second.trained, strict=True))


def new(targets: Tensor) -> New:
    return New(ROWS, targets, torch.ones(len(ROWS), dtype=torch.float64))


def test_the_first_call_counts_in_full_and_the_others_are_averaged() -> None:
    banks = [bank(seed) for seed in range(4)]
    now = followed_by(model(banks[0]), banks[1], 0.0)
    assert same(now.bank, banks[1])
    assert now.last_bank is None
    for trained in banks[2:]:
        now = followed_by(now, trained, 0.0)
    mean = torch.stack([b.inputs for b in banks[1:]]).mean(0)
    torch.testing.assert_close(now.bank.inputs, mean)
    assert same(now.last_bank, banks[3])
    assert now.n_calls == 3


def test_a_late_call_counts_as_much_as_a_tenth() -> None:
    late = replace(model(bank(0)), n_calls=500)
    found = followed_by(late, bank(1), 0.0).bank
    assert same(found, between(bank(0), bank(1), LEAST_SHARE))


def test_what_is_forgotten_of_the_memory_is_forgotten_of_the_mean() -> None:
    late = replace(model(bank(0)), n_calls=500)
    assert same(followed_by(late, bank(1), 0.6).bank, between(bank(0), bank(1), 0.6))


def test_rows_of_elsewhere_leave_no_mean() -> None:
    found = followed_by(replace(model(bank(0)), n_calls=9), bank(1), 1.0)
    assert same(found.bank, bank(1))
    assert found.last_bank is None


@pytest.mark.parametrize("right", ["mean", "last"])
def test_rows_that_neither_has_seen_say_which_to_go_on_with(right: str) -> None:
    now = replace(model(bank(0)), last_bank=bank(1), n_calls=5)
    teacher = now.bank if right == "mean" else bank(1)
    found = reviewed(now, new(mean_outputs(teacher, CONFIG.architecture, ROWS)))
    if right == "mean":
        assert found is now
    else:
        assert same(found.bank, bank(1))
        assert found.last_bank is None
        assert found.n_calls == 1


def test_another_bank_is_the_mean_of_nothing() -> None:
    found = replace(model(bank(0)), last_bank=bank(1), n_calls=5).with_bank(bank(2))
    assert same(found.bank, bank(2))
    assert found.last_bank is None
    assert found.n_calls == 0
