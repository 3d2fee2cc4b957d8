"""Who stands where: ranks and differences over the tables of a record.

A contestant's score on a table is its mean over folds and seeds; an R2 of a fold below -1 counts
as -1. Who failed on a table has the score of the worst there. Who stayed away from a table of a
field, by a rule that the record states, has no rank in that field, but still meets others one by
one.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, studentized_range, wilcoxon

from benchmarks.record import Content
from benchmarks.tables.contestants import REFERENCE
from benchmarks.tables.scoring import LOWER_IS_BETTER, MEASURES
from benchmarks.tables.suite import Half, Task

LEVEL = 0.0025  # differences of a quarter of a point are level
LOWEST_R2 = -1.0
ALPHA = 0.05
# The fields by size: more rows than the first number, up to the second.
BANDS: dict[str, tuple[float, float]] = {
    "up to 1,000 rows": (0, 1_000),
    "up to 3,000 rows": (1_000, 3_000),
    "up to 10,000 rows": (3_000, 10_000),
    "more rows": (10_000, math.inf),
}


@dataclass(frozen=True)
class Result:
    """A contestant on a table.

    ``skipped`` and ``error`` say why there are no scores, ``remark`` under what other conditions
    there are.
    """

    table: str
    contestant: str
    task: Task
    rows: int
    features: int
    outputs: int
    left_out: int
    scores: Mapping[str, float]
    fit_seconds: float
    test_seconds: float
    row_seconds: float
    skipped: str = ""
    error: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Field:
    """Some tables and all who met there; ``scores`` has a row a table, a column a contestant.

    Higher is better in it, whatever the measure; who was absent has nan there. ``fit_seconds`` are
    of the same shape, ``row_seconds`` the mean of predicting a single row.
    """

    measure: str
    tables: tuple[str, ...]
    contestants: tuple[str, ...]
    scores: NDArray[np.float64]
    fit_seconds: NDArray[np.float64]
    row_seconds: Mapping[str, float]

    @property
    def ranked(self) -> tuple[str, ...]:
        """Those who were at every table."""
        return tuple(name for name in self.contestants if not np.isnan(self.column(name)).any())

    def column(self, name: str) -> NDArray[np.float64]:
        """The scores of a contestant."""
        return self.scores[:, self.contestants.index(name)]

    def seconds(self, name: str) -> float:
        """Of a fit of every table together; nan if some are not known."""
        return float(self.fit_seconds[:, self.contestants.index(name)].sum())

    def times_of(self, name: str, against: str) -> tuple[float, int]:
        """How many times as long as another's its fits take together, and on how many tables."""
        mine, others = (self.fit_seconds[:, self.contestants.index(n)] for n in (name, against))
        both = ~np.isnan(mine) & ~np.isnan(others)
        if not both.any():
            return math.nan, 0
        return float(mine[both].sum() / others[both].sum()), int(both.sum())

    def ranks(self) -> dict[str, NDArray[np.float64]]:
        """The rank at every table of those who were at all: 1 is the best, who ties shares."""
        names = self.ranked
        if not names or not self.tables:
            return {name: np.empty(0) for name in names}
        placed = rankdata(-np.column_stack([self.column(name) for name in names]), axis=1)
        return {name: placed[:, place] for place, name in enumerate(names)}

    def normalised(self) -> dict[str, NDArray[np.float64]]:
        """At every table 0 for the worst of those who were at all, 1 for the best; 1 if all tie."""
        names = self.ranked
        if not names or not self.tables:
            return {name: np.empty(0) for name in names}
        scores = np.column_stack([self.column(name) for name in names])
        least, most = scores.min(axis=1), scores.max(axis=1)
        width = np.where(most > least, most - least, 1.0)
        shares = np.where((most > least)[:, None], (scores - least[:, None]) / width[:, None], 1.0)
        return {name: shares[:, place] for place, name in enumerate(names)}


@dataclass(frozen=True)
class Standing:
    """A contestant in a field; no rank, mean or time if it was absent somewhere.

    Wins, level tables, losses and ``p`` are against the reference, at tables where both were, and
    ``times`` is the ratio of their times at the ``n_timed`` tables where both are known.
    """

    name: str
    mean_rank: float | None
    normalised: float | None
    mean: float | None
    wins: int
    level: int
    losses: int
    p: float | None
    seconds: float | None
    times: float | None
    n_timed: int
    row_seconds: float | None


