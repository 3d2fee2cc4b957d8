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
        works = [partial(self._solved, layer, T) for layer, T in enumerate(targets)]
        duals, solved = zip(*side_by_side(works, self.designs[0].device), strict=True)
        self.duals, self.solved = list(duals), list(solved)
        return self.solved

    def pullbacks(self, gradients: Sequence[Tensor], *, with_ridge: bool) -> list[Pulled]:
        """dT = K^-1 A dW, dA = S dW' - (M + M')A with M = dT S', dridge = -tr M, of every layer.

        For few columns dA = S (dW - A'dT)' - dT W', the same without a matrix M.
        """
        device, layers = self.designs[0].device, list(enumerate(gradients))
        works: list[Callable[[], Any]] = [partial(self._back, *layer) for layer in layers]
        works += [partial(self._direct, *layer) for layer in layers]
        found = side_by_side(works, device)
        backs, directs = found[: len(layers)], found[len(layers) :]
        joined = [
            partial(self._joined, layer, dW, dT, M, direct)
            for (layer, dW), (dT, M), direct in zip(layers, backs, directs, strict=True)
        ]
        return [
            (dA, dT, -(dT * S).sum((-2, -1)) if with_ridge else None)
            for dA, (dT, _), S in zip(side_by_side(joined, device), backs, self.duals, strict=True)
        ]

    # Works of one layer, which need nothing of the others. They are methods: functions made anew in
    # every step would be wrapped in every step where types are checked.

    def _solved(self, layer: int, T: Tensor) -> tuple[Tensor, Tensor]:
        """S and W."""
        S = self.solvers[layer].solve(T)
        return S, times(self.designs[layer].mT, S)

    def _back(self, layer: int, dW: Tensor) -> tuple[Tensor, Tensor | None]:
        """dT and M."""
        dT = self.solvers[layer].solve(times(self.designs[layer], dW))
        return dT, None if self.thin[layer] else dT @ self.duals[layer].mT

    def _direct(self, layer: int, dW: Tensor) -> Tensor | None:
        """S dW'."""
        return None if self.thin[layer] else self.duals[layer] @ dW.mT

    def _joined(
        self, layer: int, dW: Tensor, dT: Tensor, M: Tensor | None, direct: Tensor | None
    ) -> Tensor:
        """dA."""
        A = self.designs[layer]
        if M is None or direct is None:
            rest = dW - times(A.mT, dT)
            left = torch.cat([self.duals[layer], dT], dim=-1)
            return left @ torch.cat([rest, -self.solved[layer]], dim=-1).mT
        both = M + M.mT
        add = direct.addmm_ if A.ndim == 2 else direct.baddbmm_
        return add(both, A, alpha=-1)
