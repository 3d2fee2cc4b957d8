"""The primal form: d-by-d systems, for tall designs (p > d)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.solve.cholesky import invert
from protopinv.solve.form import LayerByLayer, Pulled


class Primal(LayerByLayer):
    """W = G^-1 A'T with G = A'A + ridge I. Layers differ in d, so each is factorised by itself."""

    def __init__(self, designs: Sequence[Tensor], ridges: Float[Tensor, "*members layers"]) -> None:
        self.designs = designs
        self.inverses: list[Tensor] = []
        errors = []
        for A, ridge in zip(designs, ridges.unbind(-1), strict=True):
            system = A.mT @ A
            system.diagonal(dim1=-2, dim2=-1).add_(ridge[..., None])
            inverse, error = invert(system)
            self.inverses.append(inverse)
            errors.append(error)
        self.error = torch.stack(errors, dim=-1)
        self.solved: list[Tensor] = []
        self.residuals: list[Tensor] = []

    def weights(self, targets: Sequence[Tensor]) -> list[Tensor]:
        """W = G^-1 A'T."""
        self.solved = [
            inverse @ (A.mT @ T)
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
        dA = self.residuals[layer] @ U.mT - dT @ W.mT
        return dA, dT, -(U * W).sum((-2, -1)) if with_ridge else None
