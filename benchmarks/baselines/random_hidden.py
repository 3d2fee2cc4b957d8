"""A random hidden layer that is never trained, and a ridge regression on top of it."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import torch
from torch import Generator, Tensor

from protopinv.errors import ConfigError, TrainingError
from protopinv.estimators.checks import memory_named, require_number, resolve_device
from protopinv.estimators.classes import NetworkClassifier
from protopinv.features import FeatureMap
from protopinv.network import ACTIVATIONS, Network, with_bias
from protopinv.solve import solve_gram
from protopinv.train.config import TrainConfig
from protopinv.train.prepare import features_of
from protopinv.train.source import Source

Bias = Callable[[int, float, Generator], Tensor]


def _normal(units: int, scale: float, generator: Generator) -> Tensor:
    return scale * torch.randn(units, generator=generator, dtype=torch.float64)


def _phase(units: int, _: float, generator: Generator) -> Tensor:
    return 2 * torch.pi * torch.rand(units, generator=generator, dtype=torch.float64)


def _none(units: int, _: float, __: Generator) -> Tensor:
    return torch.zeros(units, dtype=torch.float64)


# How biases are drawn where they are not normal.
BIASES: dict[str, Bias] = {"cos": _phase, "identity": _none}


class RandomHiddenClassifier(NetworkClassifier):
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

    def fit(self, X: Any, y: Any) -> Self:
        """Draw W_1, sum the Gram matrix of act([1, x] W_1) over pieces of rows, solve for W_2."""
        config, device = self._config(), resolve_device(self.device)
        checked = self._checked(X, y, None)
        objective = self._classes_of(checked)
        rows = self._source(checked, objective)
        generator = Generator().manual_seed(self._seed())
        with memory_named():
            features = features_of(rows, np.arange(len(rows.X)), config, device)
            first = self._first_layer(features.n_components, generator).to(device)
            hidden = _Hidden(features, first, self.activation)
            second = _solve_outputs(rows, hidden, float(self.ridge), device)
        self._learn(checked.learned)
        self.objective_ = objective
        self.classes_ = objective.labels
        layers = (features.back_project(first).cpu(), second.cpu())
        self.network_ = Network(layers, self.activation)
        return self

    def _config(self) -> TrainConfig:
        """The configuration of the features; raises ConfigError for a value outside its range."""
        require_number(self, "n_hidden", Integral, lambda v: v > 0, "a whole number, 1 or more")
        for name in ("weight_scale", "ridge"):
            require_number(self, name, Real, lambda v: v > 0, "a positive number")
        if self.activation not in ACTIVATIONS:
            raise ConfigError(
                f"activation must be one of {', '.join(map(repr, ACTIVATIONS))}. "
                f"Got {self.activation!r}. Change it, or leave it at 'relu'."
            )
        options: dict[str, Any] = {"projection": "none", "scaling": self.scaling}
        return TrainConfig(**options)

    def _first_layer(self, d: int, generator: Generator) -> Tensor:
        scale, units = self.weight_scale, self.n_hidden
        W = torch.randn(d, units, generator=generator, dtype=torch.float64) * (scale * d**-0.5)
        bias = BIASES.get(self.activation, _normal)(units, scale, generator)
        return torch.cat([bias[None], W])

    @property
    def n_trained_(self) -> int:
        """Numbers that were solved for: those of the output layer."""
        return self.network_.weights[-1].numel()


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


def _solve_outputs(rows: Source, hidden: _Hidden, ridge: float, device: torch.device) -> Tensor:
    units = hidden.weights.shape[1]
    gram = torch.zeros(units + 1, units + 1, dtype=torch.float64, device=device)
    n_outputs = rows.objective.n_outputs
    cross = torch.zeros(units + 1, n_outputs, dtype=torch.float64, device=device)
    width = max(units, rows.X.shape[1])
    for piece in rows.pieces(np.arange(len(rows.X)), device, width):
        A = with_bias(hidden(piece.X))
        gram.addmm_(A.T, A)
        cross.addmm_(A.T, rows.objective.for_projection(piece.y))
    weights, status = solve_gram(gram, cross, ridge)
    if int(status) != 0 or not bool(weights.isfinite().all()):
        raise TrainingError(
            "The output layer must be solvable. Its system was singular to rounding. Raise ridge."
        )
    return weights
