"""Each contestant against a reference, table by table: wins, ratios, and how sure they are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from benchmarks.tables.scoring import LEAST_PROBABILITY, LOWER_IS_BETTER
from benchmarks.tables.standings import LEVEL, Field, Result

RESAMPLES = 10_000
SHARE = 0.95  # of the resampled means lie in the interval


@dataclass(frozen=True)
class Duel:
    """A contestant against the reference, at the tables where both have a score.

    A win is the contestant's. Shares are level if they differ by a quarter of a point or less, log
    losses and errors only if they are equal. ``p`` is that of a sign test without level tables.
    ``ratio``, of log losses and errors alone, is the geometric mean over tables, with a bootstrap
    interval. There is no mean for who was absent somewhere, nor of errors in different units.
    """

    name: str
    mean: float | None
    tables: int
    wins: int
    level: int
    losses: int
    p: float | None
    ratio: float | None
    interval: tuple[float, float] | None


def duels(field: Field, against: str) -> list[Duel]:
    """All contestants of a field against one, which has a line without a test."""
    return [_duel(field, name, against) for name in field.contestants]


def _duel(field: Field, name: str, against: str) -> Duel:
    mine = field.column(name)
    other = field.column(against) if against in field.contestants else np.full_like(mine, np.nan)
    both = ~np.isnan(mine) & ~np.isnan(other)
    ahead = mine[both] - other[both]
    is_loss = field.measure in LOWER_IS_BETTER
    least = 0.0 if is_loss else LEVEL
    wins, losses = int((ahead > least).sum()), int((ahead < -least).sum())
    logs = _logs(mine[both]) - _logs(other[both]) if is_loss and name != against else np.empty(0)
    has_mean = field.measure != "rmse" and name in field.ranked
    return Duel(
        name,
        mean=float((-1 if is_loss else 1) * mine.mean()) if has_mean else None,
        tables=len(ahead),
        wins=wins,
        level=len(ahead) - wins - losses,
        losses=losses,
        p=None if name == against else sign_p(wins, losses),
        ratio=float(np.exp(logs.mean())) if len(logs) else None,
        interval=_interval(logs),
    )


def _logs(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms of losses, which a field holds with a minus."""
    return np.log(np.maximum(-scores, LEAST_PROBABILITY))


def sign_p(wins: int, losses: int) -> float:
    """Two-sided sign test: how likely such a difference is if each side wins half; 1 for none."""
    return float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0


def _interval(logs: NDArray[np.float64]) -> tuple[float, float] | None:
    """Percentiles of the geometric mean over tables that are drawn again; None for one table."""
    if len(logs) < 2:
        return None
    draws = np.random.default_rng(0).integers(len(logs), size=(RESAMPLES, len(logs)))
    low, high = np.quantile(logs[draws].mean(axis=1), [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return float(np.exp(low)), float(np.exp(high))


def seconds_of(every: Sequence[Result], name: str) -> tuple[float, float, int]:
    """Seconds of a fit and of predictions on the test rows, over all tables, and their number."""
    mine = [result for result in every if result.contestant == name and result.scores]
    fits, tests = (
        sum(getattr(result, kind) for result in mine) for kind in ("fit_seconds", "test_seconds")
    )
    return fits, tests, len(mine)
