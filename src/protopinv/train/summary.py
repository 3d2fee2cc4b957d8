"""What must be known of targets before training, from a pass over rows that are not in memory."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.rows.labels import exact_numbers

# More different labels than these are numbers, not classes.
MOST_LABELS = 100_000


class Summary(ABC):
    """Targets seen so far; ``add`` raises DataError for what they cannot be."""

    @abstractmethod
    def add(self, y: NDArray[Any], mass: NDArray[np.float64], where: str) -> None:
        """Some more targets, what each counts, and where they are from."""

    def fresh(self) -> Self:
        """One of the same kind that has seen nothing."""
        return type(self)()

    @abstractmethod
    def merge(self, others: Sequence[Self]) -> Self:
        """Those of all ranks."""


@dataclass
class LabelCounts(Summary):
    """Rows of every label, and what they count together."""

    rows: dict[Any, int] = field(default_factory=dict)
    mass: dict[Any, float] = field(default_factory=dict)

    def add(self, y: NDArray[Any], mass: NDArray[np.float64], where: str) -> None:
        """Labels of one kind."""
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise DataError(
                f"Labels must be there. {where} holds {y[~np.isfinite(y)][0]}: NaN or infinity. "
                "Fill it in or leave the row out."
            )
        if y.dtype.kind == "f" and not (y == np.trunc(y)).all():
            raise DataError(
                f"Classes must be labels: strings, booleans or whole numbers. {where} holds "
                f"{y[y != np.trunc(y)][0]}. If the target is a quantity, use "
                "ProtoPINVRegressor."
            )
        try:
            labels, codes = np.unique(y, return_inverse=True)
        except TypeError as error:
            raise DataError(
                f"Labels must all be booleans, numbers or strings. {where} mixes them. Convert "
                "them."
            ) from error
        rows, sums = np.bincount(codes), np.bincount(codes, mass)
        for label, n, sum_ in zip(labels.tolist(), rows.tolist(), sums.tolist(), strict=True):
            self.rows[label] = self.rows.get(label, 0) + n
            self.mass[label] = self.mass.get(label, 0.0) + sum_
        if len(self.rows) > MOST_LABELS:
            raise DataError(
                f"Classes must be few enough to count, at most {MOST_LABELS:,}. {where} and what "
                "came before it hold more. If the target is a number, use ProtoPINVRegressor."
            )

    def merge(self, others: Sequence["LabelCounts"]) -> "LabelCounts":
        """Sums, label by label."""
        whole = LabelCounts()
        for other in others:
            for label, n in other.rows.items():
                whole.rows[label] = whole.rows.get(label, 0) + n
                whole.mass[label] = whole.mass.get(label, 0.0) + other.mass[label]
        return whole

    def labels(self) -> NDArray[Any]:
        """All that count, as numpy sorts them."""
        present = [label for label in self.rows if self.mass[label] > 0]
        kinds = {type(label) for label in present}
        if kinds == {str}:
            return np.array(sorted(present), dtype=object)
        if len(kinds) > 1 and not kinds <= {bool, int, float}:
            raise DataError(
                "Labels must all be booleans, numbers or strings. Some files hold "
                f"{' and some '.join(sorted(kind.__name__ for kind in kinds))}. Convert them."
            )
        fractions = [label for label in present if isinstance(label, float) and label % 1]
        if fractions:
            raise DataError(
                f"Classes must be labels: strings, booleans or whole numbers. Got {fractions[0]}. "
                "If the target is a quantity, use ProtoPINVRegressor."
            )
        return np.unique(exact_numbers(present))


@dataclass
class NumberStats(Summary):
    """Mass, mean and scatter of every column, and its range."""

    n: int = 0
    mass: float = 0.0
    mean: Any = 0.0
    scatter: Any = 0.0
    low: Any = np.inf
    high: Any = -np.inf

    def add(self, y: NDArray[Any], mass: NDArray[np.float64], where: str) -> None:
        """Numbers, a column a target."""
        columns = _numbers(y, where)
        total = float(mass.sum())
        if total == 0:
            return
        mean = mass @ columns / total
        with np.errstate(over="ignore"):
            scatter = mass @ (columns - mean) ** 2
        counted = columns[mass > 0]
        part = NumberStats(
            len(columns), total, mean, scatter, counted.min(axis=0), counted.max(axis=0)
        )
        vars(self).update(vars(self.merge([self, part])))

    def merge(self, others: Sequence["NumberStats"]) -> "NumberStats":
        """By the rule of Chan, Golub and LeVeque, as for the moments of features."""
        whole = NumberStats()
        for part in others:
            if part.mass == 0:
                continue
            mass = whole.mass + part.mass
            off = part.mean - whole.mean
            with np.errstate(over="ignore"):
                scatter = whole.scatter + part.scatter + off**2 * whole.mass * part.mass / mass
            whole = NumberStats(
                whole.n + part.n,
                mass,
                whole.mean + off * part.mass / mass,
                scatter,
                np.minimum(whole.low, part.low),
                np.maximum(whole.high, part.high),
            )
        return whole


class LabelColumns(NumberStats):
    """Several labels a row: columns of 0 and 1."""

    def add(self, y: NDArray[Any], mass: NDArray[np.float64], where: str) -> None:
        """As numbers, once each is 0 or 1."""
        if not np.isin(y, (0, 1)).all():
            raise DataError(
                f"Several labels a row must be a matrix of 0 and 1, a column a label. {where} "
                "holds other numbers. For several numbers a row use ProtoPINVRegressor."
            )
        super().add(y, mass, where)

    def merge(self, others: Sequence[Any]) -> "LabelColumns":
        """As numbers."""
        return LabelColumns(**vars(super().merge(others)))


def _numbers(y: NDArray[Any], where: str) -> NDArray[np.float64]:
    try:
        numbers = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"Targets must be numbers. {where} holds {y.dtype.name} such as {y.flat[0]!r}. Convert "
            "them, or use ProtoPINVClassifier for classes."
        ) from error
    finite = np.isfinite(numbers).all(axis=1)
    if not finite.all():
        raise DataError(
            f"Targets must be finite numbers. {where} holds {y[int(finite.argmin())]}: NaN or "
            "infinity. Fill it in or leave the row out."
        )
    return numbers
