"""The three forms of one ridge solve: weights from targets, and gradients the way back.

The dual form solves p-by-p systems, for wide designs (p <= d); the primal form d-by-d systems, for
tall ones. The SVD form is slower, and right where Cholesky in the same precision has lost its
digits.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.kernels import side_by_side
from protopinv.solve.systems import Solver, factorise_each, is_thin, times

# The gradients in A, in T and, where it is asked for, in the ridge.
Pulled = tuple[Tensor, Tensor, Tensor | None]


class Form(ABC):
    """Made from the designs, ridges and targets of some layers, whose ``weights`` it solves.

    Leading axes are members of a population.

    ``error`` is the estimated relative error of each layer's weights. ``duals`` are S with W = A'S,
    for the form that has them.
    """

    weights: list[Tensor]
    error: Tensor
    duals: Sequence[Tensor] = ()

    @abstractmethod
    def pullbacks(self, gradients: Sequence[Tensor], *, with_ridge: bool) -> list[Pulled]:
        """From the gradient in W of every layer."""


class Dual(Form):
    """W = A'S with S = K^-1 T and K = AA' + ridge I.

    Every layer's system has size p, so those of all layers and members are one batch and one
    factorisation, which serves forward and backward.
    """

    def __init__(
        self,
        designs: Sequence[Tensor],
        ridges: Float[Tensor, "*members layers"],
        targets: Sequence[Tensor],
    ) -> None:
        self.designs = designs
        *members, p, _ = designs[0].shape
        systems = designs[0].new_empty(len(designs), *members, p, p)
        grams = [
            partial(torch.matmul, A, A.mT, out=K) for A, K in zip(designs, systems, strict=True)
        ]
        side_by_side(grams, systems.device)
        of_layers, columns = ridges.movedim(-1, 0), [T.shape[-1] for T in targets]
        systems.diagonal(dim1=-2, dim2=-1).add_(of_layers[..., None])
        self.solvers, error = factorise_each(systems, of_layers, columns)
        self.error = error.movedim(0, -1)
        self.thin = [is_thin(k, p, systems.device) for k in columns]
        works = [partial(self._solved, layer, T) for layer, T in enumerate(targets)]
        duals, weights = zip(*side_by_side(works, systems.device), strict=True)
        self.duals, self.weights = list(duals), list(weights)

    def pullbacks(self, gradients: Sequence[Tensor], *, with_ridge: bool) -> list[Pulled]:
        """dT = K^-1 A dW, dA = S dW' - (M + M')A with M = dT S', dridge = -tr M, of every layer.

        For few columns dA = S (dW - A'dT)' - dT W', the same without a matrix M.
        """
        device, layers = self.designs[0].device, list(enumerate(gradients))
        works: list[Callable[[], Any]] = [partial(self._back, *layer) for layer in layers]
        works += [partial(self._direct, *layer) for layer in layers]
        results = side_by_side(works, device)
        backs, directs = results[: len(layers)], results[len(layers) :]
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
        S = self.solvers[layer](T)
        return S, times(self.designs[layer].mT, S)

    def _back(self, layer: int, dW: Tensor) -> tuple[Tensor, Tensor | None]:
        """dT and M."""
        dT = self.solvers[layer](times(self.designs[layer], dW))
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
            return left @ torch.cat([rest, -self.weights[layer]], dim=-1).mT
        add = direct.addmm_ if A.ndim == 2 else direct.baddbmm_
        return add(M + M.mT, A, alpha=-1)


class LayerByLayer(Form):
    """A form whose layers are pulled back one after another, by their residuals T - AW."""

    residuals: list[Tensor]

    def pullbacks(self, gradients: Sequence[Tensor], *, with_ridge: bool) -> list[Pulled]:
        """U = G^-1 dW, dT = A U, dA = (T - AW) U' - dT W', dridge = -tr(U'W), of every layer."""
        pulled: list[Pulled] = []
        for layer, dW in enumerate(gradients):
            W, (U, dT) = self.weights[layer], self._pulled(layer, dW)
            dA = times(self.residuals[layer], U.mT).sub_(times(dT, W.mT))
            pulled.append((dA, dT, -(U * W).sum((-2, -1)) if with_ridge else None))
        return pulled

    @abstractmethod
    def _pulled(self, layer: int, dW: Tensor) -> tuple[Tensor, Tensor]:
        """U and dT."""


class Primal(LayerByLayer):
    """W = G^-1 A'T with G = A'A + ridge I. Layers differ in d, so each is factorised by itself."""

    def __init__(
        self,
        designs: Sequence[Tensor],
        ridges: Float[Tensor, "*members layers"],
        targets: Sequence[Tensor],
    ) -> None:
        self.designs = designs
        self.solvers: list[Solver] = []
        self.weights, self.residuals = [], []
        errors = []
        for A, ridge, T in zip(designs, ridges.unbind(-1), targets, strict=True):
            system = times(A.mT, A)
            system.diagonal(dim1=-2, dim2=-1).add_(ridge[..., None])
            systems, columns = system.contiguous()[None], [T.shape[-1]]
            (solver,), error = factorise_each(systems, ridge[None], columns)
            W = solver(times(A.mT, T))
            self.solvers.append(solver)
            self.weights.append(W)
            self.residuals.append(T - times(A, W))
            errors.append(error[0])
        self.error = torch.stack(errors, dim=-1)

    def _pulled(self, layer: int, dW: Tensor) -> tuple[Tensor, Tensor]:
        U = self.solvers[layer](dW)
        return U, times(self.designs[layer], U)


class SVD(LayerByLayer):
    """W = Q diag(s / (s^2 + ridge)) P'T with A = P diag(s) Q'.

    ``torch.linalg.svd`` reads its own status on the host when it runs on a GPU; this form is the
    fallback of last resort, so that wait is paid only there.
    """

    def __init__(
        self,
        designs: Sequence[Tensor],
        ridges: Float[Tensor, "*members layers"],
        targets: Sequence[Tensor],
    ) -> None:
        self.ridges = [ridge[..., None] for ridge in ridges.unbind(-1)]
        self.parts = []
        self.weights, self.residuals = [], []
        errors = []
        for A, ridge, T in zip(designs, self.ridges, targets, strict=True):
            finite = A.isfinite().all(-1).all(-1)
            P, s, Qh = torch.linalg.svd(
                torch.where(finite[..., None, None], A, 0.0), full_matrices=False
            )
            self.parts.append((P, s, Qh.mT))
            errors.append(torch.where(finite, _error(s, ridge), torch.inf))
            coordinates = P.mT @ T
            length = _length(s, ridge)[..., None]
            self.weights.append(Qh.mT @ (s[..., None] / length * (coordinates / length)))
            residual = P @ ((ridge.sqrt()[..., None] / length).square() * coordinates)
            if P.shape[-2] > P.shape[-1]:  # otherwise P spans everything and the rest is rounding
                residual += T - P @ coordinates
            self.residuals.append(residual)
        self.error = torch.stack(errors, dim=-1)

    def _pulled(self, layer: int, dW: Tensor) -> tuple[Tensor, Tensor]:
        (P, s, Q), ridge = self.parts[layer], self.ridges[layer]
        coordinates = Q.mT @ dW
        length = _length(s, ridge)[..., None]
        U = Q @ (coordinates / length / length)
        if Q.shape[-2] > Q.shape[-1]:  # otherwise Q spans everything and the rest is rounding
            U += (dW - Q @ coordinates) / ridge[..., None]
        return U, P @ (s[..., None] / length * (coordinates / length))


def _error(
    singular: Float[Tensor, "*members r"], ridge: Float[Tensor, "*members 1"]
) -> Float[Tensor, "*members"]:
    """eps s_max / sqrt(s_min^2 + ridge): this form sees the square root of the condition."""
    ratio = singular[..., 0] / _length(singular[..., -1:], ridge)[..., 0]
    error = torch.finfo(singular.dtype).eps * ratio
    return torch.where(error.isfinite(), error, torch.inf)


def _length(
    singular: Float[Tensor, "*members r"], ridge: Float[Tensor, "*members 1"]
) -> Float[Tensor, "*members r"]:
    """sqrt(s^2 + ridge) without squaring s, which may be too large for that."""
    return torch.hypot(singular, ridge.sqrt())


FORMS: dict[str, Callable[[Sequence[Tensor], Tensor, Sequence[Tensor]], Form]] = {
    "dual": Dual,
    "primal": Primal,
    "svd": SVD,
}
