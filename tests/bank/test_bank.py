import numpy as np
import pytest
import torch
from configs import leaves_of

from protopinv.bank import (
    Bank,
    balanced_groups,
    normal_inputs,
    normal_outputs,
    pick_rows,
    population,
    start_bank,
)
from protopinv.objective import Classes


def small_bank(generator: torch.Generator, learn: tuple[bool, ...] = (False, True)) -> Bank:
    return start_bank(
        torch.randn(6, 3, generator=generator),
        torch.eye(3).repeat(2, 1),
        hidden_sizes=(4,),
        hidden_scale=0.5,
        ridge=(125.0, 1e-8),
        learn_ridge=learn,
        generator=generator,
    )


def test_ridge_begins_at_what_was_asked_for_large_and_tiny(generator: torch.Generator) -> None:
    torch.testing.assert_close(small_bank(generator).ridge, torch.tensor([125.0, 1e-8]))


def test_only_learnable_ridges_have_gradients(generator: torch.Generator) -> None:
    bank = leaves_of(small_bank(generator))
    bank.ridge.sum().backward()
    assert bank.raw_ridge.grad is not None
    assert bank.raw_ridge.grad[0] == 0
    assert bank.raw_ridge.grad[1] > 0


def test_trained_numbers_are_p_times_all_widths_and_learned_ridges(
    generator: torch.Generator,
) -> None:
    assert small_bank(generator).n_trained == 6 * (3 + 4 + 3) + 1


def test_hidden_targets_have_the_scale_asked_for(generator: torch.Generator) -> None:
    bank = start_bank(
        torch.zeros(200, 2),
        torch.zeros(200, 2),
        hidden_sizes=(300, 100),
        hidden_scale=0.5,
        ridge=(1.0, 1.0, 1.0),
        learn_ridge=(False, False, False),
        generator=generator,
    )
    assert [H.shape for H in bank.hidden] == [(200, 300), (200, 100)]
    for H in bank.hidden:
        assert H.std() == pytest.approx(0.5, rel=0.02)


def test_classes_are_balanced_to_within_one() -> None:
    counts = balanced_groups(150, 7).bincount()
    assert counts.sum() == 150
    assert counts.max() - counts.min() <= 1


def test_picked_rows_are_of_the_right_class_without_repeats(
    generator: torch.Generator,
) -> None:
    labels = torch.arange(40) % 4
    X = torch.randn(40, 3, generator=generator)
    classes = balanced_groups(16, 4)
    picked = pick_rows(X, classes, labels, generator)
    assert len(set(picked.tolist())) == 16
    assert labels[picked].tolist() == classes.tolist()


def test_rows_are_picked_again_when_there_are_fewer_than_prototypes(
    generator: torch.Generator,
) -> None:
    X, labels = torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1])
    inputs = X[pick_rows(X, balanced_groups(6, 2), labels, generator)]
    assert inputs.flatten().tolist() == [1, 2] * 3


def test_a_class_without_rows_takes_any_rows(generator: torch.Generator) -> None:
    X, labels = torch.ones(3, 2), torch.zeros(3, dtype=torch.long)
    picked = pick_rows(X, balanced_groups(4, 2), labels, generator)
    assert X[picked].shape == (4, 2)


def test_normal_inputs_have_the_scale_of_the_rows(generator: torch.Generator) -> None:
    X = 7 * torch.randn(1000, 20, generator=generator)
    assert normal_inputs(500, X, generator).std() == pytest.approx(7, rel=0.05)


def test_random_outputs_have_the_mean_square_of_one_hot_ones(generator: torch.Generator) -> None:
    wanted = balanced_groups(2000, 10)
    random = normal_outputs(2000, 10, generator)
    balanced = Classes(np.arange(10)).first_outputs(wanted, wanted)
    assert random.square().mean().item() == pytest.approx(0.1, rel=0.05)
    assert balanced.square().mean().item() == pytest.approx(0.1)
    assert balanced.sum(dim=0).tolist() == [200] * 10


def test_a_snapshot_shares_nothing(generator: torch.Generator) -> None:
    bank = small_bank(generator)
    kept = bank.snapshot()
    bank.inputs.zero_()
    assert not torch.equal(kept.inputs, bank.inputs)


@pytest.mark.parametrize("members", [0, 3])
def test_names_and_back_is_the_identity(generator: torch.Generator, members: int) -> None:
    bank = small_bank(generator)
    if members:
        bank = population([small_bank(generator) for _ in range(members)])
    back = Bank.from_tensors(bank.tensors())
    assert all(map(torch.equal, back.trained, bank.trained))
    assert torch.equal(back.learnable_ridge, bank.learnable_ridge)


def test_members_go_in_and_come_out_as_they_were(generator: torch.Generator) -> None:
    banks = [small_bank(generator, (False, n == 1)) for n in range(3)]
    together = population(banks)
    assert together.n_members == 3
    assert together.n_prototypes == 6
    assert together.n_trained == sum(bank.n_trained for bank in banks)
    for number, bank in enumerate(banks):
        assert all(map(torch.equal, together.member(number).trained, bank.trained))
        assert torch.equal(together.member(number).learnable_ridge, bank.learnable_ridge)
    some = together.members([2, 0])
    assert torch.equal(some.inputs, torch.stack([banks[2].inputs, banks[0].inputs]))
    assert torch.equal(some.learnable_ridge, together.learnable_ridge[[2, 0]])


def test_rows_are_picked_at_equal_distances_along_some_direction(
    generator: torch.Generator,
) -> None:
    """Of 100 rows on a line 10 are picked: every tenth, wherever the first is."""
    X = torch.arange(100.0)[torch.randperm(100, generator=generator), None]
    for _ in range(5):
        picked = pick_rows(X, torch.zeros(10, dtype=torch.long), torch.zeros(100).long(), generator)
        places = X[picked, 0].sort().values
        assert ((places[1:] - places[:-1] - 10).abs() <= 1).all()
