"""What a trained model weighs, and how long it takes to predict, for every effort."""

import statistics
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from benchmarks.choices import require_some
from benchmarks.tables.contestants import OURS, build
from benchmarks.tables.suite import Table, suite
from protopinv.bench.markdown import markdown
from protopinv.bench.plans import record_name, require_counts
from protopinv.bench.record import Cell, Record, Say
from protopinv.bench.speed_tables import readable
from protopinv.bench.timing import seconds

PEER = "scikit-mlp"
MANY = 10_000
SINGLE_ROWS = 200


@dataclass(frozen=True)
class ShippedPlan:
    """What to measure; tables are those of scikit-learn."""

    tables: tuple[str, ...] = ("iris", "digits", "diabetes")
    repeats: int = 7
    quick: bool = False

    def __post_init__(self) -> None:
        require_counts(self, "repeats")
        require_some("tables", self.tables, tuple(suite(None)))


def measure_shipped(
    plan: ShippedPlan, *, folder: Path, fresh: bool = False, say: Say = lambda _: None
) -> Record:
    """Every effort on every table, and scikit-learn's MLP beside it."""
    content = {"task": "Numbers of a trained model, and times of predict", **asdict(plan)}
    name = record_name("shipped", "cpu", quick=plan.quick)
    record = Record(folder, name, content, "cpu", fresh=fresh, say=say)
    for table_name in plan.tables:
        table = suite(None)[table_name]()
        for who in (*OURS, PEER):
            cell = record.cell(f"{table_name}/{who}", partial(_weighed, table, who, plan))
            say(f"{table_name:10} {who:10} {cell['numbers']:,} numbers")
    record.finish()
    return record


def _weighed(table: Table, who: str, plan: ShippedPlan) -> Cell:
    model = build(who, table.task, several=False, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(table.X, table.y)
    order = np.random.default_rng(0).integers(len(table.X), size=MANY)
    many = table.X[order]
    singles = [many[n : n + 1] for n in range(SINGLE_ROWS)]
    return {
        "rows": len(table.X),
        "features": table.X.shape[1],
        "numbers": model.n_shipped_ if who in OURS else _numbers_of_mlp(model),
        "row_seconds": statistics.median(
            seconds(partial(model.predict, row), "cpu") for row in singles
        ),
        "many_seconds": statistics.median(
            seconds(partial(model.predict, many), "cpu") for _ in range(plan.repeats)
        ),
    }


def _numbers_of_mlp(model: Any) -> int:
    """Weights and biases; the mean and scale of every column."""
    pipeline = getattr(model, "regressor_", model)
    scaler, mlp = pipeline[0], pipeline[-1]
    weights = sum(int(w.size) for w in (*mlp.coefs_, *mlp.intercepts_))
    return weights + 2 * int(scaler.n_features_in_)


def shipped_table(record: Mapping[str, Any]) -> list[str]:
    """A line a table and effort."""
    rows = []
    for key, cell in record["cells"].items():
        table, who = key.split("/")
        rows.append(
            [
                f"{table}, {cell['rows']:,} x {cell['features']}",
                who,
                f"{cell['numbers']:,}",
                f"{4 * cell['numbers'] / 1024:,.0f} KiB",
                readable(cell["row_seconds"]),
                readable(cell["many_seconds"]),
            ]
        )
    header = ["trained on", "", "numbers", "in float32", "a row", f"{MANY:,} rows"]
    return markdown(header, rows)
