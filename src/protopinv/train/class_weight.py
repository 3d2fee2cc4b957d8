"""Weights of classes, by which those of rows are multiplied."""

from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopinv.errors import ConfigError, DataError
from protopinv.objective import Classes, Objective
from protopinv.rows import RowSource, weighted
from protopinv.train.survey import pieces_of
from protopinv.train.targets import LabelCounts, few


class ClassWeights(NamedTuple):
    """What rows of each label count beside their own weight."""

    labels: NDArray[Any]
    factors: NDArray[np.float64]

    def of(self, objective: Objective) -> Tensor:
        """The factor of each class of an objective; 1 for a class without rows."""
        factors = torch.ones(objective.n_groups, dtype=torch.float64)
        if isinstance(objective, Classes):
            there = np.isin(self.labels, objective.labels)
            places = np.searchsorted(objective.labels, self.labels[there])
            factors[torch.from_numpy(places)] = torch.from_numpy(self.factors[there])
        return factors


def with_class_weight(rows: RowSource, class_weight: Any) -> tuple[RowSource, ClassWeights | None]:
    """Rows whose weights are multiplied by those of their classes, and these."""
    if class_weight is None:
        return rows, None
    check_class_weight(class_weight, is_column=rows.is_column)
    counts = LabelCounts()
    for block, piece in pieces_of(rows, rows.blocks, features=False):
        mass = np.ones(len(piece.y)) if piece.weight is None else piece.weight
        counts.add(np.asarray(piece.y), mass, "y" if rows.in_memory else block.file)
    factors = class_factors(class_weight, counts.labels, counts.mass)
    weights = ClassWeights(counts.labels, factors)
    return weighted(rows, *weights), weights


def class_factors(
    class_weight: Any, labels: NDArray[Any], mass: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What rows of each class count beside their own weights, which have this ``mass``."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        even: NDArray[np.float64] = mass.sum() / (len(mass) * mass)
        return even
    check_class_weight(class_weight)
    names = labels.tolist()
    for label, number in class_weight.items():
        if label not in names:
            raise DataError(
                f"class_weight may name classes of y only: {few(names)}. Got {label!r}. Check "
                "its name and type."
            )
        counts = isinstance(number, Real) and not isinstance(number, bool)
        if not (counts and 0 <= number < np.inf):
            raise ConfigError(
                f"class_weight must be numbers, 0 or more. Class {label!r} has {number!r}. "
                "Change it."
            )
    return np.array([float(class_weight.get(label, 1.0)) for label in names])


def check_class_weight(class_weight: Any, *, is_column: bool = True) -> None:
    """Raise ConfigError for what is neither "balanced" nor a dict, or for several labels a row."""
    balanced = isinstance(class_weight, str) and class_weight == "balanced"
    if not balanced and not isinstance(class_weight, dict):
        raise ConfigError(
            "class_weight must be None, 'balanced' or a dict of numbers by class. Got "
            f"{class_weight!r}. Change it, or leave it at None."
        )
    if not is_column:
        raise ConfigError(
            "class_weight goes with one class a row. There are several labels a row. Use "
            "sample_weight, or a column of weights."
        )
