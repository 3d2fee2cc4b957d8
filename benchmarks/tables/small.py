"""How long small tables take, against scikit-learn's MLP at its defaults, in one run.

Ratios are those of a quick fit. Also the cost of populations and processes: five members against
one, several processes at once against one alone, a grid search on two processes against one.

``python -m benchmarks.tables.small FITS`` is one of several processes at once. It prints that it is
warm, waits for a line, and prints how many seconds a fit of iris took on average.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.plans import require_counts, require_some
from benchmarks.record import Content, Record, Records
from benchmarks.tables.contest import measure, quiet
from benchmarks.tables.suite import IMBALANCED, Table, suite
from benchmarks.text import markdown, readable
from benchmarks.timing import medians
from protopinv.estimators import ProtoPINVClassifier

MOST_ROWS = 3_000
OURS, PEER, SCALED = "protopinv, quick", "scikit-mlp", "scikit-mlp, scaled"
WHO: dict[str, Callable[[int], Any]] = {
    OURS: lambda seed: ProtoPINVClassifier(effort="quick", device="cpu", random_state=seed),
    "protopinv": lambda seed: ProtoPINVClassifier(device="cpu", random_state=seed),
    PEER: lambda seed: MLPClassifier(random_state=seed),
    SCALED: lambda seed: make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)),
}
# Tables on which five members are timed against one.
MEMBERS_ON = ("iris", "digits")
MEMBERS = 5
PROCESSES = (1, 2, 4)
GRID = {"ridge": [3.0, 10.0, 30.0, 100.0]}
GRID_FOLDS = 3
GRID_EPOCHS = 50


@dataclass(frozen=True)
class SmallPlan:
    """What to measure; with no tables named, all small ones of the suite that ask for a class.

    Those made to be imbalanced are left out.
    """

    tables: tuple[str, ...] = ()
    repeats: int = 5
    quick: bool = False

    def __post_init__(self) -> None:
        require_counts(self, "repeats")


def measure_small(plan: SmallPlan, records: Records, *, wheels: Path | None) -> Record:
    """Every table, then members, processes and the grid."""
    loaders = {
        name: load
        for name, load in suite(wheels).items()
        if load.task == "classification" and not name.startswith(IMBALANCED)
    }
    require_some("tables", plan.tables or ("iris",), tuple(loaders))
    names = plan.tables or tuple(loaders)
    content = {
        "task": "Seconds of a default fit on a whole table, medians, all in turns in one process",
        "most_rows": MOST_ROWS,
        **asdict(plan),
        "tables": names,
        "scaled": "its columns scaled to mean 0 and deviation 1",
    }
    record = records.open("small", plan=content)
    for name in names:
        table = loaders[name]()
        if len(table.y) <= MOST_ROWS:
            cell = record.cell(f"table/{name}", partial(_table, table, plan))
            times = [f"{who} {readable(cell['seconds'][who])}" for who in WHO]
            record.say(f"{name:18} {', '.join(times)}, ratio {cell['ratio']:.2f}")
    for name in MEMBERS_ON[: 1 if plan.quick else None]:
        record.cell(f"members/{name}", partial(_members, loaders[name](), plan))
        record.say(f"members, {name}: done")
    record.cell("processes", partial(_processes, plan))
    record.say("processes: done")
    record.cell("grid", partial(_grid, loaders["iris"](), plan))
    record.finish()
    return record


def _table(table: Table, plan: SmallPlan) -> dict[str, Any]:
    """Median seconds of each on all rows, and the accuracy of each in the same folds."""
    works = {who: partial(_fit, build(0), table) for who, build in WHO.items()}
    with quiet():  # the peer's default may not converge
        seconds = medians(works, repeats=plan.repeats, device="cpu")
        scores = {who: measure(table, build, 0, quick=plan.quick) for who, build in WHO.items()}
    return {
        "seconds": seconds,
        "ratio": seconds[OURS] / seconds[PEER],
        "accuracies": {who: cell["accuracy"] for who, cell in scores.items()},
        **{name: scores[OURS][name] for name in ("rows", "features", "outputs")},
    }


def _fit(model: BaseEstimator, table: Table) -> None:
    model.fit(table.X, table.y)


def _members(table: Table, plan: SmallPlan) -> dict[str, Any]:
    """Fits of one bank and of five in one batch, all epochs of both."""
    works = {
        str(n): partial(
            _fit,
            ProtoPINVClassifier(n_members=n, early_stopping=False, device="cpu", random_state=0),
            table,
        )
        for n in (1, MEMBERS)
    }
    seconds = medians(works, repeats=plan.repeats, device="cpu")
    return {"seconds": seconds, "rows": len(table.y), "features": table.X.shape[1]}


def _processes(plan: SmallPlan) -> dict[str, Any]:
    """Mean seconds of a default fit of iris while so many processes fit it at once.

    As users start them: no variable says how many threads each may use.
    """
    rounds = 1 if plan.quick else plan.repeats
    times: dict[str, list[float]] = {str(n): [] for n in PROCESSES}
    for _ in range(rounds):
        for n in PROCESSES:
            times[str(n)].append(statistics.mean(_crowd(n, fits=1 if plan.quick else 10)))
    return {"seconds": {n: statistics.median(each) for n, each in times.items()}}


def _crowd(n: int, fits: int) -> list[float]:
    """So many processes that begin together; the seconds a fit took in each."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    command = [sys.executable, "-m", __name__, str(fits)]
    crowd = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=Path(__file__).parents[2],
        )
        for _ in range(n)
    ]
    for process in crowd:
        _line(process)  # it is warm
    for process in crowd:
        if process.stdin is not None:
            process.stdin.write("go\n")
            process.stdin.flush()
    times = [float(_line(process)) for process in crowd]
    for process in crowd:
        process.communicate()
    return times


