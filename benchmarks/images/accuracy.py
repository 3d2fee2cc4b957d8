"""The best small network of a budget: ours against an MLP that was searched as hard."""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.choices import require_some
from benchmarks.images.contenders import MOST_PASSES, MOST_TRAINED, ROWS, Row, contenders
from benchmarks.paper.comparison import Difference, holm, unpaired
from benchmarks.paper.names import NAMES
from benchmarks.paper.table1 import chosen, scored
from protopinv.bench.markdown import markdown
from protopinv.bench.plans import record_name, require_counts
from protopinv.bench.record import Record, Say
from protopinv.bench.scores import Score, percent
from protopinv.bench.tasks import DATASETS, Task, load_task


@dataclass(frozen=True)
class AccuracyPlan:
    """What to measure; everything in it is written into the record."""

    row: str
    dataset: str
    seeds: int = 5
    configurations: int = 12
    quick: bool = False

    def __post_init__(self) -> None:
        require_some("row", (self.row,), [row.key for row in ROWS])
        require_some("dataset", (self.dataset,), DATASETS)
        require_counts(self, "seeds", "configurations")


def measure_accuracy(
    plan: AccuracyPlan, *, device: str, folder: Path, fresh: bool = False, say: Say = lambda _: None
) -> Record:
    """Search on held-out rows, train the winner on all training rows, score the test set."""
    row = next(row for row in ROWS if row.key == plan.row)
    content = {
        "task": "Official test sets; chosen on 6,000 training rows, then trained on all 60,000",
        "most_trained": MOST_TRAINED,
        "most_passes": MOST_PASSES,
        **asdict(plan),
    }
    name = record_name("accuracy", row.key, plan.dataset, device, quick=plan.quick)
    record = Record(folder, name, content, device, fresh=fresh, say=say)
    task = load_task(plan.dataset, quick=plan.quick)
    for method in contenders(row, plan.dataset):
        winner = chosen(record, method, task, plan, device)
        whole = with_all_rows(task)
        jobs = {f"test/{method.key}/seed{seed}": seed for seed in range(plan.seeds)}
        work = partial(_tested, method, whole, winner, plan, device)
        for seed, cell in enumerate(record.cells_of(jobs, work)):
            say(f"{method.key:24} {plan.dataset:14} seed {seed}: {100 * cell['test']:.2f} %")
    record.finish()
    return record


def _tested(*arguments: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Trained on all rows and scored: the rows once held out say nothing any more."""
    for place, cell in scored(*arguments):
        yield place, {name: value for name, value in cell.items() if name != "held_out"}


def with_all_rows(task: Task) -> Task:
    """The task with the rows that choices were made on among those to train on."""
    return replace(task, train=task.all_rows)


@dataclass(frozen=True)
class Meeting:
    """Both contenders of a row on a data set: percent of the test set, sizes and times.

    ``ahead`` is ours minus the MLP by Welch's test; ``ahead_on_held_out`` the same difference
    between the winners of both searches, where they were chosen.
    """

    row: Row
    dataset: str
    ours: Score
    mlp: Score
    ahead: Difference
    ahead_on_held_out: float
    ours_shipped: int
    mlp_shipped: int
    ours_seconds: float
    mlp_seconds: float


def meetings(*records: Mapping[str, Any]) -> list[Meeting]:
    """What the records say, each of a row and a data set."""
    found = []
    for record in records:
        row = next(row for row in ROWS if row.key == record["plan"]["row"])
        ours, mlp = (_tests(record, key) for key in ("protopinv", "mlp"))
        ours_tests, mlp_tests = ([100 * cell["test"] for cell in cells] for cells in (ours, mlp))
        winners = [
            100 * statistics.mean(winner_of(record, key)["held_out"])
            for key in ("protopinv", "mlp")
        ]
        found.append(
            Meeting(
                row,
                record["plan"]["dataset"],
                percent([cell["test"] for cell in ours]),
                percent([cell["test"] for cell in mlp]),
                unpaired(ours_tests, mlp_tests),
                winners[0] - winners[1],
                ours[0]["shipped"],
                mlp[0]["shipped"],
                statistics.median(cell["seconds"] for cell in ours),
                statistics.median(cell["seconds"] for cell in mlp),
            )
        )
    return found


def corrected_meetings(*records: Mapping[str, Any]) -> list[Meeting]:
    """The same, with p-values corrected for the number of meetings."""
    found = meetings(*records)
    named = {str(number): meeting.ahead for number, meeting in enumerate(found)}
    (corrected,) = holm([named])
    return [replace(m, ahead=corrected[str(number)]) for number, m in enumerate(found)]


def accuracy_table(*records: Mapping[str, Any]) -> list[str]:
    """A line a row and data set: ours, the MLP, the difference, and what each costs."""
    header = ["row", "data", "protopinv %", "MLP %", "ahead by", "shipped", "shipped, MLP"]
    return markdown(
        [*header, "fit", "fit, MLP"],
        [
            [
                m.row.title,
                NAMES[m.dataset],
                str(m.ours),
                str(m.mlp),
                str(m.ahead),
                f"{m.ours_shipped:,}",
                f"{m.mlp_shipped:,}",
                f"{m.ours_seconds:.1f} s",
                f"{m.mlp_seconds:.1f} s",
            ]
            for m in corrected_meetings(*records)
        ],
    )


def _tests(record: Mapping[str, Any], contender: str) -> list[Mapping[str, Any]]:
    prefix = f"test/{record['plan']['row']}/{contender}/"
    return [cell for key, cell in record["cells"].items() if key.startswith(prefix)]


def winner_of(record: Mapping[str, Any], contender: str) -> dict[str, Any]:
    """The parameters that won a search, and their held-out scores by seed."""
    prefix = f"search/{record['plan']['row']}/{contender}/"
    tried: dict[str, list[Mapping[str, Any]]] = {}
    for key, cell in record["cells"].items():
        if key.startswith(prefix) and cell["held_out"] is not None:
            tried.setdefault(key.rpartition("/")[0], []).append(cell)
    most = max(map(len, tried.values()))
    finalists = [cells for cells in tried.values() if len(cells) == most]
    scores = [[cell["held_out"] for cell in cells] for cells in finalists]
    best = max(range(len(scores)), key=lambda number: statistics.mean(scores[number]))
    parameters = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in finalists[best][0]["parameters"].items()
    }
    return {"parameters": parameters, "held_out": scores[best]}
