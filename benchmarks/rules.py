"""What each rule for "auto" is worth: the defaults against the same with one rule changed.

    python -m benchmarks.rules --wheels FOLDER [--records DIR] [--jobs 2]

On the balanced tables of the suite with up to 3,000 rows, where the rules matter most. The record
is resumable.
"""

import argparse
import os
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices, one process a core

from joblib import Parallel, delayed

from benchmarks.tables.contest import ContestPlan, measure
from benchmarks.tables.suite import IMBALANCED, suite
from protopinv import ProtoPINVClassifier
from protopinv.bench.record import Record
from protopinv.train.settle import SIZES

RECORDS = Path(__file__).parent / "records"
CHANGES: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "no tails squashed (scaling='feature')": {"scaling": "feature"},
    "all epochs (early_stopping=False)": {"early_stopping": False},
    "a weaker ridge (10)": {"ridge": 10.0},
    "100 prototypes": {"n_prototypes": 100},
}


def main() -> None:
    """Measure every change on every table, and keep it in a record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    loaders = suite(options.wheels)
    tables = [load() for name, load in loaders.items() if not name.startswith(IMBALANCED)]
    small = [table for table in tables if len(table.y) <= SIZES[0].most_rows]
    plan = {
        "task": "Accuracy in five-fold cross-validation with one rule changed at a time",
        "contestants": list(CHANGES),
        "tables": [table.name for table in small],
    }
    record = Record(options.records, "rules-cpu", plan, "cpu")
    for label, changes in CHANGES.items():
        missing = [table for table in small if f"{table.name}/{label}" not in record.cells]
        work = [
            delayed(measure)(table, partial(_build, changes), ContestPlan()) for table in missing
        ]
        for table, cell in zip(
            missing, Parallel(n_jobs=options.jobs, return_as="generator")(work), strict=True
        ):
            record.cell(f"{table.name}/{label}", partial(dict, cell))
        print(label, flush=True)
    record.finish()
    print("wrote", record.path)


def _build(changes: dict[str, Any], seed: int) -> ProtoPINVClassifier:
    return ProtoPINVClassifier(**changes, device="cpu", random_state=seed)


if __name__ == "__main__":
    main()
