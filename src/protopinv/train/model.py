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
from protopinv.features import FeatureMap, Stem
from protopinv.network import Network, solve_weights
from protopinv.train.bank_step import BankStep, architecture_of
from protopinv.train.config import TrainConfig
from protopinv.train.history import History
from protopinv.train.loop import Observer, train
from protopinv.train.prepare import LabelledRows, first_bank, noise_generator, prepare
from protopinv.train.step import SOLVE_TOLERANCE


@dataclass(frozen=True)
class Model:
    """A trained bank, the map before it, and the plain network both fold into.

    A stem stands before the network and does not fold.
    """

    bank: Bank
    stem: Stem | None
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
    observer: Observer | None = None,
) -> Model:
    """Train on all rows but ``held_out``, the row numbers to validate on."""
    prepared = prepare(source, config, device, seed=seed, held_out=held_out)
    bank = first_bank(prepared.rows, source.n_classes, config, Generator().manual_seed(seed))
    step = BankStep(bank.leaves(), config, generator=noise_generator(seed, device))
    history = train(
        step, prepared.rows, clock=clock, validation=prepared.validation, observer=observer
    )
    bank, features = step.state.to("cpu"), prepared.features.to("cpu")
    stem = None if prepared.stem is None else prepared.stem.to("cpu")
    return Model(bank, stem, features, fold(bank, features, config), history)


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