@dataclass(frozen=True)
class LogLoss:
    """Mean log loss of a contestant, and the table where it is worst against the linear model."""

    name: str
    mean: float
    worst_ratio: float | None
    worst_table: str


def contest_of(
    records: Iterable[Content], half: Half, *, imbalanced: bool = False, device: str = "cpu"
) -> dict[str, Any] | None:
    """The parts of one contest as one record; None if there are none.

    Parts must agree with the newest in seeds and folds; of what was measured twice the newest
    counts. Times are comparable where machine, threads and jobs are the same: other parts than
    that of the reference, and those like it, lose theirs.
    """
    parts = [
        record
        for record in records
        if record["name"].startswith("contest-")
        and (record["plan"]["half"], record["plan"]["imbalanced"]) == (half, imbalanced)
        and not record["plan"]["quick"]
        and record["plan"].get("device", "cpu") == device
    ]
    if not parts:
        return None
    parts.sort(key=lambda record: (record["date"], record["name"]))
    newest = parts[-1]["plan"]
    parts = [part for part in parts if _same_folds(part["plan"], newest)]
    contestants = dict.fromkeys(name for part in parts for name in part["plan"]["contestants"])
    with_reference = [part for part in reversed(parts) if REFERENCE in part["plan"]["contestants"]]
    ours = max(with_reference or parts[-1:], key=lambda part: len(part["cells"]))
    clock = _clock(ours)
    cells = {
        key: cell if _clock(part) == clock else _untimed(cell)
        for part in parts
        for key, cell in part["cells"].items()
    }
    plan = {**ours["plan"], "contestants": list(contestants)}
    return {"plan": plan, "cells": cells, "parts": parts}


def _clock(part: Content) -> tuple[Any, ...]:
    """On what times were taken."""
    machine, jobs = part.get("environment", {}), part["plan"].get("jobs", 1)
    return machine.get("device"), machine.get("threads") if jobs == 1 else 1, jobs


def _untimed(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in cell.items() if not name.endswith("_seconds")}


def _same_folds(plan: Content, other: Content) -> bool:
    return all(plan[name] == other[name] for name in ("seeds", "folds", "scored_folds"))


