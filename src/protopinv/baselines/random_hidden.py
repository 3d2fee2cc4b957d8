"""A random hidden layer that is never trained, and a ridge regression on top of it."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal, Self

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


class ELMClassifier(NetworkClassifier):
    """Extreme learning machine: a random hidden layer, and an output layer in closed form.

    Parameters
    ----------
    n_hidden : int, default=1000
        Random units.
    activation : {"relu", "silu", "gelu", "tanh", "sigmoid"}, default="relu"
        Their activation.
    weight_scale : float, default=1.0
        Standard deviation of what goes into a unit, for rows of unit mean square.
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
        """Draw the hidden layer, solve the output layer."""
        _require_positive(self, n_hidden=Integral, weight_scale=Real, ridge=Real)
        config = _config(activation=self.activation, scaling=self.scaling)
        _fit_random_hidden(self, X, y, self.n_hidden, config.activation, config, _normal_bias)
        return self

    @property
    def n_trained_(self) -> int:
        """Numbers that were solved for: those of the output layer."""
        return self.network_.weights[-1].numel()


class RandomFeatureRidgeClassifier(NetworkClassifier):
    """Ridge regression on random features.

    Parameters
    ----------
    n_features : int, default=1000
        Random features.
    kind : {"fourier", "linear"}, default="fourier"
        cos(x'w + b), which approximates a Gaussian kernel (Rahimi and Recht, 2007), or x'w alone.
    weight_scale : float, default=1.0
        Standard deviation of x'w, for rows of unit mean square: the inverse width of the kernel.
    ridge : float, default=1.0
        Ridge of the regression.
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
        n_features: int = 1000,
        *,
        kind: Literal["fourier", "linear"] = "fourier",
        weight_scale: float = 1.0,
        ridge: float = 1.0,
        scaling: str = "global",
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_features = n_features
        self.kind = kind
        self.weight_scale = weight_scale
        self.ridge = ridge
        self.scaling = scaling
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Draw the features, solve the regression."""
        _require_positive(self, n_features=Integral, weight_scale=Real, ridge=Real)
        kinds = {"fourier": ("cos", _phase), "linear": ("identity", _no_bias)}
        if self.kind not in kinds:
            raise ConfigError(
                f"kind must be one of 'fourier', 'linear'. Got {self.kind!r}. "
                "Change it, or leave it at 'fourier'."
            )
        activation, bias = kinds[self.kind]
        config = _config(scaling=self.scaling)
        _fit_random_hidden(self, X, y, self.n_features, activation, config, bias)
        return self

    @property
    def n_trained_(self) -> int:
        """Numbers that were solved for: those of the regression."""
        return self.network_.weights[-1].numel()


Bias = Callable[[int, float, Generator], Tensor]


def _normal_bias(units: int, scale: float, generator: Generator) -> Tensor:
    return scale * torch.randn(units, generator=generator, dtype=torch.float64)


def _phase(units: int, _: float, generator: Generator) -> Tensor:
    return 2 * torch.pi * torch.rand(units, generator=generator, dtype=torch.float64)


def _no_bias(units: int, _: float, __: Generator) -> Tensor:
    return torch.zeros(units, dtype=torch.float64)


def _fit_random_hidden(
    estimator: ELMClassifier | RandomFeatureRidgeClassifier,
    X: Any,
    y: Any,
    units: int,
    activation: str,
    config: TrainConfig,
    bias: Bias,
) -> None:
    """Draw W_1, sum the Gram matrix of act([1, x] W_1) over pieces of rows, solve for W_2."""
    device = resolve_device(estimator.device)
    checked = estimator._checked(X, y, None)
    objective = estimator._classes_of(checked)
    rows = estimator._source(checked, objective)
    generator = Generator().manual_seed(estimator._seed())
    with memory_named():
        everything = np.arange(len(rows.X))
        features = features_of(rows, everything, config, device)
        first = _first_layer(features, units, estimator.weight_scale, bias, generator).to(device)
        hidden = _Hidden(features, first, activation)
        second = _solve_outputs(rows, hidden, float(estimator.ridge), device)
    estimator._learn(checked.learned)
    estimator.objective_ = objective
    estimator.classes_ = objective.labels
    folded = (features.back_project(first).cpu(), second.cpu())
    estimator.network_ = Network(folded, activation)


def _first_layer(
    features: FeatureMap, units: int, scale: float, bias: Bias, generator: Generator
) -> Tensor:
    d = features.n_components
    W = torch.randn(d, units, generator=generator, dtype=torch.float64) * (scale * d**-0.5)
    return torch.cat([bias(units, scale, generator)[None], W])


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
    everything, width = np.arange(len(rows.X)), max(units, rows.X.shape[1])
    for piece in rows.pieces(everything, device, width):
        A = with_bias(hidden(piece.X))
        gram.addmm_(A.T, A)
        cross.addmm_(A.T, rows.objective.for_projection(piece.y))
    weights, status = solve_gram(gram, cross, ridge)
    if int(status) != 0 or not bool(weights.isfinite().all()):
        raise TrainingError(
            "The output layer must be solvable. Its system was singular to rounding. Raise ridge."
        )
    return weights


def _config(**choices: Any) -> TrainConfig:
    """The part of the configuration that a random layer shares, checked."""
    return TrainConfig(projection="none", **choices)


def _require_positive(estimator: Any, **kinds: type) -> None:
    for name, kind in kinds.items():
        rule = "a whole number, 1 or more" if kind is Integral else "a positive number"
        require_number(estimator, name, kind, lambda v: v > 0, rule)
