"""Updates: what they do to the tensors, and that a step not taken leaves no trace."""

import pytest
import torch

from protopinv.train.optimizer import OPTIMIZERS, Block, Optimizer, orthogonal

KINDS = sorted(OPTIMIZERS)


def made(kind: str, generator: torch.Generator, **block: float) -> tuple[torch.Tensor, Optimizer]:
    matrix = torch.randn(6, 9, generator=generator, dtype=torch.float64).requires_grad_()
    optimizer = OPTIMIZERS[kind]([Block([matrix], **block)], peak=0.1)
    optimizer.set_rate(1.0)
    return matrix, optimizer


def stepped(optimizer: Optimizer, matrix: torch.Tensor, *, gradient: float, skip: bool) -> None:
    matrix.grad = matrix.detach() * gradient
    optimizer.step(torch.tensor(skip))


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
    fresh_matrix = matrix.detach().clone().requires_grad_()
    fresh = OPTIMIZERS[kind]([Block([fresh_matrix])], peak=0.02)
    optimizer.restart(0.02)
    for updates, tensor in ((optimizer, matrix), (fresh, fresh_matrix)):
        updates.set_rate(1.0)
        stepped(updates, tensor, gradient=1.0, skip=False)
    torch.testing.assert_close(matrix, fresh_matrix)


@pytest.mark.parametrize("kind", KINDS)
def test_decay_shrinks_and_a_ratio_of_zero_freezes(kind: str, generator: torch.Generator) -> None:
    frozen, still = made(kind, generator, decay=0.5, ratio=0.0)
    before = frozen.detach().clone()
    stepped(still, frozen, gradient=1.0, skip=False)
    assert torch.equal(frozen, before)
    shrunk, decayed = made(kind, generator, decay=0.5)
    before = shrunk.detach().clone()
    stepped(decayed, shrunk, gradient=0.0, skip=False)
    torch.testing.assert_close(shrunk.detach(), 0.95 * before)
