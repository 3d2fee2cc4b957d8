"""Configurations without "auto" and data of arrays, for tests below the rules that resolve it."""

from typing import Any

import numpy as np

from protopinv.bank import Bank
from protopinv.objective import Objective
from protopinv.rows import MemoryRows
from protopinv.train.config import TrainConfig
from protopinv.train.data import Data, data_in_memory
from protopinv.train.targets import NumberStats

CONCRETE: dict[str, Any] = {
    "n_prototypes": 150,
    "hidden_sizes": (512,),
    "activation": "relu",
    "ridge": 10.0,
    "learn_scale": False,
    "n_members": 1,
    "number_encoding": "raw",
    "ensemble_size": 1,
    "stem": "none",
    "scaling": "feature",
    "projection": "pca",
    "n_components": 400,
    "max_epochs": 250,
    "batch_size": None,
    "lr": 0.05,
    "warmup_epochs": 20,
    "label_smoothing": 0.0,
    "early_stopping": False,
    "dtype": "float32",
    "row_dtype": "same",
}


def concrete(**values: Any) -> TrainConfig:
    """A configuration of these values; what is left out has one too."""
    return TrainConfig(**{**CONCRETE, **values})


def leaves_of(bank: Bank) -> Bank:
    """A copy of a bank whose tensors collect gradients."""
    copy = bank.snapshot()
    for tensor in copy.trained:
        tensor.requires_grad_()
    return copy


def data_of_arrays(
    X: np.ndarray,
    y: np.ndarray,
    objective: Objective,
    weight: np.ndarray | None = None,
    *,
    seed: int = 0,
    **options: Any,
) -> Data:
    """Data of a matrix, with targets as a user knows them; options as in ``data_in_memory``."""
    return data_in_memory(MemoryRows(X, y, weight), objective, seed, **options)


def numbers_of_targets(y: np.ndarray, weight: np.ndarray | None, loss: str) -> Objective:
    """The objective of these numbers, whose predictions are not bounded."""
    mass = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=float)
    targets = NumberStats(loss, bounded=False, is_column=np.ndim(y) == 1)
    targets.add(y, mass, "y")
    return targets.objective((y, mass))
