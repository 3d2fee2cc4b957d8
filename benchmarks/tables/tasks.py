"""Numbers and several labels: our defaults against those of scikit-learn's MLP.

Nobody's features are scaled, except in rows that say so: ours are scaled inside, which is part of
the defaults that are compared.
"""

import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score, r2_score
from sklearn.model_selection import KFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.choices import require_some
from benchmarks.tables.suite import Loaders, Table, suite
from protopinv.bench.markdown import markdown
from protopinv.bench.plans import record_name, require_counts
from protopinv.bench.record import Cell, Record, Say
from protopinv.bench.scores import percent
from protopinv.estimators import ProtoPINVClassifier, ProtoPINVRegressor

FOLDS = 5
# Folds that are scored for each seed, by rows.
SCORED_FOLDS = ((3_000, 5), (8_000, 3))
QUICK_ROWS = 300
MEASURE = {"regression": "R2", "multi-label": "micro-F1"}
OURS, PEER = "protopinv", "scikit-mlp"


def target_tables(folder: Path | None) -> Loaders:
    """How to load each; without a folder of wheels only scikit-learn's own."""
    wanted = ("diabetes", "california", "rf1", "birds", "yeast-functions")
    return {name: load for name, load in suite(folder).items() if name in wanted}


def _with_scaled_targets(seed: int) -> Any:
    return TransformedTargetRegressor(
        make_pipeline(StandardScaler(), MLPRegressor(random_state=seed)),
        transformer=StandardScaler(),
    )


# Who meets, by task.
WHO: dict[str, dict[str, Callable[[int], Any]]] = {
    "regression": {
        OURS: lambda seed: ProtoPINVRegressor(device="cpu", random_state=seed),
        PEER: lambda seed: MLPRegressor(random_state=seed),
        f"{PEER}, scaled features": lambda seed: make_pipeline(
            StandardScaler(), MLPRegressor(random_state=seed)
        ),
        f"{PEER}, scaled features and targets": _with_scaled_targets,
    },
    "multi-label": {
        OURS: lambda seed: ProtoPINVClassifier(device="cpu", random_state=seed),
        PEER: lambda seed: MLPClassifier(random_state=seed),
        f"{PEER}, scaled features": lambda seed: make_pipeline(
            StandardScaler(), MLPClassifier(random_state=seed)
        ),
    },
}


@dataclass(frozen=True)
class TaskPlan:
    """What to measure; with no tables named, all there are."""

    tables: tuple[str, ...] = ()
    seeds: int = 3
    quick: bool = False

    def __post_init__(self) -> None:
        require_counts(self, "seeds")


def measure_tasks(
    plan: TaskPlan,
    *,
    wheels: Path | None,
    folder: Path,
    fresh: bool = False,
    say: Say = lambda _: None,
) -> Record:
    """Cross-validated scores of everybody on every table."""
    loaders = target_tables(wheels)
    names = plan.tables or tuple(loaders)
    require_some("tables", names, tuple(loaders))
    content = {
        "task": f"R2 and micro-F1 in {FOLDS}-fold cross-validation, default settings, raw features",
        **asdict(plan),
        "tables": names,
        "scored_folds": SCORED_FOLDS,
    }
    name = record_name("tasks", "cpu", quick=plan.quick)
    record = Record(folder, name, content, "cpu", fresh=fresh, say=say)
    for name in names:
        table = loaders[name]()
        for who, build in WHO[table.task].items():
            cells = [
                record.cell(f"{name}/{who}/seed{seed}", partial(_measure, table, build, seed, plan))
                for seed in range(plan.seeds)
            ]
            score = statistics.mean(statistics.mean(cell["scores"]) for cell in cells)
            say(f"{name:12} {who:38} {MEASURE[table.task]} {score:.4f}")
    record.finish()
    return record


def _measure(
    table: Table, build: Callable[[int], Any], seed: int, plan: TaskPlan
) -> dict[str, Any]:
    """The score on every scored fold, and the mean time of a fit."""
    rows = min(QUICK_ROWS, len(table.X)) if plan.quick else len(table.X)
    order = np.random.default_rng(0).permutation(len(table.X))[:rows]
    X, y = table.X[order], table.y[order]
    if plan.quick and table.task == "multi-label":  # few rows lack some labels
        y = y[:, (y[: rows // 2].any(0)) & (y[rows // 2 :].any(0))]
    scored = next((n for most, n in SCORED_FOLDS if rows < most), 1)
    folds = list(KFold(FOLDS, shuffle=True, random_state=seed).split(X))
    scores, seconds = [], []
    for train, test in folds[: 1 if plan.quick else scored]:
        model = build(seed)
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X[train], y[train])
        seconds.append(time.perf_counter() - started)
        scores.append(_score(table.task, y[test], model.predict(X[test])))
    shape = {"rows": rows, "features": X.shape[1], "targets": 1 if y.ndim == 1 else y.shape[1]}
    return {"scores": scores, "seconds": statistics.mean(seconds), "task": table.task, **shape}


def _score(task: str, truth: NDArray[Any], answers: NDArray[Any]) -> float:
    if task == "regression":
        return float(r2_score(truth, answers))
    return float(f1_score(truth, answers, average="micro", zero_division=0))


def tasks_table(record: Mapping[str, Any]) -> list[str]:
    """A line for everybody on every table: mean and deviation over seeds, and the time of a fit."""
    rows = []
    for (name, who), cells in _by_contestant(record["cells"]).items():
        first = cells[0]
        size = f"{first['rows']:,} x {first['features']}, {first['targets']}"
        score = percent([statistics.mean(cell["scores"]) for cell in cells])
        seconds = statistics.mean(cell["seconds"] for cell in cells)
        rows.append([name, size, MEASURE[first["task"]], who, str(score), f"{seconds:.2f} s"])
    header = ["table", "rows x features, targets", "measure", "who", "%", "mean fit"]
    return markdown(header, rows)


def _by_contestant(cells: Mapping[str, Cell]) -> dict[tuple[str, str], Sequence[Cell]]:
    found: dict[tuple[str, str], list[Cell]] = {}
    for key, cell in cells.items():
        name, who, _ = key.split("/")
        found.setdefault((name, who), []).append(cell)
    return {pair: tuple(group) for pair, group in found.items()}
