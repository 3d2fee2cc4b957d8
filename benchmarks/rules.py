"""What each rule for "auto" is worth: a quick fit against the same with one rule changed.

On the development half of the tables, for every task.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

from benchmarks.record import Cell, Content, Record, Records
from benchmarks.side_by_side import side_by_side
from benchmarks.tables import packaged
from benchmarks.tables.contest import (
    FOLDS,
    SCORED_FOLDS,
    ContestPlan,
    measure,
    prepared,
    shape_of,
    summary,
    tables_of,
)
from benchmarks.tables.contestants import build
from benchmarks.tables.standings import field_of, results
from benchmarks.tables.suite import Table
from benchmarks.tables.text import absence_lines, standings_table, tasks_of
from protopinv.train.config import TrainConfig
from protopinv.train.resolve import DataShape, resolved

DEFAULTS = "effort='quick'"
EFFORT: Literal["quick"] = "quick"
Parameters = Mapping[str, Any]
Change = Callable[[TrainConfig], Parameters]


def _one_layer(usual: TrainConfig) -> Parameters:
    return {"hidden_sizes": usual.widths[:1]}


def _set(**parameters: Any) -> Change:
    return lambda _: parameters


# From the configuration that the rules resolve for a table to the parameters that replace it.
CHANGES: dict[str, Change] = {
    DEFAULTS: _set(),
    "a look at four kinds (effort='balanced')": _set(effort="balanced"),
    "one bank instead of a mean (n_members=1)": _set(n_members=1),
    "all epochs, no folds (early_stopping=False)": _set(early_stopping=False),
    "one hidden layer": _one_layer,
    "no tails squashed (scaling='feature')": _set(scaling="feature"),
    "all columns clipped (scaling='clip')": _set(scaling="clip"),
    "columns of one scale (learn_scale=False)": _set(learn_scale=False),
    "turned columns (projection='pca')": _set(projection="pca"),
    "no label smoothing (label_smoothing=0)": _set(label_smoothing=0.0),
}
ONLY_CLASSES = ("no label smoothing (label_smoothing=0)",)


@dataclass(frozen=True)
class Job:
    """A table, a change and a seed."""

    table: Table
    label: str
    seed: int

    @property
    def key(self) -> str:
        """The name of its cell."""
        return f"{self.table.name}/{self.label}/seed{self.seed}"


def measure_rules(
    records: Records,
    *,
    wheels: Path | None,
    tables: tuple[str, ...] = (),
    seeds: int = 1,
    jobs: int = 2,
    quick: bool = False,
) -> Record:
    """Every change on every table."""
    plan = ContestPlan(contestants=(EFFORT,), tables=tables, seeds=seeds, quick=quick)
    loaders = tables_of(plan, wheels)
    packaged.require_packages(tuple(loaders))
    content = {
        "task": "Scores in cross-validation with one rule changed at a time",
        "half": plan.half,
        "contestants": list(CHANGES),
        "tables": tuple(loaders),
        "seeds": plan.seeds,
        "folds": plan.folds,
        "quick": quick,
        "scored_folds": SCORED_FOLDS,
    }
    record = records.open("rules", plan=content)
    largest_first = sorted((load() for load in loaders.values()), key=lambda each: -each.X.size)
    work = [Job(*each) for each in product(largest_first, CHANGES, range(seeds))]

    def tell(job: Job, cell: Cell) -> None:
        record.say(f"{job.table.name:18} {job.label:46} seed {job.seed}: {summary([cell])}")

    at_once = partial(side_by_side, partial(_cell, quick=quick), jobs, tell)
    record.cells_of({job.key: job for job in work}, at_once)
    record.finish()
    return record


def _cell(job: Job, *, quick: bool) -> Cell:
    table = job.table
    scored, left_out = prepared(table, FOLDS, quick=quick)
    if job.label in ONLY_CLASSES and table.task != "classification":
        reason = "labels are smoothed only where a row has one class"
        return {**shape_of(scored), "left_out": left_out, "skipped": reason}
    parameters = {"effort": EFFORT, **CHANGES[job.label](usual(scored))}

    def changed(seed: int) -> Any:
        model = build(EFFORT, table.task, several=False, seed=seed)
        return model.set_params(**parameters)

    return measure(table, changed, job.seed, quick=quick)


def usual(table: Table) -> TrainConfig:
    """The configuration that the rules resolve for the training rows of a table."""
    groups = shape_of(table)["outputs"] if table.task == "classification" else 1
    rows = len(table.X) - len(table.X) // FOLDS
    return resolved(TrainConfig(effort=EFFORT), DataShape(rows, table.X.shape[1], groups))


def rules_tables(record: Content) -> list[str]:
    """Every change against the defaults, task by task."""
    every, lines = results(record), []
    for task in tasks_of(every):
        lines += [f"{task}:", "", *standings_table(field_of(every, task), DEFAULTS), ""]
    return [*lines, *absence_lines(every)]
