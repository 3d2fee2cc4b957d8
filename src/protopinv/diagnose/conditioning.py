"""How well conditioned each layer's solve is, and how much its weights depend on what it is given.

Everything follows from one singular value decomposition A = U diag(s) V' of the design, in float64.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.bank import Bank
from protopinv.diagnose.sensitivity import Sensitivity, measure_sensitivity
from protopinv.network import Architecture, designs_of, targets_of


@dataclass(frozen=True)
class LayerDiagnosis:
    """One ridge solve W = (A'A + ridge I)^-1 A'T.

    ``condition`` is s_max / s_min of the prototype matrix A, infinite where it lacks rank;
    ``system_condition`` is that of the smaller system that is solved, (s_max^2 + ridge) /
    (s_min^2 + ridge). The effective rank is the exponential of the entropy of the normalised
    spectrum (Roy and Vetterli, 2007); ``degrees_of_freedom`` is sum s^2 / (s^2 + ridge).
    """

    ridge: float
    singular_values: tuple[float, ...]
    condition: float
    system_condition: float
    effective_rank: float
    system_effective_rank: float
    degrees_of_freedom: float
    sensitivity: Sensitivity


@dataclass(frozen=True)
class Diagnosis:
    """A layer each, from the inputs to the outputs."""

    layers: tuple[LayerDiagnosis, ...]


@torch.no_grad()
def diagnose(bank: Bank, architecture: Architecture) -> Diagnosis:
    """Conditioning and sensitivity of every solve of a bank."""
    exact = bank.to("cpu", torch.float64)
    systems = zip(
        designs_of(exact, architecture),
        targets_of(exact, architecture),
        exact.ridge.tolist(),
        strict=True,
    )
    return Diagnosis(tuple(diagnose_layer(A, T, ridge) for A, T, ridge in systems))


def diagnose_layer(
    A: Float[Tensor, "p d"], T: Float[Tensor, "p h"], ridge: float
) -> LayerDiagnosis:
    """The numbers of one solve."""
    singular = torch.linalg.svdvals(A)
    eigenvalues = singular.square() + ridge
    smallest = float(singular[-1])
    negligible = float(singular[0]) * max(A.shape) * torch.finfo(A.dtype).eps
    return LayerDiagnosis(
        ridge=ridge,
        singular_values=tuple(singular.tolist()),
        condition=float(singular[0]) / smallest if smallest > negligible else float("inf"),
        system_condition=float(eigenvalues[0] / eigenvalues[-1]),
        effective_rank=effective_rank(singular),
        system_effective_rank=effective_rank(eigenvalues),
        degrees_of_freedom=float((singular.square() / eigenvalues).sum()),
        sensitivity=measure_sensitivity(A, T, ridge),
    )


def effective_rank(spectrum: Float[Tensor, " n"]) -> float:
    """exp(-sum q log q) with q = spectrum / sum: n for a flat spectrum, 1 for a single value."""
    share = spectrum / spectrum.sum()
    return float(torch.exp(torch.special.entr(share).sum()))
