"""The same network trained by back-propagation, in the same loop."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from itertools import pairwise
from numbers import Real
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from benchmarks.baselines.contestant import Contestant
from benchmarks.population import run_to_end
from protopinv.errors import ConfigError
from protopinv.estimators import ProtoPINVClassifier
from protopinv.estimators.parameters import as_estimator
from protopinv.estimators.rows import with_image_shape
from protopinv.features import FeatureMap
from protopinv.fitting import candidates, shape_of, training_errors
from protopinv.model import Model
from protopinv.network import Network
from protopinv.objective import Objective
from protopinv.rows import MemoryRows
from protopinv.train.config import TrainConfig, is_auto
from protopinv.train.data import data_in_memory
from protopinv.train.history import Observer, progress
from protopinv.train.machine import resolve_device, threads_for
from protopinv.train.optimizer import ParameterGroup
from protopinv.train.prepare import noise_generator, prepare
from protopinv.train.resolve import have_one_unit
from protopinv.train.step import TrainingStep

# What "auto" means for an MLP, where that is not what it means for a bank.
OWN: dict[str, Any] = {"early_stopping": False, "lr": 1e-3, "activation": "relu"}


def n_weights(model: Model) -> int:
    """Trainable parameters of a network behind a projection."""
    sizes = (model.features.n_components, *model.network.sizes[1:])
    return sum((d + 1) * h for d, h in pairwise(sizes))


# Parameters that only banks of prototypes have; here they cannot be set.
OF_BANKS = (
    *("effort", "n_prototypes", "n_members", "columns", "memory", "max_prototypes", "warm_start"),
    *("ridge", "learn_ridge", "learn_scale", "scale_lr_ratio", "lr_ratios", "solver"),
    *("weight_penalty", "condition_penalty", "temperature", "normalize_inputs", "hidden_dropout"),
    *("input_init", "output_init", "hidden_scale", "input_decay", "hidden_decay", "output_decay"),
)
WithoutBanks: Any = make_dataclass(
    "WithoutBanks",
    [(name, Any, field(default=getattr(Contestant, name), init=False)) for name in OF_BANKS],
    bases=(Contestant,),
    eq=False,
    repr=False,
    kw_only=True,
)


@as_estimator
class MLPBaselineClassifier(WithoutBanks):
    """A multi-layer perceptron: updates of the weights themselves.

    It shares all that is not the method with ProtoPINVClassifier: scaling and projection, rows on
    the device, chunks, schedule, guard, captured steps on a GPU. ``weight_decay`` is decoupled; the
    other parameters and the fitted attributes are those of ProtoPINVClassifier.
    """

    label_smoothing: float = 0.0
    weight_decay: float = 0.0

    @property
    def n_trained_(self) -> int:
        """Trainable parameters."""
        return n_weights(self._model())

    predict_proba = ProtoPINVClassifier.predict_proba
    predict_log_proba = ProtoPINVClassifier.predict_log_proba

    def __sklearn_tags__(self) -> Any:
        """Say that several labels a row are fine."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any, *, observer: Observer | None = None) -> Self:
        """Train on rows ``X`` and labels ``y``.

        ``observer`` is shown every epoch's report; if it returns True, training ends there.
        """
        config, X = with_image_shape(self.config(), X)
        device, seed = resolve_device(self.device), self._seed()
        rows, data = self._arrays(X, y, seed)
        objective = data.objective
        n, d = data.X.shape
        shape = shape_of(n, d, objective.n_groups, device, have_one_unit(data.X))
        config = candidates(config, shape)[0]
        progress_bar = progress(enabled=bool(self.verbose), also=observer)
        threads = threads_for(shape, objective.n_outputs, config, device)
        with progress_bar as watched, training_errors(), threads:
            source = MemoryRows(data.X, data.y)
            split = data_in_memory(source, objective, seed, share=config.held_out)
            prepared = prepare(split, config, device, seed=seed)
            sizes = (prepared.features.n_components, *config.widths, objective.n_outputs)
            weights = first_weights(sizes, Generator().manual_seed(seed)).to(device, config.dtype)
            generator = noise_generator(seed, device)
            step = WeightStep(weights, config, objective, self.weight_decay, generator)
            (history,) = run_to_end(
                step,
                prepared.rows,
                clock=time.perf_counter,
                validation=prepared.validation,
                observer=watched,
            )
        for warning in history.warnings():
            warnings.warn(warning, stacklevel=2)
        network = fold(weights, prepared.features.to("cpu"), config.activation)
        self.model_ = self._fitted(
            rows, data, network, prepared.features, config, prepared.front, history
        )
        return self

    def config(self) -> TrainConfig:
        """The hyperparameters, checked; raises ConfigError for a value outside its range."""
        self._require_number("weight_decay", Real, 0, "a number, 0 or more")
        config: TrainConfig = super().config()
        if config.early_stopping == "cross":
            raise ConfigError(
                "early_stopping must be True or False here. Got 'cross'. Change it to True."
            )
        return replace(config, **{n: v for n, v in OWN.items() if is_auto(getattr(config, n))})


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


class WeightStep(TrainingStep):
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
        groups, layers = [ParameterGroup(weights.layers, decay)], weights.layers
        width = layers[0].shape[1] - 1
        super().__init__(weights, groups, config, objective, width=width, generator=generator)
        self._no_error = torch.zeros(1, len(layers), device=layers[0].device)

    def weights(self, *, training: bool) -> AsTheyAre:
        """The weights that are trained, or those of the best epoch."""
        return AsTheyAre(list(self.trained if training else self.best), self._no_error, [])

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
