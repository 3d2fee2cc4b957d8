"""The columns of a frame to numbers, as a step that every format can write.

A row comes as one number for each column, its code (``tables/columns.py``), but that dates count
from an ``origin`` near them, so that float32 has digits enough.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from protopinv.tables import Column, Date, Table
from protopinv.tables.parts import Part
from protopinv.tables.values import Numbers


@dataclass(frozen=True, eq=False)
class Encode:
    """From the codes of all columns to what the network sees of them."""

    table: Table

    @property
    def n_inputs(self) -> int:
        """One for each column."""
        return len(self.table.columns)

    @property
    def n_outputs(self) -> int:
        """Of all parts."""
        return self.table.n_features

    @property
    def operations(self) -> int:
        """About two for each number."""
        return 2 * self.n_outputs

    @cached_property
    def parts(self) -> tuple[tuple[int, Part], ...]:
        """In the order of the features, each with the number of its column."""
        columns = zip(self.table.columns, self.origins.tolist(), strict=True)
        return tuple(
            (number, part)
            for number, (column, origin) in enumerate(columns)
            for part in column.made_of(origin)
        )

    @cached_property
    def origins(self) -> Numbers:
        """The day that dates are counted from, and 0 for what is no date."""
        return np.array([_origin(column) for column in self.table.columns], dtype=np.float64)

    def __call__(self, X: Numbers) -> Numbers:
        """Rows of codes."""
        return np.concatenate([part(X[:, column]) for column, part in self.parts], axis=1)


def _origin(column: Column) -> float:
    return float(np.floor(column.middle)) if isinstance(column, Date) else 0.0
