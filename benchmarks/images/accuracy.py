"""The best small network of a budget: ours against an MLP that was searched as hard."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.choices import require_some
from benchmarks.images.contenders import MOST_PASSES, MOST_TRAINED, ROWS, Row, contenders
from benchmarks.paper.table1 import chosen, scored
from benchmarks.paper.names import NAMES
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
    """Both contenders of a row on a data set, in percent.

    ``drawn`` are their means over all drawn configurations on held-out rows: a typical result.
    """

    row: Row
    dataset: str
    ours: Score
    mlp: Score
    ours_drawn: float
    mlp_drawn: float

    @property
    def ahead(self) -> float:
        """Points of difference between the means."""
        return self.ours.mean - self.mlp.mean


def meetings(*records: Mapping[str, Any]) -> list[Meeting]:
    """What the records say, each of a row and a data set."""
    found = []
    for record in records:
        row = next(row for row in ROWS if row.key == record["plan"]["row"])
        ours, mlp = (percent(_tests(record, key)) for key in ("protopinv", "mlp"))
        drawn = (_drawn(record, key) for key in ("protopinv", "mlp"))
        found.append(Meeting(row, record["plan"]["dataset"], ours, mlp, *drawn))
    return found


def accuracy_table(*records: Mapping[str, Any]) -> list[str]:
    """A line a row and data set: ours, the MLP, and the difference."""
    header = ["row", "data", "protopinv %", "MLP %", "ahead by", "drawn", "drawn, MLP"]
    return markdown(
        header,
        [
            [
                m.row.title,
                NAMES[m.dataset],
                str(m.ours),
                str(m.mlp),
                f"{m.ahead:+.2f}",
                f"{m.ours_drawn:.2f}",
                f"{m.mlp_drawn:.2f}",
            ]
            for m in meetings(*records)
        ],
    )


def _tests(record: Mapping[str, Any], contender: str) -> list[float]:
    prefix = f"test/{record['plan']['row']}/{contender}/"
    return [cell["test"] for key, cell in record["cells"].items() if key.startswith(prefix)]


def _drawn(record: Mapping[str, Any], contender: str) -> float:
    prefix = f"search/{record['plan']['row']}/{contender}/"
    found = [
        cell["held_out"]
        for key, cell in record["cells"].items()
        if key.startswith(prefix) and key.endswith("/seed0") and cell["held_out"] is not None
    ]
    return percent(found).mean
