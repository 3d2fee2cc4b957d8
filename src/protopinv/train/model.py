"""From rows to a model: prepare, train, fold."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from protopinv.bank import Bank
from protopinv.errors import TrainingError
from protopinv.features import FeatureMap
from protopinv.network import Architecture, Network, solve_weights
from protopinv.train.config import TrainConfig
from protopinv.train.history import History
from protopinv.train.loop import EpochReport, train
from protopinv.train.losses import CrossEntropy
from protopinv.train.prepare import LabelledRows, features_of, first_bank, project_rows
from protopinv.train.step import SOLVE_TOLERANCE


@dataclass(frozen=True)
class Model:
    """A trained bank, the map before it, and the plain network both fold into."""

    bank: Bank
    features: FeatureMap
    network: Network
    history: History


def train_classifier(
    source: LabelledRows,
    config: TrainConfig,
    *,
    seed: int,
    device: torch.device,
    clock: Callable[[], float],
    held_out: NDArray[np.integer[Any]] | None = None,
    observer: Callable[[EpochReport], None] | None = None,
) -> Model:
    """Train on all rows but ``held_out``, the row numbers to validate on."""
    everything = np.arange(len(source.X))
    kept = everything if held_out is None else np.setdiff1d(everything, held_out)
    features = features_of(source, kept, config, device)
    rows = project_rows(source, kept, features, config, device)
    validation = None
    if held_out is not None:
        validation = project_rows(source, held_out, features, config, device)
    bank, history = train(
        first_bank(rows, source.n_classes, config, Generator().manual_seed(seed)),
        rows,
        config,
        loss=CrossEntropy(config.label_smoothing),
        architecture=architecture_of(config),
        generator=Generator(device).manual_seed(seed),
        clock=clock,
        validation=validation,
        observer=observer,
    )
    bank, features = bank.to("cpu"), features.to("cpu")
    return Model(bank, features, fold(bank, features, config), history)


def architecture_of(config: TrainConfig) -> Architecture:
    """The part of the configuration that a bank needs to become weights."""
    return Architecture(config.activation, config.temperature, config.normalize_inputs)


def fold(bank: Bank, features: FeatureMap, config: TrainConfig) -> Network:
    """Solve once in float64 and back-project: a plain network on original features."""
    exact = bank.to("cpu", torch.float64)
    architecture = architecture_of(config)
    solution = solve_weights(exact, architecture, form=config.solver)
    if not bool((solution.error < SOLVE_TOLERANCE).all()):
        solution = solve_weights(exact, architecture, form="svd")
    first, *others = (W.detach() for W in solution.weights)
    if not all(bool(W.isfinite().all()) for W in solution.weights):
        raise TrainingError(
            "The weights of a trained bank must be finite. They are not: its prototypes have grown "
            "too large. Lower lr, or raise ridge."
        )
    return Network((features.back_project(first), *others), config.activation)
