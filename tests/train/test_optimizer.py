"""Updates: what they do to the tensors, and that a step not taken leaves no trace."""

import pytest
import torch

from protopinv.train.optimizer import OPTIMIZERS, Optimizer, ParameterGroup, orthogonal

KINDS = sorted(OPTIMIZERS)


def made(kind: str, generator: torch.Generator, **block: float) -> tuple[torch.Tensor, Optimizer]:
    matrix = torch.randn(1, 6, 9, generator=generator, dtype=torch.float64)
    optimizer = OPTIMIZERS[kind]([ParameterGroup([matrix], **block)], peak=0.1)
    optimizer.set_rate(1.0)
    return matrix, optimizer


def stepped(optimizer: Optimizer, matrix: torch.Tensor, *, gradient: float, skip: bool) -> None:
    optimizer.step([matrix * gradient], torch.tensor([skip]))


@pytest.mark.parametrize("shape", [(8, 20), (20, 8), (10, 10), (30, 1)])
def test_singular_values_are_brought_to_about_one(
    shape: tuple[int, int], generator: torch.Generator
) -> None:
    G = 1e-3 * torch.randn(shape, generator=generator)
    U, S, Vt = torch.linalg.svd(G, full_matrices=False)
    found = torch.linalg.svdvals(orthogonal(G))
    assert ((found > 0.5) | (S / S.norm() < 0.01)).all()
    assert (found < 1.3).all()
    overlap = ((U @ Vt) * orthogonal(G)).sum() / len(S)  # the same directions
    assert overlap > 0.6


def test_a_gradient_of_zero_moves_nothing() -> None:
    assert (orthogonal(torch.zeros(3, 4)) == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_skipped_step_leaves_no_trace(kind: str) -> None:
    (one, plain), (other, poisoned) = (
        made(kind, torch.Generator().manual_seed(0), decay=0.1) for _ in range(2)
    )
    stepped(plain, one, gradient=1.0, skip=False)
    stepped(poisoned, other, gradient=1.0, skip=False)
    stepped(poisoned, other, gradient=torch.nan, skip=True)
    assert torch.equal(one, other)
    stepped(plain, one, gradient=2.0, skip=False)
    stepped(poisoned, other, gradient=2.0, skip=False)
    assert torch.equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_forgets_all_momenta(kind: str, generator: torch.Generator) -> None:
    matrix, optimizer = made(kind, generator)
    stepped(optimizer, matrix, gradient=5.0, skip=False)
    fresh_matrix = matrix.clone()
    fresh = OPTIMIZERS[kind]([ParameterGroup([fresh_matrix])], peak=0.02)
    optimizer.restart(0, 0.02)
    for updates, tensor in ((optimizer, matrix), (fresh, fresh_matrix)):
        updates.set_rate(1.0)
        stepped(updates, tensor, gradient=1.0, skip=False)
    torch.testing.assert_close(matrix, fresh_matrix)


@pytest.mark.parametrize("kind", KINDS)
def test_decay_shrinks_and_a_ratio_of_zero_freezes(kind: str, generator: torch.Generator) -> None:
    frozen, still = made(kind, generator, decay=0.5, ratio=0.0)
    before = frozen.clone()
    stepped(still, frozen, gradient=1.0, skip=False)
    assert torch.equal(frozen, before)
    shrunk, decayed = made(kind, generator, decay=0.5)
    before = shrunk.clone()
    stepped(decayed, shrunk, gradient=0.0, skip=False)
    torch.testing.assert_close(shrunk, 0.95 * before)


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("apart", [False, True])
def test_members_are_updated_as_if_each_were_alone(kind: str, apart: bool) -> None:
    """Apart: the rates of two were lowered, one misses a step, one starts over."""
    peaks = [0.1, 0.02, 0.03] if apart else [0.1] * 3
    matrices, vectors = drawn(0, 3, 6, 9), drawn(1, 3, 4)
    alone = []
    for member in range(3):
        tensors = [matrices[member : member + 1].clone(), vectors[member : member + 1].clone()]
        groups = [ParameterGroup(tensors[:1], 0.5, 0.5), ParameterGroup(tensors[1:])]
        alone.append((tensors, OPTIMIZERS[kind](groups, peaks[member])))
    both = [ParameterGroup([matrices], 0.5, 0.5), ParameterGroup([vectors])]
    together = OPTIMIZERS[kind](both, 0.1)
    for member in (1, 2) if apart else ():
        together.restart(member, peaks[member])
    for step in range(6):
        gradients = [drawn(10 + step, 3, 6, 9), drawn(20 + step, 3, 4)]
        missing = apart and step == 2
        if apart and step == 4:
            together.restart(0, 0.05)
            alone[0][1].restart(0, 0.05)
        for member, (_, optimizer) in enumerate(alone):
            optimizer.set_rate(0.5)
            skip = torch.tensor([missing and member == 1])
            optimizer.step([g[member : member + 1] for g in gradients], skip)
        together.set_rate(0.5)
        together.step(gradients, torch.tensor([False, missing, False]) if missing else None)
    for member, (tensors, _) in enumerate(alone):
        close = {"rtol": 1e-12, "atol": 1e-12}
        torch.testing.assert_close(matrices[member], tensors[0][0], **close)
        torch.testing.assert_close(vectors[member], tensors[1][0], **close)


def test_adam_takes_the_steps_of_torch() -> None:
    mine, theirs = drawn(0, 1, 6, 9), drawn(0, 1, 6, 9).requires_grad_()
    optimizer = Optimizer([ParameterGroup([mine], decay=0.1)], peak=0.05)
    reference = torch.optim.AdamW([theirs], lr=0.05, weight_decay=0.1)
    for step in range(5):
        theirs.grad = drawn(step, 1, 6, 9)
        reference.step()
        optimizer.step([drawn(step, 1, 6, 9)], None)
    torch.testing.assert_close(mine, theirs.detach(), rtol=1e-12, atol=1e-12)
