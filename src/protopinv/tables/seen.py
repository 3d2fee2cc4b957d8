"""What has been seen of a column so far, while its rows are read a piece at a time."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.rows import keys_of
from protopinv.tables.values import Numbers, Values, shown
from protopinv.words import NEARLY_ALL, is_gap, number_of

# So many texts are counted while rows are read.
MOST_COUNTED = 500_000
# Numbers of a column that are stored to find its middle and its range.
SAMPLE = 20_000
# So many different numbers may be levels.
MOST_LEVELS = 1_000


@dataclass
class Seen:
    """What has been seen of a column so far; ``wanted`` is what a user says that it is."""

    name: str
    wanted: str | None = None
    held: str | None = None
    rows: int = 0
    gaps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    is_cut: bool = False  # not all texts are counted
    sample: list[NDArray[np.float64]] = field(default_factory=list)  # keys and numbers
    share: float = 1.0
    levels: Numbers | None = field(default_factory=lambda: np.empty(0))
    low: float = np.inf
    high: float = -np.inf
    has_fractions: bool = False
    notes: list[str] = field(default_factory=list)  # what should be said of it aloud

    def note(self, text: str) -> None:
        """Add a note about the column."""
        self.notes.append(f"column {self.name!r}: {text}")

    def add(self, values: Values) -> None:
        """Add some more rows."""
        if self.wanted == "category":
            values = Values("category", texts=values.as_texts())
        elif self.held is not None and self.held != values.held:
            values = Values("text", texts=values.as_texts())
            self._count(Counter(shown(number) for number in self.numbers().tolist()))
            self.sample = []
        self.held = values.held
        first, self.rows = self.rows, self.rows + len(values)
        if values.numbers is None:
            texts = Counter(t.strip() for t in values.texts or () if t and not is_gap(t))
            self.gaps += len(values) - texts.total()
            self._count(texts)
            return
        places = np.flatnonzero(~np.isnan(values.numbers))
        numbers = values.numbers[places]
        self.gaps += len(values) - len(numbers)
        if not len(numbers):
            return
        self.low = min(self.low, float(numbers.min()))
        self.high = max(self.high, float(numbers.max()))
        self.has_fractions |= bool((numbers != np.floor(numbers)).any())
        self._add_sample(numbers, first + places)
        if self.levels is not None:
            levels = np.union1d(self.levels, numbers)
            self.levels = None if len(levels) > MOST_LEVELS else levels

    def _count(self, texts: Counter[str]) -> None:
        """Count each text; beyond a limit only those that are counted already."""
        if len(self.counts) < MOST_COUNTED:
            self.counts.update(texts)
        else:
            self.is_cut |= any(text not in self.counts for text in texts)
            self.counts.update({text: n for text, n in texts.items() if text in self.counts})

    def _add_sample(self, numbers: Numbers, rows: NDArray[np.int64]) -> None:
        """Sample some numbers by those of their rows, fewer and fewer of the more there are."""
        keys = keys_of(0, "seen", rows) / 2.0**64
        chosen = keys < self.share
        self.sample.append(np.stack([keys[chosen], numbers[chosen]]))
        while sum(part.shape[1] for part in self.sample) > SAMPLE:
            self.share /= 2
            both = np.concatenate(self.sample, axis=1)
            self.sample = [both[:, both[0] < self.share]]

    def numbers(self) -> Numbers:
        """Return a sample of the numbers, or of dates as days."""
        return np.asarray(np.concatenate([*self.sample, np.empty((2, 0))], axis=1)[1])

    @property
    def is_constant(self) -> bool:
        """Whether all rows hold the same number."""
        return self.low == self.high and self.gaps == 0

    @property
    def range(self) -> dict[str, Any]:
        """The median, and the ends between which most numbers lie."""
        ends = np.quantile(self.numbers(), (0.02, 0.5, 0.98), method="inverted_cdf").tolist()
        return dict(zip(("low", "middle", "high"), ends, strict=True))

    @property
    def least_share(self) -> float:
        """The share of rows that must be readable: nearly all, or any where a user says so."""
        return NEARLY_ALL if self.wanted is None else 1e-9

    @cached_property
    def as_numbers(self) -> dict[str, float]:
        """Each text as the number that is written there, or NaN."""
        return {text: number_of(text) for text in self.counts}

    def share_of(self, read: Mapping[str, float]) -> float:
        """The share of rows whose text could be read; of categories only where a user says so."""
        if not self.counts or (self.held != "text" and self.wanted is None):
            return 0.0
        good = sum(count for text, count in self.counts.items() if not np.isnan(read[text]))
        return good / self.counts.total()

    def read_as(self, kind: str, read: Mapping[str, float]) -> "Seen":
        """Return the column with its texts as numbers; others count as gaps, with a note."""
        bad = Counter({text: n for text, n in self.counts.items() if np.isnan(read[text])})
        good = [text for text in self.counts if text not in bad]
        values = np.array([read[text] for text in good], dtype=np.float64)
        counts = np.array([self.counts[text] for text in good], dtype=np.int64)
        sample = np.repeat(values, np.maximum(1, counts // max(1, counts.sum() // SAMPLE)))
        levels = np.unique(values)
        if bad:
            example = f"{bad.total()} values such as {next(iter(bad))!r:.40}"
            self.note(f"{example} are no {kind}s and count as gaps")
        return replace(
            self,
            held=kind,
            gaps=self.gaps + bad.total(),
            sample=[np.stack([np.zeros(len(sample)), sample])],
            levels=levels,
            low=float(levels[0]),
            high=float(levels[-1]),
            has_fractions=bool((values != np.floor(values)).any()),
        )
