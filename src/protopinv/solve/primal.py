"""The primal form: d-by-d systems, for tall designs (p > d)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.solve.cholesky import invert
from protopinv.solve.form import LayerByLayer, Pulled


class Primal(LayerByLayer):
    """W = G^-1 A'T with G = A'A + ridge I. Layers differ in d, so each is factorised by itself."""

    def __init__(self, designs: Sequence[Tensor], ridges: Float[Tensor, " layers"]) -> None:
        self.designs = designs
        self.inverses: list[Tensor] = []
        errors = []
        for A, ridge in zip(designs, ridges.unbind(), strict=True):
            system = A.T @ A
            system.diagonal().add_(ridge)
            inverse, error = invert(system)
            self.inverses.append(inverse)
            errors.append(error)
        self.error = torch.stack(errors)
        self.solved: list[Tensor] = []
        self.residuals: list[Tensor] = []

    def weights(self, targets: Sequence[Tensor]) -> list[Tensor]:
        """W = G^-1 A'T."""
        self.solved = [
            inverse @ (A.T @ T)
            for inverse, A, T in zip(self.inverses, self.designs, targets, strict=True)
        ]
        self.residuals = [
            T - A @ W for A, T, W in zip(self.designs, targets, self.solved, strict=True)
        ]
        return self.solved

    def pullback(self, layer: int, dW: Tensor, *, with_ridge: bool) -> Pulled:
        """U = G^-1 dW, dT = A U, dA = (T - AW) U' - dT W', dridge = -tr(U'W)."""
        W = self.solved[layer]
        U = self.inverses[layer] @ dW
        dT = self.designs[layer] @ U
        dA = torch.addmm(self.residuals[layer] @ U.T, dT, W.T, alpha=-1)
        return dA, dT, -(U * W).sum() if with_ridge else None
