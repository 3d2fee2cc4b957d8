"""What must be known of targets before training, from one pass over them; class weights."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopinv.errors import ConfigError, DataError
from protopinv.features import Moments, merged_moments, moments_of_chunk
from protopinv.objective import Classes, Labels, Numbers, Objective
from protopinv.rows import exact_numbers

# More different labels than these are numbers, not classes.
MOST_LABELS = 100_000

# Columns to average for target encoding, and what each is called.
Encoded = tuple[Callable[[NDArray[Any]], NDArray[np.float64]], list[str]]


class Targets(ABC):
    """Statistics of the targets seen so far; ``add`` raises DataError for what they cannot be."""

    @abstractmethod
    def add(self, y: NDArray[Any], mass: NDArray[np.float64], where: str) -> None:
        """Add targets, what each counts, and where they come from."""

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Add the statistics of other targets."""

    @abstractmethod
    def objective(self, some: Sequence[NDArray[Any]]) -> Objective:
        """What the network is trained for; ``some`` targets and their weights give quantiles."""

    @abstractmethod
    def encoded(self) -> Encoded:
        """How targets become the columns that target encoding averages."""


class LabelCounts(Targets):
    """Every label that occurs, sorted, and the mass of its rows.

    ``listed`` are all that there may be, if a user lists them.
    """

    def __init__(self, listed: NDArray[Any] | None = None) -> None:
        self.listed = listed
        self.labels: NDArray[Any] = np.empty(0, dtype=object)
        self.mass: NDArray[Any] = np.empty(0)

    def add(self, y: NDArray[Any], mass: NDArray[np.float64], where: str) -> None:
        """Count labels of one kind; one of which no row counts is none."""
        if y.dtype.kind == "f":
            _require_whole(y, where)
        try:
            labels, codes = np.unique(y, return_inverse=True)
        except TypeError as error:
            raise _mixed(f"{where} mixes them") from error
        if labels.dtype.kind == "O":
            labels = _of_one_kind(labels, where)
        sums: NDArray[Any] = np.bincount(codes, mass, len(labels))
        self._add_masses(labels[sums > 0], sums[sums > 0])
        if len(self.labels) > MOST_LABELS:
            raise DataError(
                f"Classes must be few enough to count, at most {MOST_LABELS:,}. {where} and what "
                "came before it hold more. If the target is a number, use ProtoPINVRegressor."
            )

    def merge(self, other: "LabelCounts") -> None:
        """Add up masses, label by label."""
        self._add_masses(other.labels, other.mass)

    def _add_masses(self, labels: NDArray[Any], mass: NDArray[Any]) -> None:
        """Add labels, each of which occurs once."""
        if not len(self.labels):
            self.labels, self.mass = labels, mass
        elif len(labels):
            both = _joined(self.labels, labels)
            self.labels, codes = np.unique(both, return_inverse=True)
            self.mass = np.bincount(codes, np.concatenate([self.mass, mass]))

    def masses_of(self, labels: NDArray[Any]) -> NDArray[np.float64]:
        """The mass of each of these labels, 0 for one that does not occur."""
        if not len(self.labels):
            return np.zeros(len(labels))
        places = np.searchsorted(self.labels, labels).clip(max=len(self.labels) - 1)
        return np.where(self.labels[places] == labels, self.mass[places], 0.0)

    def objective(self, some: Sequence[NDArray[Any]] = ()) -> Classes:  # noqa: ARG002
        """One class a row; raises DataError for fewer than two, and for one that is not listed."""
        if self.listed is None:
            return classes_of(self.labels)
        unlisted = np.setdiff1d(self.labels, self.listed)
        if len(unlisted):
            raise DataError(
                f"classes must list every class of y: {few(self.listed.tolist())}. y holds "
                f"{few(unlisted.tolist())} too. Add these to classes, or leave it out."
            )
        return classes_of(self.listed)

    def encoded(self) -> Encoded:
        """A column for each class, or for the second of two."""
        objective = self.objective()
        first = int(objective.n_outputs == 2)
        eye = np.eye(objective.n_outputs)[:, first:]
        return lambda y: eye[objective.encode(y)], label_names(objective)[first:]


