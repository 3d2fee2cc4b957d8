"""Our defaults against others' defaults, on public tables, without any tuning."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.choices import require_some
from benchmarks.tables.suite import IMBALANCED, Table, suite
from protopinv.bench.plans import record_name
from protopinv.bench.record import Record, Say
from protopinv.errors import ConfigError
from protopinv.estimators import ProtoPINVClassifier
from protopinv.optional import require

REFERENCE = "scikit-mlp"
FOLDS = 5
# Folds that are scored, by rows: small tables need all of them for a steady figure.
SCORED_FOLDS = ((1_500, 5), (8_000, 3))
MOST_ROWS_FOR_SVM = 25_000
LEVEL = 0.0025  # differences of a quarter of a point are level


def _lightgbm(seed: int) -> Any:
    lightgbm = require("lightgbm", extra="dev", why="Comparing with LightGBM")
    return lightgbm.LGBMClassifier(verbose=-1, n_jobs=1, random_state=seed)


CONTESTANTS: dict[str, Callable[[int], Any]] = {
    "protopinv": lambda seed: ProtoPINVClassifier(device="cpu", random_state=seed),
    REFERENCE: lambda seed: make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)),
    "lightgbm": _lightgbm,
    "svm": lambda seed: make_pipeline(StandardScaler(), SVC(random_state=seed)),
    "linear": lambda seed: make_pipeline(
        StandardScaler(), LogisticRegression(max_iter=1000, random_state=seed)
    ),
}


@dataclass(frozen=True)
class ContestPlan:
    """Who meets on which tables; with none named, on all balanced or all imbalanced ones."""

    contestants: tuple[str, ...] = tuple(CONTESTANTS)
    tables: tuple[str, ...] = ()
    imbalanced: bool = False
    quick: bool = False


def measure_contest(
    plan: ContestPlan,
    *,
    wheels: Path | None,
    folder: Path,
    fresh: bool = False,
    say: Say = lambda _: None,
) -> Record:
    """Cross-validated accuracy of every contestant on every table."""
    if plan.imbalanced and wheels is None:
        raise ConfigError(
            "The imbalanced tables are in a wheel. No folder with it was given. Set --wheels."
        )
    loaders = suite(wheels)
    require_some("contestants", plan.contestants, tuple(CONTESTANTS))
    tables = plan.tables or tuple(
        name for name in loaders if name.startswith(IMBALANCED) == plan.imbalanced
    )
    require_some("tables", tables, tuple(loaders))
    content = {
        "task": f"Accuracy in {FOLDS}-fold stratified cross-validation, default settings",
        "contestants": plan.contestants,
        "tables": tables,
        "quick": plan.quick,
        "scored_folds": SCORED_FOLDS,
    }
    kind = "imbalanced" if plan.imbalanced else "tables"
    name = record_name(kind, "cpu", quick=plan.quick)
    record = Record(folder, name, content, "cpu", fresh=fresh, say=say)
    for name in tables:
        table = loaders[name]()
        for contestant in plan.contestants:
            if contestant == "svm" and len(table.y) > MOST_ROWS_FOR_SVM:
                continue
            work = partial(measure, table, CONTESTANTS[contestant], plan)
            cell = record.cell(f"{name}/{contestant}", work)
            accuracy = 100 * statistics.mean(cell["accuracies"])
            say(f"{name:18} {contestant:12} {accuracy:6.2f} % {cell['seconds']:.2f} s")
    record.finish()
    return record


def measure(table: Table, build: Callable[[int], Any], plan: ContestPlan) -> dict[str, Any]:
    """Accuracy on every scored fold, and the mean time of a fit."""
    accuracies, balanced, seconds = [], [], []
    for train, test in _splits(table, plan):
        started = time.perf_counter()
        model = build(0).fit(table.X[train], table.y[train])
        seconds.append(time.perf_counter() - started)
        answers = model.predict(table.X[test])
        accuracies.append(float(accuracy_score(table.y[test], answers)))
        balanced.append(_mean_recall(table.y[test], answers))
    shape = {"rows": len(table.y), "features": table.X.shape[1], "classes": len(set(table.y))}
    scores = {"accuracies": accuracies, "balanced_accuracies": balanced}
    return {**scores, "seconds": statistics.mean(seconds), **shape}


def _mean_recall(truth: NDArray[Any], answers: NDArray[Any]) -> float:
    """The share of right answers in a class, averaged over the classes there are."""
    return statistics.mean(float((answers[truth == c] == c).mean()) for c in np.unique(truth))


def _splits(table: Table, plan: ContestPlan) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    rarest = int(np.bincount(table.y).min())
    folds = StratifiedKFold(min(FOLDS, max(2, rarest)), shuffle=True, random_state=0)
    splits = list(folds.split(table.X, table.y))
    scored = next((n for rows, n in SCORED_FOLDS if len(table.y) < rows), 1)
    return splits[: 1 if plan.quick else scored]


@dataclass(frozen=True)
class Standing:
    """A contestant over all tables that everyone was scored on."""

    name: str
    mean_rank: float
    mean_accuracy: float
    seconds: float
    wins: int
    level: int
    losses: int


def accuracies_of(
    record: Mapping[str, Any], kind: str = "accuracies"
) -> dict[str, dict[str, float]]:
    """By table and contestant, in the record's order; ``kind`` may be "balanced_accuracies"."""
    found: dict[str, dict[str, float]] = {}
    for key, cell in record["cells"].items():
        table, contestant = key.rsplit("/", 1)
        found.setdefault(table, {})[contestant] = statistics.mean(cell[kind])
    return found


def standings(
    record: Mapping[str, Any], against: str = REFERENCE, kind: str = "accuracies"
) -> list[Standing]:
    """Best mean rank first; wins, level tables and losses are against one contestant."""
    names: Sequence[str] = record["plan"]["contestants"]
    scores = accuracies_of(record, kind)
    everyone = [table for table, by_name in scores.items() if set(names) <= set(by_name)]
    ranks = {table: rankdata([-scores[table][name] for name in names]) for table in everyone}
    found = []
    for index, name in enumerate(names):
        differences = [
            by[name] - by[against] for by in scores.values() if {name, against} <= set(by)
        ]
        cells = [record["cells"][f"{table}/{name}"] for table in everyone]
        found.append(
            Standing(
                name,
                mean_rank=statistics.mean(float(ranks[table][index]) for table in everyone),
                mean_accuracy=statistics.mean(scores[table][name] for table in everyone),
                seconds=statistics.mean(cell["seconds"] for cell in cells),
                wins=sum(difference > LEVEL for difference in differences),
                level=sum(abs(difference) <= LEVEL for difference in differences),
                losses=sum(difference < -LEVEL for difference in differences),
            )
        )
    return sorted(found, key=lambda standing: standing.mean_rank)
