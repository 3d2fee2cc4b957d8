"""Mean and deviation of a score over seeds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """Mean and deviation over n seeds."""

    mean: float
    sd: float | None
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.sd is None else f"{self.mean:.2f} ± {self.sd:.2f}"


def over_seeds(values: Sequence[float]) -> Score:
    """Mean and standard deviation."""
    sd = statistics.stdev(values) if len(values) > 1 else None
    return Score(statistics.mean(values), sd, len(values))


def percent(values: Sequence[float]) -> Score:
    """Mean and standard deviation of shares, in percent."""
    return over_seeds([100 * value for value in values])