def _line(process: "subprocess.Popen[str]") -> str:
    line = "" if process.stdout is None else process.stdout.readline()
    if not line:
        raise AssertionError("a process of the crowd said nothing")
    return line


def _grid(table: Table, plan: SmallPlan) -> dict[str, Any]:
    """Twelve small fits by GridSearchCV, one after the other and by two processes."""

    def search(jobs: int) -> None:
        model = ProtoPINVClassifier(
            max_epochs=GRID_EPOCHS, early_stopping=False, device="cpu", random_state=0
        )
        search = GridSearchCV(model, GRID, cv=GRID_FOLDS, n_jobs=jobs, refit=False)
        search.fit(table.X, table.y)

    works = {"1": partial(search, 1), "2": partial(search, 2)}
    fits = len(GRID["ridge"]) * GRID_FOLDS
    return {"seconds": medians(works, repeats=plan.repeats, device="cpu"), "fits": fits}


def small_tables(record: Content) -> list[str]:
    """Every table with its ratio, the mean ratio, and the cost of members and processes."""
    cells = record["cells"]
    tables = {k.partition("/")[2]: cell for k, cell in cells.items() if k.startswith("table/")}
    rows = []
    for name, cell in tables.items():
        size = f"{cell['rows']:,} x {cell['features']}, {cell['outputs']}"
        times = [readable(cell["seconds"][who]) for who in WHO]
        scores = [f"{100 * statistics.mean(cell['accuracies'][who]):.2f}" for who in WHO]
        ratios = [f"{cell['ratio']:.2f}", f"{_scaled_ratio(cell):.2f}"]
        rows.append([name, size, *times, *ratios, *scores])
    header = ["table", "rows x features, classes", *WHO, "ratio", "ratio, scaled"]
    lines = markdown([*header, *(f"{who} %" for who in WHO)], rows)
    return [*lines, "", *means(tables), "", *markdown(["", "seconds", "ratio"], _costs(cells))]


def means(tables: Mapping[str, Any]) -> list[str]:
    """Sentences on the mean ratio, arithmetic and geometric, to both peers."""
    lines = []
    for title, ratios in (
        (PEER, [cell["ratio"] for cell in tables.values()]),
        (SCALED, [_scaled_ratio(cell) for cell in tables.values()]),
    ):
        mean, middle = statistics.mean(ratios), float(np.exp(np.mean(np.log(ratios))))
        faster = sum(ratio < 1 for ratio in ratios)
        lines.append(
            f"Our time to that of {title}: mean ratio {mean:.2f}, geometric mean {middle:.2f}; "
            f"faster on {faster} of {len(ratios)} tables."
        )
    return lines


def _scaled_ratio(cell: Mapping[str, Any]) -> float:
    return float(cell["seconds"][OURS] / cell["seconds"][SCALED])


def _costs(cells: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for key, cell in cells.items():
        if key.startswith("members/"):
            one, five = cell["seconds"]["1"], cell["seconds"][str(MEMBERS)]
            title = f"{MEMBERS} members against 1, {cell['rows']:,} x {cell['features']}"
            rows.append([title, f"{readable(five)} against {readable(one)}", f"{five / one:.2f}"])
    if "processes" in cells:
        seconds = cells["processes"]["seconds"]
        for n in PROCESSES[1:]:
            many, alone = seconds[str(n)], seconds["1"]
            title = f"a fit of iris while {n} processes fit, against 1"
            times = f"{readable(many)} against {readable(alone)}"
            rows.append([title, times, f"{many / alone:.2f}"])
    if "grid" in cells:
        one, two = (cells["grid"]["seconds"][n] for n in ("1", "2"))
        title = f"GridSearchCV of {cells['grid']['fits']} small fits, 2 processes against 1"
        rows.append([title, f"{readable(two)} against {readable(one)}", f"{two / one:.2f}"])
    return rows


def _be_one_of_several(fits: int) -> None:
    """Fit once to warm up, then as often as asked."""
    X, y = load_iris(return_X_y=True)
    model = ProtoPINVClassifier(device="cpu", random_state=0)
    model.fit(X, y)
    print("warm", flush=True)
    sys.stdin.readline()
    started = time.perf_counter()
    for _ in range(fits):
        model.fit(X, y)
    print((time.perf_counter() - started) / fits, flush=True)


if __name__ == "__main__":
    _be_one_of_several(int(sys.argv[1]))