def results(record: Content) -> list[Result]:
    """Every contestant on every table, over all seeds."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for key, cell in record["cells"].items():
        table, contestant, _ = key.rsplit("/", 2)
        groups.setdefault((table, contestant), []).append(cell)
    return [_result(table, name, cells) for (table, name), cells in groups.items()]


def _result(table: str, contestant: str, cells: Sequence[Mapping[str, Any]]) -> Result:
    first = cells[0]
    skipped, error, remark = (
        next((str(cell[kind]) for cell in cells if kind in cell), "")
        for kind in ("skipped", "error", "remark")
    )
    absent = bool(skipped or error)
    measures = () if absent else tuple(m for m in MEASURES[first["task"]] if m in first)
    return Result(
        table,
        contestant,
        **{name: first[name] for name in ("task", "rows", "features", "outputs")},
        left_out=first.get("left_out", 0),
        scores={measure: _mean(cells, measure) for measure in measures},
        fit_seconds=_mean(cells, "fit_seconds"),
        test_seconds=_mean(cells, "test_seconds"),
        row_seconds=_mean(cells, "row_seconds"),
        skipped=skipped,
        error=error,
        remark=remark,
    )


def _mean(cells: Sequence[Mapping[str, Any]], name: str) -> float:
    """Over seeds and folds; nan where none is known."""
    least = LOWEST_R2 if name == "r2" else -math.inf
    values = [max(least, float(value)) for cell in cells for value in cell.get(name, ())]
    return statistics.mean(values) if values else math.nan


def field_of(
    every: Sequence[Result],
    task: Task,
    *,
    measure: str | None = None,
    rows: tuple[float, float] = (0, math.inf),
) -> Field:
    """The tables of a task, of some sizes, by its first measure or another."""
    measure = measure or MEASURES[task][0]
    inside = [r for r in every if r.task == task and rows[0] < r.rows <= rows[1]]
    tables = tuple(dict.fromkeys(r.table for r in inside))
    names = tuple(
        name
        for name in dict.fromkeys(r.contestant for r in inside)
        if any(measure in r.scores for r in inside if r.contestant == name)
    )
    scores = np.full((len(tables), len(names)), math.nan)
    fit_seconds = scores.copy()
    failed = np.zeros(scores.shape, dtype=bool)
    sign = -1.0 if measure in LOWER_IS_BETTER else 1.0
    for result in inside:
        if result.contestant in names:
            place = tables.index(result.table), names.index(result.contestant)
            scores[place] = sign * result.scores.get(measure, math.nan)
            fit_seconds[place] = result.fit_seconds
            failed[place] = bool(result.error)
    for row, lost in zip(scores, failed, strict=True):
        if lost.any() and not np.isnan(row).all():
            row[lost] = np.nanmin(row)
    scored = {name: [r for r in inside if r.contestant == name and r.scores] for name in names}
    return Field(
        measure,
        tables,
        names,
        scores,
        fit_seconds,
        {name: statistics.mean(r.row_seconds for r in mine) for name, mine in scored.items()},
    )


def standings(field: Field, against: str) -> list[Standing]:
    """Best mean rank first; those without a rank at the end."""
    ranks, normalised = field.ranks(), field.normalised()
    sign = -1.0 if field.measure in LOWER_IS_BETTER else 1.0
    rows = []
    for name in field.contestants:
        differences = _differences(field, name, against)
        times, n_timed = field.times_of(name, against) if against in field.contestants else (0, 0)
        ranked = name in ranks and len(field.tables) > 0
        rows.append(
            Standing(
                name,
                mean_rank=float(ranks[name].mean()) if ranked else None,
                normalised=float(normalised[name].mean()) if ranked else None,
                mean=float(sign * field.column(name).mean()) if ranked else None,
                wins=int((differences > LEVEL).sum()),
                level=int((np.abs(differences) <= LEVEL).sum()),
                losses=int((differences < -LEVEL).sum()),
                p=None if name == against else signed_rank_p(differences),
                seconds=_known(field.seconds(name)) if ranked else None,
                times=times if n_timed else None,
                n_timed=n_timed,
                row_seconds=_known(field.row_seconds[name]) if ranked else None,
            )
        )
    return sorted(rows, key=lambda s: math.inf if s.mean_rank is None else s.mean_rank)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _differences(field: Field, name: str, against: str) -> NDArray[np.float64]:
    if against not in field.contestants:
        return np.empty(0)
    differences = field.column(name) - field.column(against)
    return differences[~np.isnan(differences)]


def signed_rank_p(differences: NDArray[np.float64]) -> float | None:
    """Wilcoxon's signed-rank test, two-sided; None without tables, 1 where all are the same."""
    if len(differences) == 0:
        return None
    if not differences.any():
        return 1.0
    return float(wilcoxon(differences).pvalue)


def critical_difference(contestants: int, tables: int) -> float:
    """Nemenyi's: mean ranks that differ by less may well be the same."""
    q = studentized_range.ppf(1 - ALPHA, contestants, math.inf) / math.sqrt(2)
    return float(q * math.sqrt(contestants * (contestants + 1) / (6 * tables)))


def cliques(ranks: Sequence[float], difference: float) -> list[tuple[float, float]]:
    """The longest stretches of mean ranks that no critical difference parts, two or more each."""
    ordered = sorted(ranks)
    stretches: list[tuple[float, float]] = []
    for start, low in enumerate(ordered):
        high = max(rank for rank in ordered[start:] if rank - low < difference)
        if high > low and (not stretches or high > stretches[-1][1]):
            stretches.append((low, high))
    return stretches


def log_losses(every: Sequence[Result], linear: str = "linear") -> list[LogLoss]:
    """Of all who gave probabilities at every table, the lowest mean first."""
    field = field_of(every, "classification", measure="log_loss")
    ratios = _ratios(every, linear)
    return sorted(
        (
            LogLoss(name, float(-field.column(name).mean()), *_worst(ratios.get(name, {})))
            for name in field.ranked
        ),
        key=lambda loss: loss.mean,
    )


def _ratios(every: Sequence[Result], linear: str) -> dict[str, dict[str, float]]:
    some = [r for r in every if "log_loss" in r.scores]
    base = {r.table: r.scores["log_loss"] for r in some if r.contestant == linear}
    ratios: dict[str, dict[str, float]] = {}
    for r in some:
        if base.get(r.table, 0) > 0:
            ratio = r.scores["log_loss"] / base[r.table]
            ratios.setdefault(r.contestant, {})[r.table] = ratio
    return ratios


def _worst(ratios: Mapping[str, float]) -> tuple[float | None, str]:
    if not ratios:
        return None, ""
    table = max(ratios, key=lambda name: ratios[name])
    return ratios[table], table
