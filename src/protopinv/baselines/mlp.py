"""The same network trained by back-propagation, in the same loop."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any, Self

import torch
from torch import Generator, Tensor

from protopinv.errors import ConfigError
from protopinv.estimators.checks import hold_out, memory_named, require_number, resolve_device
from protopinv.estimators.door import ProbabilisticClassifier, with_image_shape, with_parameters
from protopinv.features import FeatureMap
from protopinv.network import Network
from protopinv.solve import Solution
from protopinv.train.config import AUTO, TrainConfig
from protopinv.train.loop import Observer, train
from protopinv.train.optimizer import Block
from protopinv.train.prepare import noise_generator, prepare
from protopinv.train.progress import progress
from protopinv.train.settle import check, is_auto, settle
from protopinv.train.step import Step

SHARED = (
    "hidden_sizes",
    "activation",
    "stem",
    "stem_filters",
    "stem_patch",
    "stem_pool",
    "image_shape",
    "image_copies",
    "copy_shift",
    "copy_bend",
    "copy_mirror",
    "scaling",
    "projection",
    "n_components",
    "max_epochs",
    "batch_size",
    "optimizer",
    "lr",
    "schedule",
    "warmup_epochs",
    "input_noise",
    "mixup",
    "label_smoothing",
    "averaging",
    "validation_fraction",
    "early_stopping",
    "n_iter_no_change",
    "dtype",
    "row_dtype",
)


# What "auto" means here, where it is not what it means for a bank.
OWN = {"early_stopping": False, "lr": 1e-3}


@with_parameters(SHARED)
class MLPBaselineClassifier(ProbabilisticClassifier):
    """A multi-layer perceptron: updates of the weights themselves.

    It shares all that is not the method with ProtoPINVClassifier: scaling and projection, rows on
    the device, chunks, schedule, guard, captured steps on a GPU.

    Parameters
    ----------
    {parameters}
    weight_decay : float, default=0.0
        Decoupled weight decay.
    device : {{"auto", "cpu", "cuda"}}, default="auto"
        Where to train and predict; "auto" takes a GPU where torch sees one.
    random_state : int, RandomState or None, default=None
        The same value gives the same model on the same machine.
    verbose : int, default=0
        1 shows a progress bar on stderr.

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    config_ : TrainConfig
        The hyperparameters as they were used: every "auto" settled.
    network_ : Network
        The plain network on original features, behind ``front_`` if there is one, in float64.
    front_ : Stem, Squash or None
        What stands before the network and does not fold into it.
    features_ : FeatureMap
        Scaling and projection before the network, already folded into ``network_``.
    history_ : History
        Loss, learning rate and validation score of every epoch.
    n_iter_ : int
        Epochs that were run.
    n_trained_ : int
        Numbers that were trained: weights and biases on the projected features.
    """

    def __init__(
        self,
        hidden_sizes: Sequence[int] | int | str = AUTO,
        *,
        activation: str = TrainConfig.activation,
        stem: str = TrainConfig.stem,
        stem_filters: Sequence[int] | int = TrainConfig.stem_filters,
        stem_patch: int = TrainConfig.stem_patch,
        stem_pool: int = TrainConfig.stem_pool,
        image_shape: Sequence[int] | None = TrainConfig.image_shape,
        image_copies: int = TrainConfig.image_copies,
        copy_shift: float = TrainConfig.copy_shift,
        copy_bend: float = TrainConfig.copy_bend,
        copy_mirror: bool = TrainConfig.copy_mirror,
        scaling: str = AUTO,
        projection: str = TrainConfig.projection,
        n_components: int | None = TrainConfig.n_components,
        max_epochs: int | str = AUTO,
        batch_size: int | str | None = AUTO,
        optimizer: str = TrainConfig.optimizer,
        lr: float | str = AUTO,
        weight_decay: float = 0.0,
        schedule: str = TrainConfig.schedule,
        warmup_epochs: int | str = AUTO,
        input_noise: float = TrainConfig.input_noise,
        mixup: float = TrainConfig.mixup,
        label_smoothing: float = TrainConfig.label_smoothing,
        averaging: float = TrainConfig.averaging,
        validation_fraction: float | str = TrainConfig.validation_fraction,
        early_stopping: bool | str = AUTO,
        n_iter_no_change: int = TrainConfig.n_iter_no_change,
        device: str = "auto",
        dtype: str = TrainConfig.dtype,
        row_dtype: str = AUTO,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.hidden_sizes = hidden_sizes
        self.activation = activation
        self.stem = stem
        self.stem_filters = stem_filters
        self.stem_patch = stem_patch
        self.stem_pool = stem_pool
        self.image_shape = image_shape
        self.image_copies = image_copies
        self.copy_shift = copy_shift
        self.copy_bend = copy_bend
        self.copy_mirror = copy_mirror
        self.scaling = scaling
        self.projection = projection
        self.n_components = n_components
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.lr = lr
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.warmup_epochs = warmup_epochs
        self.input_noise = input_noise
        self.mixup = mixup
        self.label_smoothing = label_smoothing
        self.averaging = averaging
        self.validation_fraction = validation_fraction
        self.early_stopping = early_stopping
        self.n_iter_no_change = n_iter_no_change
        self.device = device
        self.dtype = dtype
        self.row_dtype = row_dtype
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, *, observer: Observer | None = None) -> Self:
        """Train on rows ``X`` and labels ``y``.

        ``observer`` is shown every epoch's report; if it returns True, training ends there.
        """
        checked, X = with_image_shape(self.config(), X)
        if checked.early_stopping == "cross":
            raise ConfigError(
                "early_stopping must be True or False here. Got 'cross'. Change it to True."
            )
        require_number(self, "weight_decay", Real, lambda v: v >= 0, "a number, 0 or more")
        device = resolve_device(self.device)
        (rows, classes), seed = self._rows(X, y), self._seed()
        given = {**self._given(), "image_shape": checked.image_shape}
        config = settle(given, rows.shape(device))
        shown = progress(enabled=bool(self.verbose), also=observer)
        with shown as watched, memory_named():
            held_out = hold_out(rows.labels, config.held_out, seed)
            prepared = prepare(rows, config, device, seed=seed, held_out=held_out)
            sizes = (prepared.features.n_components, *config.widths, len(classes))
            weights = first_weights(sizes, Generator().manual_seed(seed)).to(device, config.dtype)
            step = WeightStep(weights, config, self.weight_decay, noise_generator(seed, device))
            history = train(
                step,
                prepared.rows,
                clock=time.perf_counter,
                validation=prepared.validation,
                observer=watched,
            )
        for warning in history.warnings():
            warnings.warn(warning, stacklevel=2)
        self.classes_ = classes
        self.config_ = config
        self.front_ = None if prepared.front is None else prepared.front.to("cpu")
        self.features_ = prepared.features.to("cpu")
        self.network_ = fold(weights, self.features_, config.activation)
        self.history_ = history
        self.n_iter_ = history.n_epochs
        self.n_trained_ = sum(W.numel() for W in weights.layers)
        return self

    def config(self) -> TrainConfig:
        """The hyperparameters, checked; raises ConfigError for a value outside its range."""
        return check(self._given())

    def _given(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in SHARED}
        return {name: OWN.get(name, v) if is_auto(v) else v for name, v in given.items()}


@dataclass(frozen=True)
class Weights:
    """One matrix a layer, its first row the bias."""

    layers: tuple[Tensor, ...]

    def to(self, device: torch.device, dtype: str) -> "Weights":
        """The same as leaves elsewhere."""
        kind = getattr(torch, dtype)
        return Weights(tuple(W.to(device, kind).requires_grad_() for W in self.layers))


def first_weights(sizes: Sequence[int], generator: Generator) -> Weights:
    """Normal with variance 2 / inputs (He et al., 2015), biases zero, drawn on the host."""
    layers = []
    for d, h in pairwise(sizes):
        W = torch.randn(d, h, generator=generator) * (2 / d) ** 0.5
        layers.append(torch.cat([torch.zeros(1, h), W]))
    return Weights(tuple(layers))


class WeightStep(Step):
    """Data pass and update: there is nothing to solve."""

    state: Weights

    def __init__(
        self, weights: Weights, config: TrainConfig, decay: float, generator: Generator
    ) -> None:
        blocks, layers = [Block(weights.layers, decay)], weights.layers
        super().__init__(
            weights,
            blocks,
            config,
            width=len(layers[0]) - 1,
            n_classes=layers[-1].shape[1],
            generator=generator,
        )
        self._no_error = torch.zeros(len(weights.layers), device=weights.layers[0].device)

    def weights(self, *, training: bool) -> Solution:
        """As they are."""
        return Solution(self.trained if training else self.kept, self._no_error)


def fold(weights: Weights, features: FeatureMap, activation: str) -> Network:
    """A plain network on original features, in float64."""
    first, *others = (W.detach().cpu().double() for W in weights.layers)
    return Network((features.back_project(first), *others), activation)
