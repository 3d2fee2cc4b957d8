"""The dual form: p-by-p systems, for wide designs (p <= d)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.kernels.streams import side_by_side
from protopinv.solve.cholesky import invert
from protopinv.solve.form import Form, Pulled


class Dual(Form):
    """W = A'S with S = K^-1 T and K = AA' + ridge I.

    Every layer's system has size p, so those of all layers and members are one batch and one
    factorisation. The explicit inverse serves forward and backward: with hundreds of right-hand
    sides a product is several times faster than two triangular solves, and its norm gives the
    condition number.
    """

    def __init__(self, designs: Sequence[Tensor], ridges: Float[Tensor, "*members layers"]) -> None:
        self.designs = designs
        *members, p, _ = designs[0].shape
        systems = designs[0].new_empty(len(designs), *members, p, p)
        grams = [
            partial(torch.matmul, A, A.mT, out=K) for A, K in zip(designs, systems, strict=True)
        ]
        side_by_side(grams, systems.device)
        systems.diagonal(dim1=-2, dim2=-1).add_(ridges.movedim(-1, 0)[..., None])
        self.inverses, error = invert(systems)
        self.error = error.movedim(0, -1)

    def weights(self, targets: Sequence[Tensor]) -> list[Tensor]:
        """W = A'S."""

        def solve(layer: int) -> tuple[Tensor, Tensor]:
            S = self.inverses[layer] @ targets[layer]
            return S, self.designs[layer].mT @ S

        duals, weights = zip(*self._by_layer(solve), strict=True)
        self.duals = list(duals)
        return list(weights)

    def pullbacks(self, gradients: Sequence[Tensor], *, with_ridge: bool) -> list[Pulled]:
        """dT = K^-1 A dW, dA = S dW' - (M + M')A with M = dT S', dridge = -tr M, of every layer."""

        def back(layer: int) -> tuple[Tensor, Tensor]:
            dT = self.inverses[layer] @ (self.designs[layer] @ gradients[layer])
            return dT, dT @ self.duals[layer].mT

        def direct(layer: int) -> Tensor:
            return self.duals[layer] @ gradients[layer].mT

        def joined(layer: int) -> Tensor:
            dA: Tensor = directs[layer]
            _, M = backs[layer]
            both = M + M.mT
            if dA.ndim == 2:
                return dA.addmm_(both, self.designs[layer], alpha=-1)
            return dA.baddbmm_(both, self.designs[layer], alpha=-1)

        found = self._by_layer(back, direct)
        backs, directs = found[: len(gradients)], found[len(gradients) :]
        return [
            (dA, dT, -M.diagonal(dim1=-2, dim2=-1).sum(-1) if with_ridge else None)
            for dA, (dT, M) in zip(self._by_layer(joined), backs, strict=True)
        ]

    def _by_layer(self, *works: Callable[[int], Any]) -> list[Any]:
        """What the works return, each for all layers: none depends on another."""
        layers = range(len(self.designs))
        every = [partial(work, layer) for work in works for layer in layers]
        return side_by_side(every, self.designs[0].device)