def _of_one_kind(labels: NDArray[Any], where: str) -> NDArray[Any]:
    """Texts as they are, and numbers as an array of numbers."""
    kinds = {type(label) for label in labels.tolist()}
    if kinds <= {str}:
        return labels
    if not kinds <= {bool, int, float}:
        raise _mixed(f"{where} mixes them")
    numbers = exact_numbers(labels.tolist())
    if numbers.dtype.kind == "f":
        _require_whole(numbers, where)
    return numbers


def _mixed(what: str) -> DataError:
    return DataError(f"Labels must all be booleans, numbers or strings. {what}. Convert them.")


def _require_whole(y: NDArray[Any], where: str) -> None:
    """Raise DataError for labels that are gaps or have digits after the point."""
    if not np.isfinite(y).all():
        raise DataError(
            f"Labels must be there. {where} holds {y[~np.isfinite(y)][0]}: NaN or infinity. Fill "
            "it in or leave the row out."
        )
    if not (y == np.trunc(y)).all():
        raise DataError(
            f"Classes must be labels: strings, booleans or whole numbers. {where} holds "
            f"{y[y != np.trunc(y)][0]}. If the target is a quantity, use ProtoPINVRegressor."
        )


def _joined(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Labels of both, none of which becomes another on its way."""
    texts = [labels.dtype.kind in "OUT" for labels in (one, other)]
    if any(texts) and not all(texts):
        kinds = sorted({type(labels.tolist()[0]).__name__ for labels in (one, other)})
        raise _mixed(f"Some files hold {' and some '.join(kinds)}")
    if all(texts) or one.dtype == other.dtype:
        return np.concatenate([one, other])
    return exact_numbers([*one.tolist(), *other.tolist()])


def classes_of(labels: NDArray[Any]) -> Classes:
    """The objective of these classes, sorted; raises DataError for fewer than two.

    Strings of a fixed width become no wider than the longest of them.
    """
    if len(labels) < 2:
        raise DataError(
            "A classifier needs at least two classes. y holds only one class: "
            f"{labels[:1].tolist()[0]!r}. Check the target, or use a constant."
        )
    return Classes(np.array(labels.tolist()) if labels.dtype.kind == "U" else labels)


def label_names(objective: Objective) -> list[str]:
    """What the outputs of an objective are called."""
    if isinstance(objective, Classes):
        return list(map(str, objective.labels.tolist()))
    return [f"target {number}" for number in range(1, objective.n_outputs + 1)]


@dataclass
class NumberStats(Targets):
    """The moments of every column, None as long as no row counts, and its range.

    ``loss`` and ``bounded`` are settings of the regressor.
    """

    loss: str = "squared"
    bounded: bool = True
    is_column: bool = True
    n: int = 0
    moments: Moments | None = None
    low: Any = np.inf
    high: Any = -np.inf

    def add(self, y: NDArray[Any], mass: NDArray[np.float64], where: str) -> None:
        """Numbers, a column a target."""
        columns, counts = numbers_of(y, where).reshape(len(y), -1), mass > 0
        if not counts.any():
            return
        counted = columns[counts]
        rows, weight = torch.from_numpy(counted), torch.from_numpy(mass[counts])
        moments = moments_of_chunk(rows, rows[:, :0], weight, diagonal=True)
        low, high = counted.min(axis=0), counted.max(axis=0)
        self.merge(NumberStats(n=len(columns), moments=moments, low=low, high=high))

    def merge(self, other: "NumberStats") -> None:
        """Add the statistics of other targets."""
        self.n, self.moments = self.n + other.n, merged_moments([self.moments, other.moments])
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)

    def centre_and_variance(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The mean of every column and its variance; raises DataError where no row counts."""
        if self.moments is None:
            raise DataError(
                "Some rows must count. All weights are zero. Give larger ones, or leave them out."
            )
        return self.moments.x_mean.numpy(), self.moments.variance.numpy()

    def objective(self, some: Sequence[NDArray[Any]]) -> Objective:
        """One number or several a row, scaled; raises DataError for those too large to square."""
        y, weight = some
        # a copy: torch takes no array that it may not write to
        columns = np.array(y, dtype=np.float64).reshape(len(y), -1)
        numbers = Numbers.from_moments(
            *self.centre_and_variance(),
            self.n,
            self.loss,
            some=(columns, weight / weight.sum()),
            is_column=self.is_column,
        )
        ends = np.stack([self.low, self.high])
        require_scale(numbers, ends)
        return numbers.bounded_by(ends) if self.bounded else numbers

    def encoded(self) -> Encoded:
        """Numbers with a mean of 0 and a deviation of 1, whatever their units."""
        centre, variance = self.centre_and_variance()
        deviation = np.sqrt(np.maximum(variance, 1e-300))
        names = [f"target {number}" for number in range(1, len(centre) + 1)]
        return lambda y: (y.reshape(len(y), -1) - centre) / deviation, names


class LabelColumns(NumberStats):
    """Several labels a row: columns of 0 and 1."""

    _name = "the targets"

    def add(self, y: NDArray[Any], mass: NDArray[np.float64], where: str) -> None:
        """Columns of 0 and 1."""
        if not np.isin(y, (0, 1)).all():
            raise DataError(
                f"Several labels a row must be a matrix of 0 and 1, a column a label. {where} "
                "holds other numbers. For several numbers a row use ProtoPINVRegressor."
            )
        super().add(y, mass, where)
        self._name = "y" if where == "y" else "the targets"

    def objective(self, some: Sequence[NDArray[Any]] = ()) -> Labels:  # noqa: ARG002
        """Several labels a row; raises DataError for one that does not vary."""
        constant = np.flatnonzero(self.low == self.high)
        if len(constant):
            column = int(constant[0])
            raise DataError(
                "Every label must be there in some rows and not in others. Column "
                f"{column} of {self._name} is {int(self.low[column])} in all {self.n} rows. Leave "
                "it out."
            )
        return Labels(len(self.centre_and_variance()[0]))

    def encoded(self) -> Encoded:
        """The labels as they are."""
        return lambda y: y.reshape(len(y), -1).astype(np.float64), super().encoded()[1]


def numbers_of(y: NDArray[Any], where: str) -> NDArray[np.float64]:
    """Targets as finite numbers; raises DataError for any other."""
    try:
        numbers = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"Targets must be numbers. {where} holds {y.dtype.name} such as {y.flat[0]!r}. Convert "
            "them, or use ProtoPINVClassifier for classes."
        ) from error
    finite = np.isfinite(numbers).reshape(len(y), -1).all(axis=1)
    if not finite.all():
        row = int(finite.argmin())
        raise DataError(
            f"Targets must be finite numbers. {where} holds {y[row]} in row {row}: NaN or "
            "infinity. Fill it in or leave the row out."
        )
    return numbers


def require_scale(objective: Numbers, numbers: NDArray[np.float64]) -> None:
    """Raise DataError for targets too large to be scaled."""
    scaling = (*objective.centre, *objective.spread, *objective.variance)
    if not (np.isfinite(scaling).all() and np.isfinite(objective.encode(numbers)).all()):
        raise DataError(
            "Targets must be small enough to be squared, at most about 1e150. y holds larger "
            "ones. Rescale it."
        )


def few(values: Sequence[Any]) -> str:
    """The first few values, as text."""
    text = ", ".join(map(repr, values[:6]))
    return text + (", ..." if len(values) > 6 else "")


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


def class_factors(
    class_weight: Any, labels: NDArray[Any], mass: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What rows of each class count beside their own weights, which have this ``mass``."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        even: NDArray[np.float64] = mass.sum() / (len(mass) * mass)
        return even
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
