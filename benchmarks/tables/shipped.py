"""How large a trained model is, and how long it takes to predict, for every effort."""

import statistics
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from benchmarks.paper.table1 import estimator_sizes
from benchmarks.plans import require_counts, require_some
from benchmarks.record import Cell, Content, Record, Records
from benchmarks.tables.contest import quiet
from benchmarks.tables.contestants import OURS, build
from benchmarks.tables.suite import Table, suite
from benchmarks.text import markdown, readable
from benchmarks.timing import seconds

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


def measure_shipped(plan: ShippedPlan, records: Records) -> Record:
    """Every effort on every table, and scikit-learn's MLP beside it."""
    content = {"task": "Numbers of a trained model, and times of predict", **asdict(plan)}
    record = records.open("shipped", plan=content)
    for table_name in plan.tables:
        table = suite(None)[table_name]()
        for who in (*OURS, PEER):
            cell = record.cell(f"{table_name}/{who}", partial(_weighed, table, who, plan))
            record.say(f"{table_name:10} {who:10} {cell['numbers']:,} numbers")
    record.finish()
    return record


def _weighed(table: Table, who: str, plan: ShippedPlan) -> Cell:
    model = build(who, table.task, several=False, seed=0)
    with quiet():
        model.fit(table.X, table.y)
    order = np.random.default_rng(0).integers(len(table.X), size=MANY)
    many = table.X[order]
    singles = [many[n : n + 1] for n in range(SINGLE_ROWS)]
    return {
        "rows": len(table.X),
        "features": table.X.shape[1],
        "numbers": estimator_sizes(model)[1],
        "row_seconds": statistics.median(seconds(partial(model.predict, row)) for row in singles),
        "many_seconds": statistics.median(
            seconds(partial(model.predict, many)) for _ in range(plan.repeats)
        ),
    }


def shipped_table(record: Content) -> list[str]:
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
