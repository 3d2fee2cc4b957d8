"""Default settings of every library on public tables, for every task, without any tuning.

Rules of ours are chosen on the development half of the tables; the confirmation half is for the
end. A seed draws the folds and seeds the model.
"""

import io
import statistics
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, StratifiedKFold

from benchmarks.plans import require_counts, require_some
from benchmarks.record import Cell, Record, Records
from benchmarks.side_by_side import side_by_side
from benchmarks.tables import packaged
from benchmarks.tables.contestants import (
    CONTESTANTS,
    OURS,
    Build,
    build,
    versions_of_peers,
    why_not,
)
from benchmarks.tables.scoring import MEASURES, scores
from benchmarks.tables.suite import HALVES, IMBALANCED, Half, Loaders, Table, Task, half_of, suite
from benchmarks.timing import seconds, timed
from protopinv.errors import ConfigError

TASKS: tuple[Task, ...] = get_args(Task)
FOLDS = 5
# Folds that are scored for each seed, below so many rows; then one. Small tables need all of them
# for a steady figure.
SCORED_FOLDS = ((3_000, 5),)
QUICK_ROWS = 300
# Labels and their opposites that are rarer might be missing in the rows that are trained on.
LEAST_OF_A_LABEL = 10
SINGLE_ROWS = 5  # predictions of one row that are timed

Split = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class ContestPlan:
    """The contestants and the tables; with none named, all of the half, for all tasks.

    ``part`` names a record of some contestants or tables only; parts are read as one contest.
    With several ``jobs`` as many fits run beside each other, each with one thread. Only ours can
    be on another ``device`` than the CPU.
    """

    contestants: tuple[str, ...] = tuple(CONTESTANTS)
    half: Half = "development"
    tables: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    seeds: int = 3
    folds: int = FOLDS
    imbalanced: bool = False
    part: str = ""
    device: str = "cpu"
    jobs: int = 1
    quick: bool = False

    def __post_init__(self) -> None:
        require_counts(self, "seeds", "jobs")
        require_some("contestants", self.contestants, tuple(CONTESTANTS))
        require_some("device", (self.device,), ("cpu", "cuda"))
        if self.device != "cpu":
            require_some(f"contestants on {self.device}", self.contestants, OURS)
        require_some("half", (self.half,), HALVES)
        require_some("tasks", self.tasks or TASKS, TASKS)
        if self.folds < 2:
            raise ConfigError(f"folds must be 2 or more. Got {self.folds}. Raise it.")


def measure_contest(plan: ContestPlan, records: Records, *, wheels: Path | None) -> Record:
    """Cross-validated scores of every contestant on every table of a half."""
    loaders = tables_of(plan, wheels)
    packaged.require_packages(tuple(loaders))
    content = {
        "task": "Scores in cross-validation, default settings",
        **asdict(plan),
        "tables": tuple(loaders),
        "scored_folds": SCORED_FOLDS,
        "peers": versions_of_peers(plan.contestants),
    }
    kind = f"contest-{plan.half}" + ("-imbalanced" if plan.imbalanced else "")
    parts = [plan.part] if plan.part else []
    record = records.open(kind, *parts, plan=content, device=plan.device)

    def tell(bout: Bout, cell: Cell) -> None:
        record.say(f"{bout.table.name:18} {bout.who:16} seed {bout.seed}: {summary([cell])}")

    work = partial(side_by_side, partial(_meet, plan), plan.jobs, tell)
    record.cells_of(_bouts(record, plan, loaders), work)
    record.finish()
    return record


def _bouts(record: Record, plan: ContestPlan, loaders: Loaders) -> dict[str, "Bout"]:
    """Those of tables that lack cells, the largest first: no long fit is left for the end."""
    pairs = list(product(plan.contestants, range(plan.seeds)))
    tables = {
        name: load()
        for name, load in loaders.items()
        if any(f"{name}/{who}/seed{seed}" not in record.cells for who, seed in pairs)
    }
    return {
        f"{name}/{who}/seed{seed}": Bout(table, who, seed)
        for name, table in sorted(tables.items(), key=lambda item: -item[1].X.size)
        for who, seed in pairs
    }


def tables_of(plan: ContestPlan, wheels: Path | None) -> Loaders:
    """The tables that are asked for.

    Without a folder of wheels only scikit-learn's own; with one those of packages too.
    """
    if plan.imbalanced and wheels is None:
        raise ConfigError(
            "The imbalanced tables are in a wheel. No folder with it was given. Set --wheels."
        )
    chosen = {
        name: loader
        for name, loader in suite(wheels, with_packages=wheels is not None).items()
        if half_of(name) == plan.half
        and name.startswith(IMBALANCED) == plan.imbalanced
        and loader.task in (plan.tasks or TASKS)
    }
    require_some("tables", plan.tables or tuple(chosen), tuple(chosen))
    return {name: chosen[name] for name in plan.tables or chosen}


@dataclass(frozen=True)
class Bout:
    """A contestant at a table, with a seed."""

    table: Table
    who: str
    seed: int


