"""The ablation records in the form that verdicts, tables and figures need."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scipy.stats import spearmanr

from benchmarks.paper.ablations import changes_key, chosen_changes, settings_of
from benchmarks.paper.comparison import Difference, correlation, paired
from benchmarks.paper.sweeps import SWEEPS
from benchmarks.recipes import Parameters
from benchmarks.record import Cell, Content
from benchmarks.tasks import NAMES
from benchmarks.text import Score, markdown, percent

Pick = Callable[[Cell], float]


def held_out(cell: Cell) -> float:
    """Accuracy on the held-out rows, in percent."""
    return 100 * float(cell["held_out"])


@dataclass(frozen=True)
class Ablations:
    """The ablation record of one data set."""

    record: Content

    @property
    def dataset(self) -> str:
        """Its name."""
        name: str = self.record["plan"]["dataset"]
        return name

    @property
    def overlap(self) -> float:
        """Held-out rows over training rows."""
        return float(self.record["plan"]["overlap"])

    @cached_property
    def chosen(self) -> dict[str, Parameters]:
        """What every setting changes, by "sweep/label", with what was chosen for it."""
        settings = settings_of(self.record["plan"]["sweeps"], self.recipe)
        quick = self.record["plan"]["quick"]
        return chosen_changes(self.record["cells"], settings, self.recipe, quick=quick)

    @cached_property
    def recipe(self) -> Parameters:
        """That around which settings lie."""
        recipe: Parameters = self.record["plan"]["recipe"]
        return {k: tuple(v) if isinstance(v, list) else v for k, v in recipe.items()}

    def runs(self, sweep: str, label: str) -> list[Cell]:
        """The runs of a setting that judge it, always in the same order of splits and seeds."""
        plan, changes = self.record["plan"], self.chosen[f"{sweep}/{label}"]
        name = changes_key(self.recipe, changes)
        return [
            self.record["cells"][f"{name}/split{split}/seed{seed}"]
            for split in range(1, plan["splits"] + 1)
            for seed in range(plan["seeds"])
        ]

    def labels(self, sweep: str) -> list[str]:
        """The settings of a sweep; the first is what the others are held to."""
        return list(SWEEPS[sweep].settings(self.recipe))

    def score(self, sweep: str, label: str) -> Score:
        """Mean and deviation over all runs, in percent."""
        return percent([cell["held_out"] for cell in self.runs(sweep, label)])

    def difference(
        self, sweep: str, one: str, other: str, pick: Pick = held_out, unit: str = "points"
    ) -> Difference:
        """One setting minus another, run by run."""
        pairs = [[pick(cell) for cell in self.runs(sweep, label)] for label in (one, other)]
        return paired(*pairs, overlap=self.overlap, unit=unit)

    def against_first(self, sweep: str, pick: Pick = held_out) -> dict[str, Difference]:
        """Every setting of a sweep minus its first."""
        first, *others = self.labels(sweep)
        return {label: self.difference(sweep, label, first, pick) for label in others}

    @cached_property
    def measured(self) -> list[Cell]:
        """One run of every setting, with its gap and what might predict it."""
        cells = self.record["cells"].items()
        return [
            cell
            for key, cell in cells
            if key.endswith("/split1/seed0") and "generalisation" in cell
        ]

    @property
    def trouble(self) -> tuple[int, int, int]:
        """Runs, and among all their steps those that were skipped and rates that were cut."""
        cells = [cell for cell in self.record["cells"].values() if "skipped_steps" in cell]
        skipped, cuts = (
            sum(cell[name] for cell in cells) for name in ("skipped_steps", "rate_cuts")
        )
        return len(cells), skipped, cuts


def sweep_tables(records: Sequence[Content]) -> list[str]:
    """A table for every sweep: accuracy of each setting, and how it differs from the first."""
    every = [Ablations(record) for record in records]
    lines: list[str] = []
    for name in records[0]["plan"]["sweeps"]:
        header = [SWEEPS[name].title]
        for data in every:
            header += [f"{NAMES[data.dataset]} %", "against the first"]
        lines += [*markdown(header, _sweep_rows(every, name)), ""]
    return lines


def _sweep_rows(every: Sequence[Ablations], sweep: str) -> list[list[str]]:
    first, *_ = every[0].labels(sweep)
    rows = []
    for label in every[0].labels(sweep):
        row = [label]
        for data in every:
            row.append(str(data.score(sweep, label)))
            row.append("" if label == first else data.difference(sweep, label, first).brief)
        rows.append(row)
    return rows


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's; infinities rank last, and what never changes correlates with nothing."""
    if len({*x}) <= 1 or len({*y}) <= 1:
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


def gap_points(data: Ablations, measure: str, gap: str) -> tuple[list[float], list[float]]:
    """(measure, gap) of one run of every setting."""
    gaps = [float(cell["generalisation"][gap]) for cell in data.measured]
    return [_measure(cell, measure) for cell in data.measured], gaps


def _measure(cell: Cell, measure: str) -> float:
    if measure == "training_error":
        return 1 - float(cell["train"])
    value = cell["generalisation"][measure]
    return math.inf if value is None else float(value)


def gap_correlation(data: Ablations, measure: str, gap: str) -> Difference:
    """Rank correlation of a measure with a gap over settings."""
    x, y = gap_points(data, measure, gap)
    return correlation(rank_correlation(x, y), len(x))


def allocation_of(data: Ablations) -> list[Mapping[str, Any]]:
    """Where prototypes went, in every run of the recipe."""
    return [cell["allocation"] for cell in data.runs("inputs", "stratified")]


def allocation_alignment(data: Ablations, which: str) -> Difference:
    """A class's prototypes against its ambiguity, both means over the runs of the recipe."""
    runs = allocation_of(data)
    x, y = (
        [statistics.mean(values) for values in zip(*(run[part] for run in runs), strict=True)]
        for part in (which, "ambiguity")
    )
    return correlation(rank_correlation(x, y), len(x))
