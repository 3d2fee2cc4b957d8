"""The dual form: p-by-p systems, for wide designs (p <= d)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.solve.cholesky import invert


class Dual:
    """W = A'S with S = K^-1 T and K = AA' + ridge I.

    Every layer's system has size p, so all of them are one batch and one factorisation.
    The explicit inverse serves forward and backward: with hundreds of right-hand sides a product
    is several times faster than two triangular solves, and its norm gives the condition number.
    """

    def __init__(self, designs: Sequence[Tensor], ridges: Float[Tensor, " layers"]) -> None:
        systems = torch.stack([A @ A.T for A in designs])
        systems.diagonal(dim1=-2, dim2=-1).add_(ridges[:, None])
        self.designs = designs
        self.inverses, self.error = invert(systems)
        self.duals: list[Tensor] = []

    def weights(self, targets: Sequence[Tensor]) -> list[Tensor]:
        """W = A'S."""
        self.duals = [
            inverse @ T for inverse, T in zip(self.inverses.unbind(), targets, strict=True)
        ]
        return [A.T @ S for A, S in zip(self.designs, self.duals, strict=True)]

    def pullback(
        self, layer: int, dW: Tensor, *, with_ridge: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """dT = K^-1 A dW, dK = -dT S', dA = S dW' + (dK + dK') A, dridge = tr dK."""
        A, S = self.designs[layer], self.duals[layer]
        dT = self.inverses[layer] @ (A @ dW)
        minus_dK = dT @ S.T
        dA = torch.addmm(S @ dW.T, minus_dK + minus_dK.T, A, alpha=-1)
        return dA, dT, -minus_dK.trace() if with_ridge else None
