"""The dual form: p-by-p systems, for wide designs (p <= d)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.kernels.streams import side_by_side
from protopinv.solve.cholesky import factorise_each, is_thin
from protopinv.solve.form import Form, Pulled
from protopinv.solve.products import times


class Dual(Form):
    """W = A'S with S = K^-1 T and K = AA' + ridge I.

    Every layer's system has size p, so those of all layers and members are one batch and one
    factorisation, which serves forward and backward.
    """

    def __init__(
        self,
        designs: Sequence[Tensor],
        ridges: Float[Tensor, "*members layers"],
        columns: Sequence[int],
    ) -> None:
        self.designs = designs
        *members, p, _ = designs[0].shape
        systems = designs[0].new_empty(len(designs), *members, p, p)
        grams = [
            partial(torch.matmul, A, A.mT, out=K) for A, K in zip(designs, systems, strict=True)
        ]
        side_by_side(grams, systems.device)
        of_layers = ridges.movedim(-1, 0)
        systems.diagonal(dim1=-2, dim2=-1).add_(of_layers[..., None])
        self.solvers, error = factorise_each(systems, of_layers, list(columns))
        self.error = error.movedim(0, -1)
        self.thin = [is_thin(k, p, systems.device) for k in columns]

    def weights(self, targets: Sequence[Tensor]) -> list[Tensor]:
        """W = A'S."""

        def solve(layer: int) -> tuple[Tensor, Tensor]:
            S = self.solvers[layer].solve(targets[layer])
            return S, times(self.designs[layer].mT, S)

        duals, solved = zip(*self._by_layer(solve), strict=True)
        self.duals, self.solved = list(duals), list(solved)
        return self.solved

    def pullbacks(self, gradients: Sequence[Tensor], *, with_ridge: bool) -> list[Pulled]:
        """dT = K^-1 A dW, dA = S dW' - (M + M')A with M = dT S', dridge = -tr M, of every layer.

        For few columns dA = S (dW - A'dT)' - dT W', the same without a matrix M.
        """

        def back(layer: int) -> tuple[Tensor, Tensor | None]:
            dT = self.solvers[layer].solve(times(self.designs[layer], gradients[layer]))
            return dT, None if self.thin[layer] else dT @ self.duals[layer].mT

        def direct(layer: int) -> Tensor | None:
            return None if self.thin[layer] else self.duals[layer] @ gradients[layer].mT

        def joined(layer: int) -> Tensor:
            (dT, M), dA, A = backs[layer], directs[layer], self.designs[layer]
            if M is None:
                rest = gradients[layer] - times(A.mT, dT)
                left = torch.cat([self.duals[layer], dT], dim=-1)
                return left @ torch.cat([rest, -self.solved[layer]], dim=-1).mT
            both = M + M.mT
            added: Tensor = (
                dA.addmm_(both, A, alpha=-1) if A.ndim == 2 else dA.baddbmm_(both, A, alpha=-1)
            )
            return added

        found = self._by_layer(back, direct)
        backs, directs = found[: len(gradients)], found[len(gradients) :]
        return [
            (dA, dT, -(dT * S).sum((-2, -1)) if with_ridge else None)
            for dA, (dT, _), S in zip(self._by_layer(joined), backs, self.duals, strict=True)
        ]

    def _by_layer(self, *works: Callable[[int], Any]) -> list[Any]:
        """What the works return, each for all layers: none depends on another."""
        layers = range(len(self.designs))
        every = [partial(work, layer) for work in works for layer in layers]
        return side_by_side(every, self.designs[0].device)
