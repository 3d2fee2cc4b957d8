"""Learning curves: scores at default settings after more and more rows of the same table.

A seed shuffles a table. Its last rows are for the test and its first ones for training, so a larger
sample holds every smaller one. Sizes lie close together where rules of ours change.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.plans import require_counts, require_some
from benchmarks.record import Cell, Content, Record, Records
from benchmarks.side_by_side import side_by_side
from benchmarks.tables import packaged
from benchmarks.tables.contest import fit_and_score, quiet
from benchmarks.tables.contestants import CONTESTANTS, build, versions_of_peers
from benchmarks.tables.scoring import MEASURES
from benchmarks.tables.suite import Table, suite
from benchmarks.text import markdown
from protopinv.errors import ConfigError

# Three with classes, three with numbers, of 20,000 rows or more.
TABLES = ("letter", "kr-vs-k", "adult", "california", "earnings", "diamonds")
SIZES = (200, 300, 500, 1_000, 2_000, 3_000, 3_001, 4_000, 4_200, 6_000, 10_000, 15_000, 20_000)
MOST_TEST_ROWS = 5_000


@dataclass(frozen=True)
class CurvePlan:
    """The contestants, the tables, and the numbers of rows."""

    contestants: tuple[str, ...] = ("quick", "balanced", "scikit-mlp", "lightgbm", "linear")
    tables: tuple[str, ...] = TABLES
    sizes: tuple[int, ...] = SIZES
    seeds: int = 3
    jobs: int = 1
    quick: bool = False

    def __post_init__(self) -> None:
        require_counts(self, "seeds", "jobs")
        require_some("contestants", self.contestants, tuple(CONTESTANTS))
        if not self.sizes or min(self.sizes) < 1:
            raise ConfigError(f"sizes must be 1 or more. Got {self.sizes}. Name some.")
        if self.quick:
            object.__setattr__(self, "sizes", (100, 150))


@dataclass(frozen=True)
class Lesson:
    """A contestant that learns some rows of a table."""

    table: Table
    who: str
    size: int
    seed: int

    @property
    def key(self) -> str:
        """The name of its cell."""
        return f"{self.table.name}/{self.who}/{self.size}/seed{self.seed}"


def measure_curves(plan: CurvePlan, records: Records, *, wheels: Path | None) -> Record:
    """Scores after every sample, on rows that none of them holds."""
    loaders = suite(wheels, with_packages=wheels is not None)
    require_some("tables", plan.tables, tuple(loaders))
    packaged.require_packages(plan.tables)
    peers = versions_of_peers(plan.contestants)
    content = {"task": "Scores after more and more rows", **asdict(plan), "peers": peers}
    record = records.open("curves", plan=content)

    def tell(lesson: Lesson, cell: Cell) -> None:
        measure = MEASURES[cell["task"]][0]
        record.say(f"{lesson.key}: {measure} {cell[measure]:.4f}, {cell['fit_seconds']:.2f} s")

    for table_name in plan.tables:
        table = loaders[table_name]()
        lessons = {
            lesson.key: lesson
            for size in sorted(plan.sizes, reverse=True)
            if size <= len(table.X) - test_rows(table)
            for who in plan.contestants
            for seed in range(plan.seeds)
            for lesson in (Lesson(table, who, size, seed),)
        }
        record.cells_of(lessons, partial(side_by_side, learn, plan.jobs, tell))
    record.finish()
    return record


def test_rows(table: Table) -> int:
    """Rows set aside: a fifth, but no more than it takes for a steady figure."""
    return min(MOST_TEST_ROWS, len(table.X) // 5)


def learn(lesson: Lesson) -> Cell:
    """Scores and times of one fit."""
    table = lesson.table
    order = np.random.default_rng(lesson.seed).permutation(len(table.X))
    several = table.task == "regression" and table.y.ndim > 1
    model = build(lesson.who, table.task, several=several, seed=lesson.seed)
    train, test = order[: lesson.size], order[len(order) - test_rows(table) :]
    if table.task == "classification":  # a class that was never seen cannot be said
        test = test[np.isin(table.y[test], table.y[train])]
        table = replace(table, y=np.searchsorted(np.unique(table.y[train]), table.y))
    with quiet():
        measured = fit_and_score(table, model, train, test)
    return {"task": table.task, "rows": lesson.size, **measured}


Curves = dict[str, dict[str, dict[int, list[float]]]]


def curves_of(record: Content, measure: str | None = None) -> Curves:
    """By table, contestant and rows: a score for each seed, where there is one.

    Contestants come in the order of the plan, whatever was measured first.
    """
    curves: Curves = {}
    for key, cell in record["cells"].items():
        table, who, _, _ = key.split("/")
        name = measure or MEASURES[cell["task"]][0]
        if name in cell:
            by_rows = curves.setdefault(table, {}).setdefault(who, {})
            by_rows.setdefault(cell["rows"], []).append(cell[name])
    order = record["plan"]["contestants"]
    return {
        table: {who: by_name[who] for who in order if who in by_name}
        for table, by_name in curves.items()
    }


def largest_step_down(curve: Mapping[int, Sequence[float]]) -> tuple[float, int]:
    """How much the mean falls from one size to the next at worst, and after how many rows."""
    sizes = sorted(curve)
    means = [statistics.mean(curve[size]) for size in sizes]
    falls = [before - after for before, after in pairwise(means)]
    if not falls:
        return -math.inf, 0
    worst = int(np.argmax(falls))
    return falls[worst], sizes[worst]


def curve_tables(record: Content) -> list[str]:
    """The mean of every table, contestant and size, and where a curve falls most."""
    lines: list[str] = []
    curves = curves_of(record)
    for table, by_name in curves.items():
        sizes = sorted({size for curve in by_name.values() for size in curve})
        rows = [
            [who, *(f"{100 * statistics.mean(curve[size]):.2f}" for size in sizes), _fall(curve)]
            for who, curve in by_name.items()
        ]
        header = [table, *(f"{size:,}" for size in sizes), "largest step down"]
        lines += [*markdown(header, rows), ""]
    return lines


def _fall(curve: Mapping[int, Sequence[float]]) -> str:
    fall, after = largest_step_down(curve)
    return "none" if fall <= 0 else f"{100 * fall:.2f} after {after:,}"
