"""The gap between training and test, next to what is said to predict it.

Proposition 1 bounds the gap by kappa C / sqrt(N) + sqrt(log(1 / delta) / 2N) with a constant C that
it leaves open. So its first term, without C, is a diagnostic to compare runs and no guarantee.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from protopinv.diagnose.conditioning import Diagnosis
from protopinv.network import Network, dense

MARGIN_QUANTILE = 0.1


@dataclass(frozen=True)
class Outputs:
    """Raw outputs of a network and the labels they should have given."""

    values: Float[Tensor, "n k"]
    labels: Int[Tensor, " n"]

    @property
    def error(self) -> float:
        """Share of wrong answers."""
        return float((self.values.argmax(dim=1) != self.labels).double().mean())

    @property
    def loss(self) -> float:
        """Mean cross-entropy."""
        return float(cross_entropy(self.values, self.labels))

    @property
    def margin(self) -> float:
        """The lower decile of (output of the right class - largest other output)."""
        right = self.values.gather(1, self.labels[:, None])[:, 0]
        others = self.values.scatter(1, self.labels[:, None], -torch.inf).amax(dim=1)
        return float(torch.quantile(right - others, MARGIN_QUANTILE))


@dataclass(frozen=True)
class Generalisation:
    """Both gaps are test minus training; every other number is said to grow with them.

    ``kappa_term`` and ``confidence_term`` are those of Proposition 1, the first without its
    constant. The norms are of the plain network on original features, biases left out.
    ``spectral_over_margin`` is the product of spectral norms over the margin, the leading factor of
    margin bounds (Bartlett, Foster and Telgarsky, 2017), infinite for margins of zero and less.
    """

    error_gap: float
    loss_gap: float
    kappa: float
    kappa_term: float
    confidence_term: float
    system_kappa: float
    frobenius_norm: float
    spectral_norm: float
    inverse_margin: float
    spectral_over_margin: float


def measure_generalisation(
    network: Network, diagnosis: Diagnosis, train: Outputs, test: Outputs, *, delta: float = 0.05
) -> Generalisation:
    """The gaps of a network, and everything that might have foretold them."""
    kappa, n = diagnosis.layers[0].condition, len(train.labels)
    matrices = [dense(W)[1:].double() for W in network.weights]
    spectral = math.prod(float(torch.linalg.matrix_norm(W, 2)) for W in matrices)
    margin = train.margin
    return Generalisation(
        error_gap=test.error - train.error,
        loss_gap=test.loss - train.loss,
        kappa=kappa,
        kappa_term=kappa / math.sqrt(n),
        confidence_term=math.sqrt(math.log(1 / delta) / (2 * n)),
        system_kappa=diagnosis.layers[0].system_condition,
        frobenius_norm=math.sqrt(sum(float(W.square().sum()) for W in matrices)),
        spectral_norm=spectral,
        inverse_margin=1 / margin if margin > 0 else math.inf,
        spectral_over_margin=spectral / margin if margin > 0 else math.inf,
    )
