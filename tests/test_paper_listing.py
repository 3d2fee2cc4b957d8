"""The paper's own loop and our step are the same mathematics."""

import numpy as np
import pytest
import torch
from configs import concrete

from benchmarks.speed.steps import PaperListing
from protopinv.bank import population, start_bank
from protopinv.objective import Classes
from protopinv.train.rows import Rows
from protopinv.train.step import BankStep


def test_ten_epochs_of_the_listing_are_ten_steps_of_ours(generator: torch.Generator) -> None:
    X = torch.randn(60, 7, generator=generator, dtype=torch.float64)
    y = torch.arange(60) % 3
    listing = PaperListing(X, y, p=9, h=11, k=3, lam=2.0)
    config = concrete(
        n_prototypes=9, hidden_sizes=11, ridge=2.0, lr=1e-3, weight_penalty=1e-6, dtype="float64"
    )
    bank = start_bank(
        listing.Xp.detach().clone(),
        listing.Yp.detach().clone(),
        hidden_sizes=(11,),
        hidden_scale=1.0,
        ridge=config.ridges,
        learn_ridge=(False, False),
        generator=generator,
    )
    with torch.no_grad():
        bank.hidden[0].copy_(listing.Hp)
    objective = Classes(np.arange(3))
    step = BankStep(population([bank]), config, objective, generator=generator)
    theirs = [listing.epoch() for _ in range(10)]
    ours = [float(step(Rows(X, y), 1.0).loss) for _ in range(10)]
    assert ours == pytest.approx(theirs, rel=1e-10)
    assert theirs[-1] < theirs[0]
