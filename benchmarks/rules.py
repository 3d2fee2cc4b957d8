"""What each rule for "auto" is worth: a quick fit against the same with one rule changed.

    python -m benchmarks.rules --wheels FOLDER [--records DIR] [--seeds 1] [--jobs 2]

On the development half of the tables, for every task. The record is resumable.
"""

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices, one process a core

from benchmarks.choices import listed
from benchmarks.side_by_side import side_by_side
from benchmarks.tables import packaged
from benchmarks.tables.contest import (
    FOLDS,
    SCORED_FOLDS,
    ContestPlan,
    measure,
    prepared,
    shape_of,
    tables_of,
    told,
)
from benchmarks.tables.suite import Table
from protopinv import ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.bench.plans import record_name
from protopinv.bench.record import Cell, Record, Say
from protopinv.train.config import FIELDS, TrainConfig, offered_default
from protopinv.train.settle import DataShape, settle

RECORDS = Path(__file__).parent / "records"
DEFAULTS = "effort='quick'"
EFFORT = "quick"
Parameters = Mapping[str, Any]
Change = Callable[[TrainConfig], Parameters]


def _one_layer(usual: TrainConfig) -> Parameters:
    return {"hidden_sizes": usual.widths[:1]}


def _given(**parameters: Any) -> Change:
    return lambda _: parameters


# From what the rules settle for a table to what is given in its place.
CHANGES: dict[str, Change] = {
    DEFAULTS: _given(),
    "a look at four kinds (effort='balanced')": _given(effort="balanced"),
    "one bank instead of a mean (n_members=1)": _given(n_members=1),
    "all epochs, no folds (early_stopping=False)": _given(early_stopping=False),
    "one hidden layer": _one_layer,
    "no tails squashed (scaling='feature')": _given(scaling="feature"),
    "all columns clipped (scaling='clip')": _given(scaling="clip"),
    "columns of one scale (learn_scale=False)": _given(learn_scale=False),
    "turned columns (projection='pca')": _given(projection="pca"),
    "no label smoothing (label_smoothing=0)": _given(label_smoothing=0.0),
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
    *,
    wheels: Path | None,
    folder: Path,
    names: tuple[str, ...] = (),
    seeds: int = 1,
    jobs: int = 2,
    quick: bool = False,
    say: Say = lambda _: None,
) -> Record:
    """Every change on every table."""
    plan = ContestPlan(contestants=(EFFORT,), tables=names, seeds=seeds, quick=quick)
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
    name = record_name("rules", "cpu", quick=quick)
    record = Record(folder, name, content, "cpu", say=say)
    tables = sorted((load() for load in loaders.values()), key=lambda table: -table.X.size)
    work = [Job(table, label, n) for table in tables for label in CHANGES for n in range(seeds)]

    def tell(job: Job, cell: Cell) -> None:
        say(f"{job.table.name:18} {job.label:46} seed {job.seed}: {told([cell])}")

    at_once = partial(side_by_side, partial(_cell, quick=quick), jobs, tell)
    record.cells_of({job.key: job for job in work}, at_once)
    record.finish()
    return record


def _cell(job: Job, *, quick: bool) -> Cell:
    table = job.table
    kept, left_out = prepared(table, FOLDS, quick=quick)
    if job.label in ONLY_CLASSES and table.task != "classification":
        reason = "labels are smoothed only where a row has one class"
        return {**shape_of(kept), "left_out": left_out, "skipped": reason}
    parameters = {"effort": EFFORT, **CHANGES[job.label](usual(kept))}
    estimator = ProtoPINVRegressor if table.task == "regression" else ProtoPINVClassifier
    build = partial(_build, estimator, parameters)
    return measure(table, build, job.seed, quick=quick)


def _build(estimator: Callable[..., Any], parameters: Parameters, seed: int) -> Any:
    return estimator(**parameters, device="cpu", random_state=seed)


def usual(table: Table) -> TrainConfig:
    """What the rules settle for the rows of a table that are trained on, before any look."""
    groups = shape_of(table)["outputs"] if table.task == "classification" else 1
    rows = len(table.X) - len(table.X) // FOLDS
    given = {name: offered_default(name) for name in FIELDS} | {"effort": EFFORT}
    return settle(given, DataShape(rows, table.X.shape[1], groups))


def main() -> None:
    """Measure every change on every table, and keep it in a record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--tables", default="", help="some tables only, with commas")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    record = measure_rules(
        wheels=options.wheels,
        folder=options.records,
        names=listed(options.tables),
        seeds=options.seeds,
        jobs=options.jobs,
        quick=options.quick,
        say=lambda text: print(text, flush=True),
    )
    print("wrote", record.path)


if __name__ == "__main__":
    main()
