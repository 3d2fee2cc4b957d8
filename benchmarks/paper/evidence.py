"""What the ablation records say, in the form that verdicts, tables and figures ask for."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scipy.stats import chi2, spearmanr

from benchmarks.paper.ablations import runs_of, searched_runs
from protopinv.bench.record import Cell
from protopinv.bench.scores import Score, percent

Pick = Callable[[Cell], float]


def held_out(cell: Cell) -> float:
    """Accuracy on the held-out rows."""
    return float(cell["held_out"])


@dataclass(frozen=True)
class Ablations:
    """The ablation record of one data set."""

    record: Mapping[str, Any]

    @property
    def dataset(self) -> str:
        """Its name."""
        name: str = self.record["plan"]["dataset"]
        return name

    @property
    def n_seeds(self) -> int:
        """Runs of every setting."""
        seeds: int = self.record["plan"]["seeds"]
        return seeds

    def runs(self, sweep: str) -> dict[str, list[Cell]]:
        """For each setting its runs."""
        return runs_of(self.record, sweep)

    def searched(self) -> dict[str, list[Cell]]:
        """For each part of the bank that is fixed ("nothing" among them) its runs."""
        return searched_runs(self.record)

    def scores(self, sweep: str, pick: Pick = held_out) -> dict[str, Score]:
        """For each setting its mean and deviation over seeds, in percent."""
        return {label: percent(list(map(pick, runs))) for label, runs in self.runs(sweep).items()}

    def mean(self, sweep: str, label: str, pick: Pick = held_out) -> float:
        """Mean over seeds, in percent."""
        return self.scores(sweep, pick)[label].mean

    @cached_property
    def every_run(self) -> list[Cell]:
        """All runs of all sweeps, each once."""
        cells = self.record["cells"].items()
        return [cell for key, cell in cells if key.startswith("run/")]

    @cached_property
    def noise(self) -> float:
        """The typical standard deviation between seeds, in points.

        From the median variance over all settings, which a few restless ones do not sway,
        corrected for how far the median of such variances lies below their mean.
        """
        groups: dict[str, list[float]] = {}
        for key, cell in self.record["cells"].items():
            if key.startswith("run/"):
                groups.setdefault(key.rpartition("/")[0], []).append(100 * held_out(cell))
        variances = [statistics.variance(group) for group in groups.values() if len(group) > 1]
        if not variances:
            return 0.0
        freedom = self.n_seeds - 1
        return math.sqrt(statistics.median(variances) * freedom / float(chi2.median(freedom)))

    @property
    def margin(self) -> float:
        """Differences of two means below this may be chance: two standard errors."""
        return 2 * self.noise * math.sqrt(2 / self.n_seeds)


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's; infinities rank last, and what never changes correlates with nothing."""
    if len({*x}) == 1 or len({*y}) == 1:
        return 0.0
    return float(spearmanr(x, y).statistic)


# Each is said to grow with the generalisation gap, but the last, which is there to compare with.
MEASURES = {
    "kappa": "κ of the prototype inputs (Prop. 1)",
    "system_kappa": "κ of the first ridge system",
    "frobenius_norm": "Frobenius norm of the weights",
    "spectral_norm": "product of spectral norms",
    "inverse_margin": "1 / margin",
    "spectral_over_margin": "spectral norms / margin",
    "training_error": "error on the training rows",
}


def gap_points(
    ablations: Ablations, measure: str, gap: str, *, sweep: str | None = None
) -> tuple[list[float], list[float]]:
    """(measure, gap) of every run, or of those of one sweep."""
    cells = ablations.every_run
    if sweep is not None:
        cells = [cell for runs in ablations.runs(sweep).values() for cell in runs]
    gaps = [float(cell["generalisation"][gap]) for cell in cells]
    return [_measure(cell, measure) for cell in cells], gaps


def _measure(cell: Cell, measure: str) -> float:
    if measure == "training_error":
        return 1 - float(cell["train"])
    value = cell["generalisation"][measure]
    return math.inf if value is None else float(value)


def gap_correlation(
    ablations: Ablations, measure: str, gap: str, *, sweep: str | None = None
) -> float:
    """Rank correlation of a measure with a gap over runs."""
    return rank_correlation(*gap_points(ablations, measure, gap, sweep=sweep))


@dataclass(frozen=True)
class Alignment:
    """A rank correlation, and how likely chance alone gives one as large."""

    rank: float
    p_value: float


def allocation_alignment(ablations: Ablations, which: str) -> Alignment:
    """A class's prototypes against its ambiguity, both means over the seeds of the recipe."""
    runs = [cell["allocation"] for cell in ablations.runs("parts")["all trained"]]
    x, y = (
        [statistics.mean(values) for values in zip(*(run[part] for run in runs), strict=True)]
        for part in (which, "ambiguity")
    )
    if len({*x}) == 1 or len({*y}) == 1:
        return Alignment(0.0, 1.0)
    found = spearmanr(x, y)
    return Alignment(float(found.statistic), float(found.pvalue))
