"""Banks that grow and shrink: what is measured of a prototype is what it is worth."""

from dataclasses import replace

import pytest
import torch
from torch import Generator

from protopinv.bank import Bank, population, start_bank
from protopinv.continual.banks import (
    grown,
    importances,
    left_with,
    mean_outputs,
    widened,
    with_outputs,
)
from protopinv.network import Architecture

ARCHITECTURE = Architecture("tanh")


def banks(n_members: int = 2, p: int = 20) -> Bank:
    found = []
    for seed in range(n_members):
        generator = Generator().manual_seed(seed)
        inputs = torch.randn(p, 4, generator=generator, dtype=torch.float64)
        outputs = torch.randn(p, 3, generator=generator, dtype=torch.float64)
        options = {"hidden_scale": 1.0, "ridge": [0.1] * 3, "learn_ridge": [False] * 3}
        bank = start_bank(inputs, outputs, hidden_sizes=(6, 5), generator=generator, **options)
        found.append(bank)
    return population(found)


ROWS = torch.randn(200, 4, generator=Generator().manual_seed(5), dtype=torch.float64)


def test_a_prototype_is_worth_what_leaving_it_out_changes() -> None:
    bank = banks()
    worth = importances(bank, ARCHITECTURE, ROWS)
    assert worth.shape == (2, 20)
    for member, number in ((0, 3), (1, 19)):
        alone = bank.members([member])
        kept = torch.tensor([[i for i in range(20) if i != number]])
        moved = mean_outputs(left_with(alone, kept), ARCHITECTURE, ROWS)
        change = (moved - mean_outputs(alone, ARCHITECTURE, ROWS)).square().mean().sqrt()
        torch.testing.assert_close(worth[member, number], change)


def test_it_does_not_matter_how_many_are_weighed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = importances(banks(), ARCHITECTURE, ROWS)
    monkeypatch.setattr("protopinv.continual.banks.NUMBERS", 1)
    torch.testing.assert_close(importances(banks(), ARCHITECTURE, ROWS), whole)


def test_without_what_matters_least_less_changes_than_without_what_matters_most() -> None:
    bank = banks(1, 40)
    order = importances(bank, ARCHITECTURE, ROWS).argsort(1, descending=True)
    before = mean_outputs(bank, ARCHITECTURE, ROWS)
    best, worst = (
        (mean_outputs(left_with(bank, kept), ARCHITECTURE, ROWS) - before).square().mean()
        for kept in (order[:, :36], order[:, 4:])
    )
    assert best < worst / 4


def test_prototypes_that_say_what_the_network_says_change_little() -> None:
    bank = banks()
    inputs = torch.stack([ROWS[:5], ROWS[5:10]])
    more = grown(bank, ARCHITECTURE, inputs)
    assert more.n_prototypes == 25
    before, after = (mean_outputs(each, ARCHITECTURE, ROWS) for each in (bank, more))
    assert (after - before).square().mean().sqrt() < 0.1 * before.std()


def test_outputs_move_to_their_places_and_back() -> None:
    bank = banks()
    wider = with_outputs(bank, torch.tensor([0, 2, 3]), 4)
    before, after = (mean_outputs(each, ARCHITECTURE, ROWS) for each in (bank, wider))
    torch.testing.assert_close(after[:, [0, 2, 3]], before)
    assert after[:, 1].mean() < before.mean()
    assert torch.equal(wider.outputs[:, :, [0, 2, 3]], bank.outputs)


@pytest.mark.parametrize("learned", [False, True], ids=["plain", "learned scale"])
def test_a_wider_bank_answers_as_before_whatever_the_new_features_are(learned: bool) -> None:
    bank, places = banks(), torch.tensor([0, 2, 3, 5])
    bank = replace(bank, scale=torch.linspace(0.5, 2, 8).view(2, 4).double() if learned else None)
    rows = torch.randn(200, 6, generator=Generator().manual_seed(6), dtype=torch.float64)
    rows[:, places] = ROWS
    wider = widened(bank, places, 6)
    torch.testing.assert_close(
        mean_outputs(wider, ARCHITECTURE, rows), mean_outputs(bank, ARCHITECTURE, ROWS)
    )
