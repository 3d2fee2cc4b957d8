"""The primal form: d-by-d systems, for tall designs (p > d)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.solve.cholesky import Inverse, Triangular, factorise_each
from protopinv.solve.form import LayerByLayer, Pulled
from protopinv.solve.products import times


class Primal(LayerByLayer):
    """W = G^-1 A'T with G = A'A + ridge I. Layers differ in d, so each is factorised by itself."""

    def __init__(
        self,
        designs: Sequence[Tensor],
        ridges: Float[Tensor, "*members layers"],
        columns: Sequence[int],
    ) -> None:
        self.designs = designs
        self.solvers: list[Inverse | Triangular] = []
        errors = []
        for A, ridge, k in zip(designs, ridges.unbind(-1), columns, strict=True):
            system = times(A.mT, A)
            system.diagonal(dim1=-2, dim2=-1).add_(ridge[..., None])
            (solver,), error = factorise_each(system.contiguous()[None], ridge[None], [k])
            self.solvers.append(solver)
            errors.append(error[0])
        self.error = torch.stack(errors, dim=-1)
        self.solved: list[Tensor] = []
        self.residuals: list[Tensor] = []

    def weights(self, targets: Sequence[Tensor]) -> list[Tensor]:
        """W = G^-1 A'T."""
        given = list(zip(self.solvers, self.designs, targets, strict=True))
        self.solved = [solver.solve(times(A.mT, T)) for solver, A, T in given]
        self.residuals = [T - times(A, W) for (_, A, T), W in zip(given, self.solved, strict=True)]
        return self.solved

    def pullback(self, layer: int, dW: Tensor, *, with_ridge: bool) -> Pulled:
        """U = G^-1 dW, dT = A U, dA = (T - AW) U' - dT W', dridge = -tr(U'W)."""
        W = self.solved[layer]
        U = self.solvers[layer].solve(dW)
        dT = times(self.designs[layer], U)
        dA = times(self.residuals[layer], U.mT).sub_(times(dT, W.mT))
        return dA, dT, -(U * W).sum((-2, -1)) if with_ridge else None
