"""The dual form: p-by-p systems, for wide designs (p <= d)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.kernels.streams import side_by_side
from protopinv.solve.cholesky import invert

Result = TypeVar("Result")


class Dual:
    """W = A'S with S = K^-1 T and K = AA' + ridge I.

    Every layer's system has size p, so all of them are one batch and one factorisation.
    The explicit inverse serves forward and backward: with hundreds of right-hand sides a product
    is several times faster than two triangular solves, and its norm gives the condition number.
    """

    def __init__(self, designs: Sequence[Tensor], ridges: Float[Tensor, " layers"]) -> None:
        self.designs = designs
        systems = torch.stack(self._by_layer(lambda layer: designs[layer] @ designs[layer].T))
        systems.diagonal(dim1=-2, dim2=-1).add_(ridges[:, None])
        self.inverses, self.error = invert(systems)
        self.duals: list[Tensor] = []

    def weights(self, targets: Sequence[Tensor]) -> list[Tensor]:
        """W = A'S."""

        def solve(layer: int) -> tuple[Tensor, Tensor]:
            S = self.inverses[layer] @ targets[layer]
            return S, self.designs[layer].T @ S

        duals, weights = zip(*self._by_layer(solve), strict=True)
        self.duals = list(duals)
        return list(weights)

    def pullback(
        self, layer: int, dW: Tensor, *, with_ridge: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """dT = K^-1 A dW, dK = -dT S', dA = S dW' + (dK + dK') A, dridge = tr dK."""
        A, S = self.designs[layer], self.duals[layer]
        dT = self.inverses[layer] @ (A @ dW)
        minus_dK = dT @ S.T
        dA = torch.addmm(S @ dW.T, minus_dK + minus_dK.T, A, alpha=-1)
        return dA, dT, -minus_dK.trace() if with_ridge else None

    def _by_layer(self, work: Callable[[int], Result]) -> list[Result]:
        """Layers do not depend on each other."""
        works = [partial(work, layer) for layer in range(len(self.designs))]
        return side_by_side(works, self.designs[0].device)
