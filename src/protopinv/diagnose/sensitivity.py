"""Lemma 1 with its constants: how far the weights move when the bank does.

To first order dW = G^-1 dA' (T - AW) - G^-1 A' dA W + G^-1 A' dT with G = A'A + ridge I, hence
||dW|| <= C_1 ||dA|| + C_2 ||dT|| with C_2 = ||G^-1 A'|| = max s / (s^2 + ridge), at most
1 / (2 sqrt(ridge)) whatever the smallest singular value, and C_1 = ||G^-1|| ||T - AW|| + C_2 ||W||.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from protopinv.bank import Bank
from protopinv.network import Architecture, designs_of, targets_of
from protopinv.solve import ridge_solve


@dataclass(frozen=True)
class Sensitivity:
    """C_1 and C_2 of Lemma 1, the norm of dW / dridge = -G^-1 W, and of W itself."""

    to_inputs: float
    to_targets: float
    to_ridge: float
    weight_norm: float


@torch.no_grad()
def measure_sensitivity(
    A: Float[Tensor, "p d"], T: Float[Tensor, "p h"], ridge: float
) -> Sensitivity:
    """The constants at a point, from one singular value decomposition."""
    U, s, _ = torch.linalg.svd(A, full_matrices=False)
    eigenvalues = s.square() + ridge
    coefficients = U.T @ T
    W = (s / eigenvalues)[:, None] * coefficients  # in the basis of the right singular vectors
    residual = T - U @ (s[:, None] * W)
    lacks_rank = A.shape[0] < A.shape[1]
    smallest = ridge if lacks_rank else float(eigenvalues[-1])  # eigenvalue of G, d by d
    to_targets = float((s / eigenvalues).max())
    return Sensitivity(
        to_inputs=_norm(residual) / smallest + to_targets * _norm(W),
        to_targets=to_targets,
        to_ridge=float((W / eigenvalues[:, None]).norm()),
        weight_norm=float(W.norm()),
    )


@dataclass(frozen=True)
class Perturbation:
    """How far the weights moved, and the most that Lemma 1 allows to first order."""

    change: float
    bound: float


@torch.no_grad()
def check_lemma(
    bank: Bank, architecture: Architecture, *, size: float, generator: Generator
) -> tuple[Perturbation, ...]:
    """For every layer: move its design and targets by ``size`` times the norm of the design."""
    exact = bank.to("cpu", torch.float64)
    systems = zip(
        designs_of(exact, architecture),
        targets_of(exact, architecture),
        exact.ridge.tolist(),
        strict=True,
    )
    return tuple(perturb(A, T, ridge, size * float(A.norm()), generator) for A, T, ridge in systems)


@torch.no_grad()
def perturb(
    A: Float[Tensor, "p d"],
    T: Float[Tensor, "p h"],
    ridge: float,
    size: float,
    generator: Generator,
) -> Perturbation:
    """Move A and T by ``size`` (Frobenius) each in a random direction, and solve again."""
    dA, dT = (_of_norm(size, like, generator) for like in (A, T))
    strength = torch.tensor(ridge, dtype=A.dtype)
    before, after = (
        ridge_solve(design, target, strength, form="svd").weights[0]
        for design, target in ((A, T), (A + dA, T + dT))
    )
    constants = measure_sensitivity(A, T, ridge)
    bound = (constants.to_inputs + constants.to_targets) * size
    return Perturbation(float((after - before).norm()), bound)


def _of_norm(size: float, like: Tensor, generator: Generator) -> Tensor:
    draw = torch.randn(like.shape, generator=generator, dtype=like.dtype)
    return draw.mul_(size / draw.norm())


def _norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))
