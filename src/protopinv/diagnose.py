"""How well conditioned the solves of a bank are, and how far weights move when the bank moves.

Everything follows from one singular value decomposition A = U diag(s) V' of the prototype matrix,
in float64. Lemma 1 of the paper, with its constants: to first order
dW = G^-1 dA' (T - AW) - G^-1 A' dA W + G^-1 A' dT with G = A'A + ridge I, hence
||dW|| <= C_1 ||dA|| + C_2 ||dT|| with C_2 = ||G^-1 A'|| = max s / (s^2 + ridge), at most
1 / (2 sqrt(ridge)) whatever the smallest singular value, and C_1 = ||G^-1|| ||T - AW|| + C_2 ||W||.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from protopinv.bank import Bank
from protopinv.errors import ConfigError
from protopinv.network import Architecture, designs_of, targets_of
from protopinv.solve import ridge_solve
from protopinv.train.config import TrainConfig
from protopinv.train.history import EpochReport


@dataclass(frozen=True)
class Sensitivity:
    """C_1 and C_2 of Lemma 1, the norm of dW / dridge = -G^-1 W, and of W itself."""

    to_inputs: float
    to_targets: float
    to_ridge: float
    weight_norm: float


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
    """One entry per layer, from the inputs to the outputs."""

    layers: tuple[LayerDiagnosis, ...]


@dataclass(frozen=True)
class Perturbation:
    """How far the weights moved, and the most that Lemma 1 allows to first order."""

    change: float
    bound: float


@torch.no_grad()
def diagnose(bank: Bank, architecture: Architecture) -> Diagnosis:
    """Conditioning and sensitivity of every solve of a bank."""
    systems = _systems(bank, architecture)
    return Diagnosis(tuple(diagnose_layer(A, T, ridge) for A, T, ridge in systems))


@torch.no_grad()
def check_lemma(
    bank: Bank, architecture: Architecture, *, size: float, generator: Generator
) -> tuple[Perturbation, ...]:
    """For every layer: move its design and targets by ``size`` times the norm of the design."""
    return tuple(
        perturb(A, T, ridge, size * float(A.norm()), generator)
        for A, T, ridge in _systems(bank, architecture)
    )


def _systems(bank: Bank, architecture: Architecture) -> Iterator[tuple[Tensor, Tensor, float]]:
    """Design, targets and ridge of every layer, in float64 on the host."""
    exact = bank.to("cpu", torch.float64)
    designs, targets = designs_of(exact, architecture), targets_of(exact, architecture)
    return zip(designs, targets, exact.ridge.tolist(), strict=True)


@torch.no_grad()
def diagnose_layer(
    A: Float[Tensor, "p d"], T: Float[Tensor, "p h"], ridge: float
) -> LayerDiagnosis:
    """The numbers of one solve."""
    U, singular, _ = torch.linalg.svd(A, full_matrices=False)
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
        sensitivity=_sensitivity(U, singular, T, ridge, A.shape[1]),
    )


def effective_rank(spectrum: Float[Tensor, " n"]) -> float:
    """exp(-sum q log q) with q = spectrum / sum: n for a flat spectrum, 1 for a single value."""
    share = spectrum / spectrum.sum()
    return float(torch.exp(torch.special.entr(share).sum()))


def _sensitivity(
    U: Float[Tensor, "p r"], s: Float[Tensor, " r"], T: Float[Tensor, "p h"], ridge: float, d: int
) -> Sensitivity:
    """C_1, C_2, ||G^-1 W|| and ||W||, from the singular value decomposition of a d-column A."""
    eigenvalues = s.square() + ridge
    coefficients = U.T @ T
    W = (s / eigenvalues)[:, None] * coefficients  # in the basis of the right singular vectors
    residual = T - U @ (s[:, None] * W)
    smallest = ridge if len(s) < d else float(eigenvalues[-1])  # eigenvalue of G, d by d
    to_targets = float((s / eigenvalues).max())
    return Sensitivity(
        to_inputs=_spectral_norm(residual) / smallest + to_targets * _spectral_norm(W),
        to_targets=to_targets,
        to_ridge=float((W / eigenvalues[:, None]).norm()),
        weight_norm=float(W.norm()),
    )


@torch.no_grad()
def perturb(
    A: Float[Tensor, "p d"],
    T: Float[Tensor, "p h"],
    ridge: float,
    size: float,
    generator: Generator,
) -> Perturbation:
    """Move A and T by ``size`` (Frobenius) each in a random direction, and solve again."""
    dA, dT = (_random_direction(size, like, generator) for like in (A, T))
    strength = torch.tensor(ridge, dtype=A.dtype)
    before, after = (
        ridge_solve(design, target, strength, form="svd").weights[0]
        for design, target in ((A, T), (A + dA, T + dT))
    )
    constants = diagnose_layer(A, T, ridge).sensitivity
    bound = (constants.to_inputs + constants.to_targets) * size
    return Perturbation(float((after - before).norm()), bound)


def _random_direction(size: float, like: Tensor, generator: Generator) -> Tensor:
    draw = torch.randn(like.shape, generator=generator, dtype=like.dtype)
    return draw.mul_(size / draw.norm())


def _spectral_norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))


@dataclass(frozen=True)
class TracePoint:
    """A bank after an epoch (counted from zero): its diagnosis, and its prototypes per class."""

    epoch: int
    diagnosis: Diagnosis
    counts: tuple[int, ...]


@dataclass
class Trace:
    """An observer for ``fit`` that diagnoses a bank every few epochs.

    It watches the first bank of those that are trained together, which learns from all rows, with
    its own activation. Where several candidates are screened, ``points`` are of the one that is
    trained to the end, from its first epoch on; those of all are in ``screened``, by configuration.
    The bank is as it was after that epoch, whichever epoch is selected in the end.

    >>> trace = Trace(every=25)
    >>> model.fit(X, y, observer=trace)
    >>> [point.diagnosis.layers[0].condition for point in trace.points]
    """

    every: int = 1
    points: list[TracePoint] = field(default_factory=list)
    screened: dict[TrainConfig, list[TracePoint]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"every must be 1 or more. Got {self.every}. Raise it.")

    def __call__(self, report: EpochReport) -> None:
        """Diagnose the bank of every ``every``-th epoch; that waits for the device."""
        if not isinstance(report.state, Bank) or report.config is None:
            raise ConfigError(
                "A trace watches a bank. This training has none. Use it with ProtoPINVClassifier."
            )
        if report.candidate is None and not self.points:
            self.points.extend(self.screened.get(report.config, ()))
        if report.epoch % self.every:
            return
        bank = report.state.member(0)
        outputs = bank.outputs.detach().cpu()
        counts = outputs.argmax(dim=1).bincount(minlength=outputs.shape[1])
        diagnosis = diagnose(bank, report.config.architecture)
        point = TracePoint(report.epoch, diagnosis, tuple(counts.tolist()))
        if report.candidate is None:
            self.points.append(point)
        else:
            self.screened.setdefault(report.config, []).append(point)
