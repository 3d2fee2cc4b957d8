"""Mean and deviation of a score over seeds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """Percent over seeds."""

    mean: float
    sd: float | None
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.sd is None else f"{self.mean:.2f} ± {self.sd:.2f}"


def percent(values: Sequence[float]) -> Score:
    """Mean and standard deviation of shares, in percent."""
    scaled = [100 * value for value in values]
    sd = statistics.stdev(scaled) if len(scaled) > 1 else None
    return Score(statistics.mean(scaled), sd, len(scaled))
