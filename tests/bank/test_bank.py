import pytest
import torch

from protopinv.bank import (
    Bank,
    balanced_classes,
    balanced_outputs,
    normal_inputs,
    normal_outputs,
    start_bank,
    stratified_inputs,
)


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
    bank = small_bank(generator).leaves()
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
    counts = balanced_classes(150, 7).bincount()
    assert counts.sum() == 150
    assert counts.max() - counts.min() <= 1


def test_stratified_inputs_are_rows_of_the_right_class_without_repeats(
    generator: torch.Generator,
) -> None:
    labels = torch.arange(40) % 4
    X = torch.randn(40, 3, generator=generator)
    classes = balanced_classes(16, 4)
    inputs = stratified_inputs(classes, X, labels, generator)
    found = [(row == X).all(dim=1).nonzero().item() for row in inputs]
    assert len(set(found)) == 16
    assert labels[found].tolist() == classes.tolist()


def test_stratified_inputs_repeat_rows_when_there_are_fewer_than_prototypes(
    generator: torch.Generator,
) -> None:
    X, labels = torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1])
    inputs = stratified_inputs(balanced_classes(6, 2), X, labels, generator)
    assert inputs.flatten().tolist() == [1, 2] * 3


def test_a_class_without_rows_takes_any_rows(generator: torch.Generator) -> None:
    X, labels = torch.ones(3, 2), torch.zeros(3, dtype=torch.long)
    assert stratified_inputs(balanced_classes(4, 2), X, labels, generator).shape == (4, 2)


def test_normal_inputs_have_the_scale_of_the_rows(generator: torch.Generator) -> None:
    X = 7 * torch.randn(1000, 20, generator=generator)
    assert normal_inputs(500, X, generator).std() == pytest.approx(7, rel=0.05)


def test_random_outputs_have_the_mean_square_of_one_hot_ones(generator: torch.Generator) -> None:
    random, balanced = normal_outputs(2000, 10, generator), balanced_outputs(2000, 10)
    assert random.square().mean().item() == pytest.approx(0.1, rel=0.05)
    assert balanced.square().mean().item() == pytest.approx(0.1)
    assert balanced.sum(dim=0).tolist() == [200] * 10


def test_a_snapshot_shares_nothing(generator: torch.Generator) -> None:
    bank = small_bank(generator)
    kept = bank.snapshot()
    bank.inputs.zero_()
    assert not torch.equal(kept.inputs, bank.inputs)


def test_names_and_back_is_the_identity(generator: torch.Generator) -> None:
    bank = small_bank(generator)
    back = Bank.from_tensors(bank.tensors())
    assert all(map(torch.equal, back.trained, bank.trained))
    assert torch.equal(back.learnable_ridge, bank.learnable_ridge)
