"""A random hidden layer that is never trained, and a ridge regression on top of it."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Self

import torch
from torch import Generator, Tensor

from benchmarks.baselines.contestant import Contestant
from benchmarks.tasks import Arrays
from protopinv.errors import ConfigError, DataError, TrainingError
from protopinv.features import FeatureMap
from protopinv.fitting import training_errors
from protopinv.network import ACTIVATIONS, Network, with_bias
from protopinv.objective import Classes
from protopinv.train.config import SMALLEST, TrainConfig
from protopinv.train.machine import resolve_device
from protopinv.train.prepare import fit_features
from protopinv.train.rows import as_tensor, piece_rows

Bias = Callable[[int, float, Generator], Tensor]


def _normal(units: int, scale: float, generator: Generator) -> Tensor:
    return scale * torch.randn(units, generator=generator, dtype=torch.float64)


def _phase(units: int, _: float, generator: Generator) -> Tensor:
    return 2 * torch.pi * torch.rand(units, generator=generator, dtype=torch.float64)


def _none(units: int, _: float, __: Generator) -> Tensor:
    return torch.zeros(units, dtype=torch.float64)


# How biases are drawn where they are not normal.
BIASES: dict[str, Bias] = {"cos": _phase, "identity": _none}


class RandomHiddenClassifier(Contestant):
    """Random units, and an output layer in closed form.

    With most activations that is an extreme learning machine. With "cos" the units are random
    Fourier features, cos(x'w + b), which approximate a Gaussian kernel (Rahimi and Recht, 2007).
    With "identity" they are random linear features, x'w.

    Parameters
    ----------
    n_hidden : int, default=1000
        Random units.
    activation : {"relu", "silu", "gelu", "tanh", "sigmoid", "cos", "identity"}, default="relu"
        Their activation.
    weight_scale : float, default=1.0
        Standard deviation of x'w, for rows of unit mean square; for "cos" that is the inverse width
        of the kernel.
    ridge : float, default=1.0
        Ridge of the output layer.
    scaling : {"none", "global", "feature"}, default="global"
        One factor for all features, one each, or none.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where to train and predict.
    random_state : int, RandomState or None, default=None
        The same value gives the same model on the same machine.

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    network_ : Network
        The plain network on original features, in float64.
    """

    def __init__(
        self,
        n_hidden: int = 1000,
        *,
        activation: str = "relu",
        weight_scale: float = 1.0,
        ridge: float = 1.0,
        scaling: str = "global",
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_hidden = n_hidden
        self.activation = activation
        self.weight_scale = weight_scale
        self.ridge = ridge
        self.scaling = scaling
        self.device = device
        self.random_state = random_state

    @property
    def n_trained_(self) -> int:
        """Numbers that were solved for: those of the output layer."""
        return int(self._model().network.weights[-1].numel())

    def fit(self, X: Any, y: Any) -> Self:  # type: ignore[override]
        """Draw W_1, sum the Gram matrix of act([1, x] W_1) over pieces of rows, solve for W_2."""
        config, device = self.config(), resolve_device(self.device)
        ridge: Any = self.ridge
        seed = self._seed()
        rows, data = self._arrays(X, y, seed)
        if not isinstance(data.objective, Classes):
            raise DataError(
                f"This classifier takes one class a row. y has {data.objective.n_outputs} columns. "
                "Give one of them, or use ProtoPINVClassifier for several labels a row."
            )
        generator = Generator().manual_seed(seed)
        with training_errors():
            features = fit_features(data.data, None, config, device)
            first = self._first_layer(features.n_components, generator).to(device)
            hidden = _Hidden(features, first, self.activation)
            second = _solve_outputs(data, hidden, float(ridge), device)
        layers = (features.back_project(first).cpu(), second.cpu())
        self.model_ = self._fitted(rows, data, Network(layers, self.activation), features, config)
        return self

    def config(self) -> TrainConfig:
        """The configuration of the features; raises ConfigError for a value outside its range."""
        self._require_number("n_hidden", Integral, 1, "a whole number, 1 or more")
        for name in ("weight_scale", "ridge"):
            self._require_number(name, Real, SMALLEST, "a positive number")
        if self.activation not in ACTIVATIONS:
            raise ConfigError(
                f"activation must be one of {', '.join(map(repr, ACTIVATIONS))}. "
                f"Got {self.activation!r}. Change it, or leave it at 'relu'."
            )
        options: dict[str, Any] = {"scaling": self.scaling}
        return TrainConfig(**options, projection="none", n_components=None)

    def _first_layer(self, d: int, generator: Generator) -> Tensor:
        scale, units = self.weight_scale, self.n_hidden
        W = torch.randn(d, units, generator=generator, dtype=torch.float64) * (scale * d**-0.5)
        bias = BIASES.get(self.activation, _normal)(units, scale, generator)
        return torch.cat([bias[None], W])


@dataclass(frozen=True)
class _Hidden:
    """Rows of original features to the activations of the random units."""

    features: FeatureMap
    weights: Tensor
    activation: str

    def __call__(self, X: Tensor) -> Tensor:
        """In float64: the Gram matrix of many units is close to singular."""
        act = ACTIVATIONS[self.activation]
        return act(torch.addmm(self.weights[0], self.features.project(X), self.weights[1:]))


def _solve_outputs(data: Arrays, hidden: _Hidden, ridge: float, device: torch.device) -> Tensor:
    units = hidden.weights.shape[1]
    gram = torch.zeros(units + 1, units + 1, dtype=torch.float64, device=device)
    objective, size = data.objective, piece_rows(max(units, data.X.shape[1]), None, device)
    cross = torch.zeros(units + 1, objective.n_outputs, dtype=torch.float64, device=device)
    for start in range(0, len(data.X), size):
        X = data.X[start : start + size]
        y = objective.encode(data.y[start : start + size])
        A = with_bias(hidden(as_tensor(X).to(device).double()))
        gram.addmm_(A.T, A)
        cross.addmm_(A.T, objective.for_projection(torch.from_numpy(y).to(device)))
    # (A'A + ridge I)^-1 A'T from sums over rows: there are too many to hold
    gram.diagonal().add_(ridge)
    factor, status = torch.linalg.cholesky_ex(gram)
    weights: Tensor = torch.cholesky_solve(cross, factor)
    if int(status) != 0 or not bool(weights.isfinite().all()):
        raise TrainingError(
            "The output layer must be solvable. Its system was singular to rounding. Raise ridge."
        )
    return weights
