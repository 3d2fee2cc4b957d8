"""The best small network of a budget: ours against an MLP that was searched as hard."""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from benchmarks.images.contenders import MOST_PASSES, MOST_TRAINED, ROWS, Row, contenders
from benchmarks.paper.comparison import Difference, holm, unpaired
from benchmarks.paper.table1 import chosen, scored
from benchmarks.plans import require_counts, require_some
from benchmarks.record import Content, Record, Records
from benchmarks.tasks import DATASETS, NAMES, load_task
from benchmarks.text import Score, markdown, percent


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


def measure_accuracy(plan: AccuracyPlan, records: Records, *, device: str) -> Record:
    """Search on held-out rows, train the winner on all training rows, score the test set."""
    row = next(row for row in ROWS if row.key == plan.row)
    content = {
        "task": "Official test sets; chosen on 6,000 training rows, then trained on all 60,000",
        "most_trained": MOST_TRAINED,
        "most_passes": MOST_PASSES,
        **asdict(plan),
    }
    record = records.open("accuracy", row.key, plan.dataset, plan=content, device=device)
    task = load_task(plan.dataset, quick=plan.quick)
    for method in contenders(row, plan.dataset):
        winner = chosen(record, method, task, plan, device)
        full = replace(task, train=task.all_rows)
        jobs = {f"test/{method.key}/seed{seed}": seed for seed in range(plan.seeds)}
        work = partial(_tested, method, full, winner, plan, device)
        for seed, cell in enumerate(record.cells_of(jobs, work)):
            result = f"{100 * cell['test']:.2f} %"
            record.say(f"{method.key:24} {plan.dataset:14} seed {seed}: {result}")
    record.finish()
    return record


def _tested(*arguments: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Trained on all rows and scored: the rows once held out say nothing any more."""
    for place, cell in scored(*arguments):
        yield place, {name: value for name, value in cell.items() if name != "held_out"}


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


def meetings(*records: Content) -> list[Meeting]:
    """The meeting of every record, each of a row and a data set."""
    return [_meeting(record) for record in records]


def _meeting(record: Content) -> Meeting:
    row = next(row for row in ROWS if row.key == record["plan"]["row"])
    ours, mlp = (_tests(record, key) for key in ("protopinv", "mlp"))
    ours_tests, mlp_tests = ([cell["test"] for cell in cells] for cells in (ours, mlp))
    ours_winner, mlp_winner = (
        100 * statistics.mean(winner_of(record, key)["held_out"]) for key in ("protopinv", "mlp")
    )
    return Meeting(
        row,
        record["plan"]["dataset"],
        percent(ours_tests),
        percent(mlp_tests),
        unpaired([100 * share for share in ours_tests], [100 * share for share in mlp_tests]),
        ours_winner - mlp_winner,
        ours[0]["shipped"],
        mlp[0]["shipped"],
        statistics.median(cell["seconds"] for cell in ours),
        statistics.median(cell["seconds"] for cell in mlp),
    )


def corrected_meetings(*records: Content) -> list[Meeting]:
    """Meetings with p-values corrected for the number of meetings."""
    every = meetings(*records)
    (corrected,) = holm([{str(number): meeting.ahead for number, meeting in enumerate(every)}])
    return [replace(m, ahead=corrected[str(number)]) for number, m in enumerate(every)]


def accuracy_table(*records: Content) -> list[str]:
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


def _tests(record: Content, contender: str) -> list[Mapping[str, Any]]:
    prefix = f"test/{record['plan']['row']}/{contender}/"
    return [cell for key, cell in record["cells"].items() if key.startswith(prefix)]


def winner_of(record: Content, contender: str) -> dict[str, Any]:
    """The parameters that won a search, and their held-out scores by seed."""
    prefix = f"search/{record['plan']['row']}/{contender}/"
    candidates: dict[str, list[Mapping[str, Any]]] = {}
    for key, cell in record["cells"].items():
        if key.startswith(prefix) and cell["held_out"] is not None:
            candidates.setdefault(key.rpartition("/")[0], []).append(cell)
    most = max(map(len, candidates.values()))
    finalists = [cells for cells in candidates.values() if len(cells) == most]
    scores = [[cell["held_out"] for cell in cells] for cells in finalists]
    best = max(range(len(scores)), key=lambda number: statistics.mean(scores[number]))
    parameters = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in finalists[best][0]["parameters"].items()
    }
    return {"parameters": parameters, "held_out": scores[best]}
