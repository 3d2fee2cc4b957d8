"""The SVD form: slower, and right where Cholesky in the same precision has lost its digits."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.solve.form import LayerByLayer, Pulled


class SVD(LayerByLayer):
    """W = Q diag(s / (s^2 + ridge)) P'T with A = P diag(s) Q'.

    ``torch.linalg.svd`` reads its own status on the host when it runs on a GPU; this form is the
    fallback of last resort, so that wait is paid only there.
    """

    def __init__(
        self,
        designs: Sequence[Tensor],
        ridges: Float[Tensor, "*members layers"],
        columns: Sequence[int],  # noqa: ARG002
    ) -> None:
        self.ridges = [ridge[..., None] for ridge in ridges.unbind(-1)]
        self.parts = []
        errors = []
        for A, ridge in zip(designs, self.ridges, strict=True):
            finite = A.isfinite().all(-1).all(-1)
            P, s, Qh = torch.linalg.svd(
                torch.where(finite[..., None, None], A, 0.0), full_matrices=False
            )
            self.parts.append((P, s, Qh.mT))
            errors.append(torch.where(finite, _error(s, ridge), torch.inf))
        self.error = torch.stack(errors, dim=-1)
        self.solved: list[Tensor] = []
        self.residuals: list[Tensor] = []

    def weights(self, targets: Sequence[Tensor]) -> list[Tensor]:
        """W = Q diag(s / (s^2 + ridge)) P'T."""
        for (P, s, Q), ridge, T in zip(self.parts, self.ridges, targets, strict=True):
            coordinates = P.mT @ T
            length = _length(s, ridge)[..., None]
            self.solved.append(Q @ (s[..., None] / length * (coordinates / length)))
            residual = P @ ((ridge.sqrt()[..., None] / length).square() * coordinates)
            if P.shape[-2] > P.shape[-1]:  # otherwise P spans everything and the rest is rounding
                residual += T - P @ coordinates
            self.residuals.append(residual)
        return self.solved

    def pullback(self, layer: int, dW: Tensor, *, with_ridge: bool) -> Pulled:
        """As in the primal form, with G^-1 and T - AW taken through P, s and Q."""
        (P, s, Q), ridge, W = self.parts[layer], self.ridges[layer], self.solved[layer]
        coordinates = Q.mT @ dW
        length = _length(s, ridge)[..., None]
        U = Q @ (coordinates / length / length)
        if Q.shape[-2] > Q.shape[-1]:  # otherwise Q spans everything and the rest is rounding
            U += (dW - Q @ coordinates) / ridge[..., None]
        dT = P @ (s[..., None] / length * (coordinates / length))
        dA = self.residuals[layer] @ U.mT - dT @ W.mT
        return dA, dT, -(U * W).sum((-2, -1)) if with_ridge else None


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
