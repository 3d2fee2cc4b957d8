"""What the targets were like on average for each value of a column.

A row must not see its own target in its features, so rows are dealt into folds, and in training
each gets the averages over the other folds. Averages of few rows lean towards that of all.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protopinv.tables.values import Numbers

FOLDS = 5
# What averages lean towards counts as so many rows of every value.
PRIOR_ROWS = 10.0


@dataclass
class Statistics:
    """Sums over the rows of each fold for each value; they add up over pieces of rows.

    ``prior`` is what averages of few rows lean towards; None: the average of all rows.
    """

    mass: Numbers  # folds, values
    sums: Numbers  # folds, values, targets
    prior: Numbers | None = None  # targets

    @classmethod
    def empty(cls, n_values: int, n_targets: int, prior: Numbers | None = None) -> "Statistics":
        """Before any rows."""
        return cls(np.zeros((FOLDS, n_values)), np.zeros((FOLDS, n_values, n_targets)), prior)

    def add(
        self, places: NDArray[np.int64], targets: Numbers, weight: Numbers, fold: NDArray[np.int64]
    ) -> None:
        """Some rows, by the places of their values."""
        n = self.mass.shape[1]
        cell = fold * n + places
        self.mass += np.bincount(cell, weight, FOLDS * n).reshape(FOLDS, n)
        for number, target in enumerate(targets.T):
            found = np.bincount(cell, weight * target, FOLDS * n)
            self.sums[:, :, number] += found.reshape(FOLDS, n)

    def averages(self) -> Numbers:
        """For every value, from all rows."""
        return self._averages(self.mass.sum(axis=0), self.sums.sum(axis=0))

    def apart(self, places: NDArray[np.int64], fold: NDArray[np.int64]) -> Numbers:
        """For every row what the other folds say of its value."""
        mass, sums = self.mass.sum(axis=0), self.sums.sum(axis=0)
        others = [
            self._averages(mass - own_mass, sums - own_sums)
            for own_mass, own_sums in zip(self.mass, self.sums, strict=True)
        ]
        return np.asarray(np.stack(others)[fold, places])

    def _averages(self, mass: Numbers, sums: Numbers) -> Numbers:
        prior = self.prior
        if prior is None:
            prior = sums.sum(axis=0) / max(mass.sum(), np.finfo(np.float64).tiny)
        return np.asarray((sums + PRIOR_ROWS * prior) / (mass[:, None] + PRIOR_ROWS))
