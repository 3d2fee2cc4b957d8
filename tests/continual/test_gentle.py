"""How gently known classes are learned on: by what is new, and by what no fit has seen."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from configs import numbers_of_targets
from torch import Generator

from protopinv.bank import start_bank
from protopinv.continual.update import (
    LEAST_PASSES,
    MOST_RATE,
    Call,
    LearnOptions,
    New,
    Settings,
    gentle,
    scheduled,
)
from protopinv.memory import Memory, begin_memory
from protopinv.model import Model
from protopinv.train.config import TrainConfig
from protopinv.train.targets import NumberStats


def memory(mass: float, fitted: float) -> Memory:
    Z = torch.randn(100, 3, generator=Generator().manual_seed(0), dtype=torch.float64)
    begun = begin_memory(
        Z,
        torch.zeros(100, dtype=torch.long),
        torch.full((100,), mass / 100, dtype=torch.float64),
        n_groups=1,
        limit=500,
        generator=Generator().manual_seed(0),
    )
    return replace(begun, fitted=float(fitted))


def test_a_fitted_model_is_hardly_shaken_by_a_few_more_rows() -> None:
    rate, passes = gentle(memory(10_000, fitted=10_000), 1_000)
    assert rate < 0.05
    assert passes == LEAST_PASSES


def test_a_model_of_small_calls_learns_faster_than_a_fitted_one_of_as_many_rows() -> None:
    (slow, few), (fast, many) = (gentle(memory(5_000, fitted), 500) for fitted in (5_000, 500))
    assert fast > 3 * slow
    assert many > few


@pytest.mark.parametrize("n_new", [1, 100, 10_000_000])
def test_the_rate_falls_as_rows_add_up_and_has_a_bound(n_new: int) -> None:
    rates = [gentle(memory(mass, fitted=10), n_new)[0] for mass in (10, 1_000, 100_000)]
    assert all(0 < rate <= MOST_RATE for rate in rates)
    assert rates[2] <= rates[1]


def call(
    config: TrainConfig,
    mass: float,
    n_new: int,
    *,
    unlike: float,
    is_known: bool = True,
    batch_is_free: bool = True,
) -> Call:
    Z = torch.zeros(n_new, 3, dtype=torch.float64)
    targets = torch.zeros(n_new, 1, dtype=torch.float64)
    bank = start_bank(
        Z[:4],
        targets[:4],
        hidden_sizes=(2,),
        generator=Generator().manual_seed(0),
        hidden_scale=1.0,
        ridge=[0.1] * 2,
        learn_ridge=[False] * 2,
    )
    objective, old = numbers_of_targets(np.eye(2), None, "squared"), memory(mass, mass)
    model = Model(objective, None, None, TrainConfig(), None, 3, bank=bank, memory=old)
    return Call(
        model,
        New(Z, targets, torch.ones(n_new, dtype=torch.float64)),
        Settings(config, None, LearnOptions(NumberStats()), batch_is_free),
        torch.zeros(n_new, dtype=torch.long),
        torch.tensor([is_known]),
        torch.tensor([unlike], dtype=torch.float64),
    )


def test_rows_of_elsewhere_are_learned_like_a_new_class() -> None:
    config = TrainConfig(max_epochs=50, warmup_epochs=20, lr=0.05, batch_size=None)
    like, elsewhere, grown = (
        scheduled(call(config, 10_000, 1_000, unlike=u, is_known=known), 1_000)
        for u, known in ((0.0, True), (1.0, True), (0.0, False))
    )
    assert elsewhere == grown
    assert like.max_epochs < elsewhere.max_epochs
    assert like.lr < elsewhere.lr


@pytest.mark.parametrize(("free", "batch"), [(True, 256), (False, 4_096)])
def test_few_rows_make_several_batches_unless_a_user_says_otherwise(
    *, free: bool, batch: int
) -> None:
    config = TrainConfig(batch_size=4_096, max_epochs=50, warmup_epochs=20, lr=0.05)
    few = call(config, 1_000, 1_200, unlike=0.0, batch_is_free=free)
    found = scheduled(few, 1_200)
    assert found.batch_size == batch
    assert found.lr < config.lr
    assert found.max_epochs < config.max_epochs
