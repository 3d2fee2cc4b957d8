"""Everybody's defaults on public tables, for every task, without any tuning.

Rules of ours are chosen on the development half of the tables; the confirmation half is for the
end. A seed deals the folds and seeds the model.
"""

import io
import statistics
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, StratifiedKFold

from benchmarks.choices import require_some
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
from benchmarks.tables.suite import (
    HALVES,
    IMBALANCED,
    Half,
    Loaders,
    Table,
    Task,
    half_of,
    suite,
)
from protopinv.bench.plans import record_name, require_counts
from protopinv.bench.record import Cell, Record, Say
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
    """Who meets on which tables; with none named, on all of the half, for all tasks.

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


def measure_contest(
    plan: ContestPlan,
    *,
    wheels: Path | None,
    folder: Path,
    fresh: bool = False,
    say: Say = lambda _: None,
) -> Record:
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
    record = Record(folder, _name(plan), content, plan.device, fresh=fresh, say=say)
    if plan.jobs > 1:
        _all_at_once(record, plan, loaders, say)
    else:
        _in_turn(record, plan, loaders, say)
    record.finish()
    return record


def _in_turn(record: Record, plan: ContestPlan, loaders: Loaders, say: Say) -> None:
    for name, load in loaders.items():
        keys = [f"{name}/{who}/seed{n}" for who in plan.contestants for n in range(plan.seeds)]
        if all(key in record.cells for key in keys):
            continue  # no need to read it again
        table = load()
        for who in plan.contestants:
            cells = [
                record.cell(
                    f"{name}/{who}/seed{seed}", partial(_meet, plan, Bout(table, who, seed))
                )
                for seed in range(plan.seeds)
            ]
            say(f"{name:18} {who:16} {told(cells)}")


def _all_at_once(record: Record, plan: ContestPlan, loaders: Loaders, say: Say) -> None:
    """The largest tables first, so that no long fit is left for the end."""
    tables = {name: load() for name, load in loaders.items()}
    bouts = {
        f"{name}/{who}/seed{seed}": Bout(table, who, seed)
        for name, table in sorted(tables.items(), key=lambda item: -item[1].X.size)
        for who in plan.contestants
        for seed in range(plan.seeds)
    }

    def tell(bout: Bout, cell: Cell) -> None:
        say(f"{bout.table.name:18} {bout.who:16} seed {bout.seed}: {told([cell])}")

    record.cells_of(bouts, partial(side_by_side, partial(_meet, plan), plan.jobs, tell))


def tables_of(plan: ContestPlan, wheels: Path | None) -> Loaders:
    """The tables that are asked for.

    Without a folder of wheels only scikit-learn's own; with one those of packages too.
    """
    if plan.imbalanced and wheels is None:
        raise ConfigError(
            "The imbalanced tables are in a wheel. No folder with it was given. Set --wheels."
        )
    wanted = {
        name: loader
        for name, loader in suite(wheels, with_packages=wheels is not None).items()
        if half_of(name) == plan.half
        and name.startswith(IMBALANCED) == plan.imbalanced
        and loader.task in (plan.tasks or TASKS)
    }
    require_some("tables", plan.tables or tuple(wanted), tuple(wanted))
    return {name: wanted[name] for name in plan.tables or wanted}


def _name(plan: ContestPlan) -> str:
    kind = f"contest-{plan.half}" + ("-imbalanced" if plan.imbalanced else "")
    return record_name(kind, *([plan.part] if plan.part else []), plan.device, quick=plan.quick)


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
        kept, left_out = prepared(table, plan.folds, quick=plan.quick)
        return {**shape_of(kept), "left_out": left_out, "skipped": reason}
    several = table.task == "regression" and table.y.ndim > 1
    made = partial(_build, who, table.task, several, plan.device)
    return measure(table, made, seed, folds=plan.folds, quick=plan.quick)


def _build(who: str, task: Task, several: bool, device: str, seed: int) -> Any:
    return build(who, task, several=several, seed=seed, device=device)


def measure(
    table: Table, build: Build, seed: int, *, folds: int = FOLDS, quick: bool = False
) -> Cell:
    """Scores and times on every scored fold; an error is kept in place of them."""
    table, left_out = prepared(table, folds, quick=quick)
    scored = 1 if quick else scored_folds(len(table.X), folds)
    head = {**shape_of(table), "left_out": left_out, "folds": folds, "scored_folds": scored}
    rounds = []
    try:
        for train, test in splits_of(table, seed, folds)[:scored]:
            with quiet():
                rounds.append(fit_and_score(table, build(seed), train, test))
    except Exception as error:  # whatever a peer raises is a result
        return {**head, "error": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
    return {**head, **{name: [_short(each[name]) for each in rounds] for name in rounds[0]}}


def _short(value: float) -> float:
    """Six digits: a record of thousands of cells is read by people too."""
    return float(f"{value:.6g}")


def fit_and_score(table: Table, model: Any, train: Any, test: Any) -> dict[str, float]:
    """Every score on the test rows, and how long training and predicting took."""
    X, y = table.X[test], table.y[test]
    started = time.perf_counter()
    model.fit(table.X[train], table.y[train])
    fitted = time.perf_counter()
    answers = np.asarray(model.predict(X)).reshape(y.shape)
    answered = time.perf_counter()
    single = [_seconds_of_a_row(model, X[n : n + 1]) for n in range(min(SINGLE_ROWS, len(X)))]
    with_proba = table.task == "classification" and hasattr(model, "predict_proba")
    probabilities = np.asarray(model.predict_proba(X)) if with_proba else None
    return {
        **scores(table.task, y, answers, probabilities),
        "fit_seconds": fitted - started,
        "test_seconds": answered - fitted,
        "row_seconds": statistics.median(single),
    }


def _seconds_of_a_row(model: Any, row: NDArray[np.float64]) -> float:
    started = time.perf_counter()
    model.predict(row)
    return time.perf_counter() - started


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing is printed inside: some peers talk, and stdout is for answers."""
    with (
        warnings.catch_warnings(),
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


def prepared(table: Table, folds: int, *, quick: bool) -> tuple[Table, int]:
    """A table without classes or labels too rare to be in every fold, and how much was left out.

    That is counted in rows, or in labels. A quick run draws some rows.
    """
    if quick:
        order = np.random.default_rng(0).permutation(len(table.X))[:QUICK_ROWS]
        table = replace(table, X=table.X[order], y=table.y[order])
    if table.task == "classification":
        kept = np.bincount(table.y)[table.y] >= folds
        codes = np.unique(table.y[kept], return_inverse=True)[1]
        return replace(table, X=table.X[kept], y=codes), int((~kept).sum())
    if table.task == "multi-label":
        often = table.y.sum(axis=0)
        kept = np.minimum(often, len(table.y) - often) >= LEAST_OF_A_LABEL
        return replace(table, y=table.y[:, kept]), int((~kept).sum())
    return table, 0


def splits_of(table: Table, seed: int, folds: int) -> list[Split]:
    """Rows to train on and rows to score, for each fold; classes are dealt evenly."""
    if table.task == "classification":
        dealt = StratifiedKFold(folds, shuffle=True, random_state=seed)
    else:
        dealt = KFold(folds, shuffle=True, random_state=seed)
    return list(dealt.split(table.X, table.y))


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


def told(cells: Sequence[Cell]) -> str:
    """What came out, in a line."""
    for cell in cells:
        if "skipped" in cell or "error" in cell:
            return str(cell.get("skipped") or cell["error"])
    measure = MEASURES[cells[0]["task"]][0]
    score = statistics.mean(value for cell in cells for value in cell[measure])
    seconds = statistics.mean(value for cell in cells for value in cell["fit_seconds"])
    return f"{measure} {score:.4f}, {seconds:.2f} s a fit"
