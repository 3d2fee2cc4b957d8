"""Two settings compared: by how much they differ, how sure that is, and what many claims cost.

Runs are paired by split and seed. The training rows of any two splits overlap, so the usual error
of a mean would be too small; Nadeau and Bengio (2003) add the ratio of held-out to training rows to
1 / n. The test is a two-sided t-test with that variance, *margin* half its 95 % interval. Holm's
step-down correction over all comparisons of a family gives ``adjusted``.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scipy.stats import norm, t

LEVEL = 0.05


@dataclass(frozen=True)
class Difference:
    """A mean difference with half its 95 % interval; ``unit`` says of what."""

    mean: float
    margin: float
    n: int
    p: float
    unit: str = "points"
    adjusted: float | None = None

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.mean - self.margin

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.mean + self.margin

    @property
    def is_seen(self) -> bool:
        """Whether chance is an unlikely cause, all comparisons of the family considered."""
        return (self.p if self.adjusted is None else self.adjusted) < LEVEL

    @property
    def is_more(self) -> bool:
        """Seen, and above zero."""
        return self.is_seen and self.mean > 0

    @property
    def is_less(self) -> bool:
        """Seen, and below zero."""
        return self.is_seen and self.mean < 0

    @property
    def brief(self) -> str:
        """The mean and its margin."""
        return f"{self.mean:+.2f} ± {self.margin:.2f}"

    def __str__(self) -> str:
        p = self.p if self.adjusted is None else self.adjusted
        shown = "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
        return f"{self._mean()} (n = {self.n}, {shown})"

    def _mean(self) -> str:
        if self.unit == "times":  # kept as logarithms to the base 2
            middle, low, high = (2**value for value in (self.mean, self.low, self.high))
            return f"x {middle:.2f}, from {low:.2f} to {high:.2f}"
        return self.brief + (f" {self.unit}" if self.unit != "points" else "")


def paired(
    one: Sequence[float], other: Sequence[float], *, overlap: float, unit: str = "points"
) -> Difference:
    """One minus the other, run by run; ``overlap`` is held-out rows over training rows."""
    differences = [a - b for a, b in zip(one, other, strict=True)]
    n = len(differences)
    if n < 2:
        return Difference(statistics.mean(differences), math.inf, n, 1.0, unit)
    error = statistics.stdev(differences) * math.sqrt(1 / n + overlap)
    return _of(statistics.mean(differences), error, n - 1, n, unit)


def against(values: Sequence[float], said: float, unit: str = "points") -> Difference:
    """The mean of values minus a number that somebody else gives without its error."""
    return paired(values, [said] * len(values), overlap=0.0, unit=unit)


def unpaired(one: Sequence[float], other: Sequence[float], unit: str = "points") -> Difference:
    """The difference of two means by Welch's test."""
    mean, n = statistics.mean(one) - statistics.mean(other), min(len(one), len(other))
    if n < 2:
        return Difference(mean, math.inf, n, 1.0, unit)
    parts = [statistics.variance(values) / len(values) for values in (one, other)]
    if sum(parts) == 0:
        return _of(mean, 0.0, n - 1, n, unit)
    sizes = (len(one), len(other))
    spread = sum(part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True))
    return _of(mean, math.sqrt(sum(parts)), sum(parts) ** 2 / spread, n, unit)


def correlation(rank: float, n: int) -> Difference:
    """A rank correlation over n independent points, its interval by Fisher's transformation."""
    if n < 4:
        return Difference(rank, math.inf, n, 1.0, "rank correlation")
    z, error = math.atanh(max(-0.9999, min(0.9999, rank))), 1 / math.sqrt(n - 3)
    ends = [math.tanh(z + sign * norm.ppf(1 - LEVEL / 2) * error) for sign in (-1, 1)]
    p = 2 * float(norm.sf(abs(z) / error))
    return Difference(rank, max(abs(rank - end) for end in ends), n, p, "rank correlation")


def _of(mean: float, error: float, freedom: float, n: int, unit: str) -> Difference:
    if error == 0:
        return Difference(mean, 0.0, n, 0.0 if mean else 1.0, unit)
    margin = float(t.ppf(1 - LEVEL / 2, freedom)) * error
    return Difference(mean, margin, n, 2 * float(t.sf(abs(mean) / error, freedom)), unit)


Named = Mapping[str, Difference]


def holm(family: Sequence[Named]) -> list[dict[str, Difference]]:
    """The same with p-values corrected for the number of comparisons in all of them.

    One that several claims share, by its name and its numbers, is one.
    """
    ordered = sorted(different(family), key=lambda place: place[1].p)
    adjusted: dict[tuple[str, Difference], float] = {}
    worst = 0.0
    for rank, place in enumerate(ordered):
        worst = max(worst, min(1.0, (len(ordered) - rank) * place[1].p))
        adjusted[place] = worst
    return [
        {name: replace(each, adjusted=adjusted[name, each]) for name, each in named.items()}
        for named in family
    ]


def different(family: Sequence[Named]) -> set[tuple[str, Difference]]:
    """The comparisons of a family, each once."""
    return {place for named in family for place in named.items()}
