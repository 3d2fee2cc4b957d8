"""What ``fit(X, y)`` gives on images without any option but the effort, and how long it takes."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.choices import require_some
from benchmarks.paper.names import NAMES
from protopinv import ProtoPINVClassifier
from protopinv.bench.markdown import markdown
from protopinv.bench.plans import record_name, require_counts
from protopinv.bench.record import Cell, Record, Say
from protopinv.bench.scores import percent
from protopinv.bench.speed_tables import readable
from protopinv.bench.tasks import DATASETS, Rows, load_task
from protopinv.bench.timing import seconds
from protopinv.train.settle import EFFORTS

SIDE = 28


@dataclass(frozen=True)
class DefaultsPlan:
    """What to measure; the test set is scored once for each seed."""

    datasets: tuple[str, ...] = DATASETS
    efforts: tuple[str, ...] = ("quick", "balanced")
    seeds: int = 3
    quick: bool = False

    def __post_init__(self) -> None:
        require_counts(self, "seeds")
        require_some("datasets", self.datasets, DATASETS)
        require_some("efforts", self.efforts, tuple(EFFORTS))


def measure_defaults(
    plan: DefaultsPlan, *, device: str, folder: Path, fresh: bool = False, say: Say = lambda _: None
) -> Record:
    """Trained on all training rows, scored on the official test set."""
    content = {"task": "Official test sets; default settings, images as they are", **asdict(plan)}
    name = record_name("defaults", device, quick=plan.quick)
    record = Record(folder, name, content, device, fresh=fresh, say=say)
    for dataset in plan.datasets:
        task = load_task(dataset, quick=plan.quick)
        train, test = (_images(rows) for rows in (task.all_rows, task.test))
        for effort in plan.efforts:
            keys = {f"{dataset}/{effort}/seed{seed}": seed for seed in range(plan.seeds)}
            cells = record.cells_of(keys, partial(_fitted, train, test, effort, device))
            accuracy = percent([cell["accuracy"] for cell in cells])
            say(f"{dataset:14} {effort:9} {accuracy} %")
    record.finish()
    return record


def _images(rows: Rows) -> Rows:
    return Rows(rows.X.reshape(-1, SIDE, SIDE), rows.y)


def _fitted(
    train: Rows, test: Rows, effort: str, device: str, seeds: Sequence[int]
) -> Iterator[tuple[int, Cell]]:
    """The first fit of a shape compiles its kernels on a GPU, so there is one that does not count.

    It is told apart from the others.
    """
    first = ProtoPINVClassifier(effort=effort, device=device, random_state=0)
    waited = seconds(partial(first.fit, train.X, train.y), device)
    for place, seed in enumerate(seeds):
        model = ProtoPINVClassifier(effort=effort, device=device, random_state=seed)
        taken = seconds(partial(model.fit, train.X, train.y), device)
        accuracy = float(model.score(test.X, test.y))
        yield place, {"accuracy": accuracy, "fit_seconds": taken, "first_seconds": waited}


def defaults_table(record: Mapping[str, Any]) -> list[str]:
    """A line a data set and effort."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for key, cell in record["cells"].items():
        dataset, effort, _ = key.split("/")
        groups.setdefault((dataset, effort), []).append(cell)
    rows = [
        [
            NAMES[dataset],
            effort,
            str(percent([cell["accuracy"] for cell in cells])),
            readable(statistics.median(cell["fit_seconds"] for cell in cells)),
            readable(cells[0]["first_seconds"]),
        ]
        for (dataset, effort), cells in groups.items()
    ]
    return markdown(["data", "effort", "accuracy, %", "fit", "first fit of its kind"], rows)
