"""The same network trained by back-propagation, in the same loop."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from protopinv.errors import ConfigError
from protopinv.estimators.checks import hold_out, memory_named, require_number, resolve_device
from protopinv.estimators.classes import ProbabilisticClassifier, known_classes
from protopinv.estimators.door import with_image_shape
from protopinv.estimators.fitting import with_fast_rows
from protopinv.estimators.parameters import TrainingParameters, as_estimator
from protopinv.features import FeatureMap
from protopinv.network import Network
from protopinv.objective import Objective
from protopinv.train.config import TrainConfig
from protopinv.train.loop import Observer, train
from protopinv.train.optimizer import Block
from protopinv.train.prepare import noise_generator, prepare
from protopinv.train.progress import progress
from protopinv.train.settle import check, is_auto, settle
from protopinv.train.step import Step
from protopinv.train.threads import threads_for

# What "auto" means for an MLP, where that is not what it means for a bank.
OWN = {"early_stopping": False, "lr": 1e-3, "activation": "relu"}


@as_estimator
class MLPBaselineClassifier(ProbabilisticClassifier, TrainingParameters):
    """A multi-layer perceptron: updates of the weights themselves.

    It shares all that is not the method with ProtoPINVClassifier: scaling and projection, rows on
    the device, chunks, schedule, guard, captured steps on a GPU. ``weight_decay`` is decoupled; the
    other parameters and the fitted attributes are those of ProtoPINVClassifier.
    """

    label_smoothing: float = TrainConfig.label_smoothing
    weight_decay: float = 0.0

    def fit(self, X: Any, y: Any, *, observer: Observer | None = None) -> Self:
        """Train on rows ``X`` and labels ``y``.

        ``observer`` is shown every epoch's report; if it returns True, training ends there.
        """
        config, X = with_image_shape(self.config(), X)
        device = resolve_device(self.device)
        checked, seed = self._checked(X, y, None), self._seed()
        objective = self._objective_of(checked)
        source = self._source(checked, objective)
        shape = source.shape(device)
        parameters = {**self._parameters(), "image_shape": config.image_shape}
        config = with_fast_rows(settle(parameters, shape), shape)
        shown = progress(enabled=bool(self.verbose), also=observer)
        threads = threads_for(shape, objective.n_outputs, config, device)
        with shown as watched, memory_named(), threads:
            held_out = hold_out(source.groups(), config.held_out, seed)
            prepared = prepare(source, config, device, seed=seed, held_out=held_out)
            sizes = (prepared.features.n_components, *config.widths, objective.n_outputs)
            weights = first_weights(sizes, Generator().manual_seed(seed)).to(device, config.dtype)
            generator = noise_generator(seed, device)
            step = WeightStep(weights, config, objective, self.weight_decay, generator)
            rows, validation = prepared.rows, prepared.validation
            clock = time.perf_counter
            (history,) = train(step, rows, clock=clock, validation=validation, observer=watched)
        for warning in history.warnings():
            warnings.warn(warning, stacklevel=2)
        self._learn(checked.learned)
        self.objective_, self.classes_ = objective, known_classes(objective)
        self.config_, self.history_, self.n_iter_ = config, history, history.n_epochs
        self.front_ = None if prepared.front is None else prepared.front.to("cpu")
        self.features_ = prepared.features.to("cpu")
        self.network_ = fold(weights, self.features_, config.activation)
        self.n_trained_ = sum(W.numel() for W in weights.layers)
        return self

    def config(self) -> TrainConfig:
        """The hyperparameters, checked; raises ConfigError for a value outside its range."""
        require_number(self, "weight_decay", Real, lambda v: v >= 0, "a number, 0 or more")
        config = check(self._parameters())
        if config.early_stopping == "cross":
            raise ConfigError(
                "early_stopping must be True or False here. Got 'cross'. Change it to True."
            )
        return config

    def _parameters(self) -> dict[str, Any]:
        return {name: OWN.get(name, v) if is_auto(v) else v for name, v in self._given().items()}


@dataclass(frozen=True)
class Weights:
    """One matrix a layer, its first row the bias, behind a leading axis of one member."""

    layers: tuple[Tensor, ...]

    def to(self, device: torch.device, dtype: str) -> "Weights":
        """These weights on a device, in a number type."""
        return Weights(tuple(W.to(device, getattr(torch, dtype)) for W in self.layers))


def first_weights(sizes: Sequence[int], generator: Generator) -> Weights:
    """Normal with variance 2 / inputs (He et al., 2015), biases zero, drawn on the host."""
    layers = []
    for d, h in pairwise(sizes):
        W = torch.randn(d, h, generator=generator) * (2 / d) ** 0.5
        layers.append(torch.cat([torch.zeros(1, h), W])[None])
    return Weights(tuple(layers))


@dataclass(frozen=True)
class AsTheyAre:
    """Weights as a step wants them: nothing had to be solved for."""

    weights: list[Tensor]
    error: Float[Tensor, "m layers"]
    factors: list[tuple[Tensor, Tensor] | None]


class WeightStep(Step[AsTheyAre]):
    """Data pass and update: there is nothing to solve."""

    state: Weights

    def __init__(
        self,
        weights: Weights,
        config: TrainConfig,
        objective: Objective,
        decay: float,
        generator: Generator,
    ) -> None:
        blocks, layers = [Block(weights.layers, decay)], weights.layers
        width = layers[0].shape[1] - 1
        super().__init__(weights, blocks, [config], objective, width=width, generator=generator)
        self._no_error = torch.zeros(1, len(layers), device=layers[0].device)

    def weights(self, *, training: bool) -> AsTheyAre:
        """The weights that are trained, or those of the best epoch."""
        return AsTheyAre(list(self.trained if training else self.kept), self._no_error, [])

    def pullback(
        self,
        solved: AsTheyAre,  # noqa: ARG002
        gradients: list[Tensor],
    ) -> tuple[list[Tensor | None], None]:
        """The gradients themselves."""
        return list(gradients), None


def fold(weights: Weights, features: FeatureMap, activation: str) -> Network:
    """A plain network on original features, in float64."""
    first, *others = (W[0].detach().cpu().double() for W in weights.layers)
    return Network((features.back_project(first), *others), activation)