def _meet(plan: ContestPlan, bout: Bout) -> Cell:
    """A cell: scores and times, or why there are none."""
    table, who, seed = bout.table, bout.who, bout.seed
    if (reason := why_not(who, len(table.X))) is not None:
        table, left_out = prepared(table, plan.folds, quick=plan.quick)
        return {**shape_of(table), "left_out": left_out, "skipped": reason}
    several = table.task == "regression" and table.y.ndim > 1

    def made(seed: int) -> Any:
        return build(who, table.task, several=several, seed=seed, device=plan.device)

    return measure(table, made, seed, folds=plan.folds, quick=plan.quick)


def measure(
    table: Table,
    build: Build,
    seed: int,
    *,
    folds: int = FOLDS,
    quick: bool = False,
    only: int | None = None,
) -> Cell:
    """Scores and times on every scored fold, or one of them; or the error that came instead."""
    table, left_out = prepared(table, folds, quick=quick)
    chosen = range(1 if quick else scored_folds(len(table.X), folds))
    if only is not None:
        chosen = range(only, only + 1)
    head = {**shape_of(table), "left_out": left_out, "folds": folds, "scored_folds": len(chosen)}
    rounds = []
    try:
        splits = splits_of(table, seed, folds)
        for train, test in (splits[place] for place in chosen):
            with quiet():
                rounds.append(fit_and_score(table, build(seed), train, test))
    except Exception as error:  # whatever a peer raises is a result
        return {**head, "error": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
    return {**head, **{name: [_short(each[name]) for each in rounds] for name in rounds[0]}}


def _short(value: float) -> float:
    """The value to six digits: people read a record of thousands of cells too."""
    return float(f"{value:.6g}")


def fit_and_score(table: Table, model: Any, train: Any, test: Any) -> dict[str, float]:
    """Every score on the test rows, and how long training and predicting took."""
    X, y = table.rows(test), table.y[test]
    fit_seconds = seconds(partial(model.fit, table.rows(train), table.y[train]))
    test_seconds, answers = timed(partial(model.predict, X))
    rows = [X[n : n + 1] for n in range(min(SINGLE_ROWS, len(X)))]
    with_proba = table.task == "classification" and hasattr(model, "predict_proba")
    probabilities = np.asarray(model.predict_proba(X)) if with_proba else None
    return {
        **scores(table.task, y, np.asarray(answers).reshape(y.shape), probabilities),
        "fit_seconds": fit_seconds,
        "test_seconds": test_seconds,
        "row_seconds": statistics.median(seconds(partial(model.predict, row)) for row in rows),
    }


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing is printed inside: some peers write to stdout, which is for results."""
    with (
        warnings.catch_warnings(),
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


def prepared(table: Table, folds: int, *, quick: bool) -> tuple[Table, int]:
    """A table without classes or labels too rare to be in every fold, and how many were left out.

    Those are rows, or labels. A quick run draws some rows.
    """
    if quick:
        order = np.random.default_rng(0).permutation(len(table.X))[:QUICK_ROWS]
        table = replace(table, X=table.rows(order), y=table.y[order])
    if table.task == "classification":
        often = np.bincount(table.y)[table.y] >= folds
        codes = np.unique(table.y[often], return_inverse=True)[1]
        return replace(table, X=table.rows(often), y=codes), int((~often).sum())
    if table.task == "multi-label":
        counts = table.y.sum(axis=0)
        often = np.minimum(counts, len(table.y) - counts) >= LEAST_OF_A_LABEL
        return replace(table, y=table.y[:, often]), int((~often).sum())
    return table, 0


def splits_of(table: Table, seed: int, folds: int) -> list[Split]:
    """Rows to train on and rows to score, for each fold; classes are dealt evenly."""
    kind = StratifiedKFold if table.task == "classification" else KFold
    return list(kind(folds, shuffle=True, random_state=seed).split(table.X, table.y))


def scored_folds(rows: int, folds: int) -> int:
    """How many folds are scored for each seed."""
    return min(folds, next((n for most, n in SCORED_FOLDS if rows < most), 1))


def shape_of(table: Table) -> Cell:
    """Task, rows, features, and outputs: classes, labels or numbers."""
    if table.task == "classification":
        outputs = len(np.unique(table.y))
    else:
        outputs = 1 if table.y.ndim == 1 else table.y.shape[1]
    rows, features = table.X.shape
    return {"task": table.task, "rows": rows, "features": features, "outputs": outputs}


def summary(cells: Sequence[Cell]) -> str:
    """The score and the time of some cells, or why there are none, in a line."""
    for cell in cells:
        if "skipped" in cell or "error" in cell:
            return str(cell.get("skipped") or cell["error"])
    measure = MEASURES[cells[0]["task"]][0]
    score = statistics.mean(value for cell in cells for value in cell[measure])
    time = statistics.mean(value for cell in cells for value in cell["fit_seconds"])
    return f"{measure} {score:.4f}, {time:.2f} s a fit"
