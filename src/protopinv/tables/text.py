"""Columns of text that differs in nearly every row: what is kept of it are n-grams that recur.

Such a column becomes several of numbers, and the table stores no text of it, only where each hashed
n-gram lies along each of them.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from protopinv.tables import ngrams
from protopinv.tables.columns import Kind
from protopinv.tables.parts import Filled, Flag, Part
from protopinv.tables.values import Numbers, Seen, Values
from protopinv.words import MANY

# Text that is different in nearly every row is a name: as a category it says nothing of the next.
NAMES_SHARE, NAMES_LEAST = 0.5, 50
# So many texts show which n-grams recur.
TEXTS = 10_000


@dataclass(frozen=True, eq=False)
class Text(Kind):
    """One of the numbers that a column of text becomes: its n-grams along a ``direction``.

    ``of`` is the name of the column. ``middle`` stands in for a gap, and most texts lie between
    ``low`` and ``high``.
    """

    name: str
    of: str
    middle: float
    low: float
    high: float
    direction: Numbers
    flag: bool = False

    kind = "text"
    ARRAYS = ("direction",)

    @classmethod
    def recognised(cls, seen: Seen) -> tuple[Self, ...] | None:
        """Text of which nearly every row has its own, if n-grams recur in it."""
        if not has_names(seen) or seen.share_of(seen.as_numbers) >= MANY:
            return None
        texts = list(seen.counts)[:: max(1, len(seen.counts) // TEXTS)]
        counts = ngrams.hashed(texts)
        weights = ngrams.rarity(counts)
        rows = ngrams.weighted(counts, weights)
        if not ngrams.are_shared(rows):
            return None
        # a row is of length one before its n-grams are weighted, so that one array says it all
        directions = (weights[:, None] * ngrams.directions(rows)).round(ngrams.DIGITS)
        ends = np.quantile(
            ngrams.weighted(counts) @ directions, (0.02, 0.5, 0.98), axis=0
        ).T.tolist()
        names = ngrams.names(seen.name, directions.shape[1])
        return tuple(
            cls(name, seen.name, middle, low, high, direction, seen.gaps > 0 and name == names[0])
            for name, (low, middle, high), direction in zip(names, ends, directions.T, strict=True)
        )

    @property
    def source(self) -> str:
        """The name of the column of text."""
        return self.of

    @property
    def names(self) -> tuple[str, ...]:
        """Of the numbers it gives."""
        return (self.name, *[f"{self.of} is missing"] * self.flag)

    @property
    def typical(self) -> float:
        """The code of a usual row."""
        return self.middle

    @property
    def story(self) -> str:
        """What it was recognised as, in a few words."""
        return "text, by the n-grams that recur in it; none of its texts is stored"

    def code(self, values: Values) -> Numbers:
        """Where each text lies along the direction."""
        return np.where(values.gaps, np.nan, values.ngrams @ self.direction)

    def made_of(self, origin: float = 0.0) -> tuple[Part, ...]:  # noqa: ARG002 - only dates have one
        """The number, and whether there was a text."""
        return (Filled(self.middle), *[Flag()] * self.flag)

    def check(self) -> None:
        """Raise ValueError for a direction of other n-grams."""
        if self.direction.shape != (ngrams.BUCKETS,):
            raise ValueError("a direction of other n-grams")


def has_names(seen: Seen) -> bool:
    """Whether nearly every row has a text of its own."""
    most = max(NAMES_LEAST, NAMES_SHARE * seen.counts.total())
    return seen.held == "text" and (seen.is_cut or len(seen.counts) > most)
