"""What ``fit(X, y)`` gives on images without any option but the effort, and how long it takes."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from benchmarks.plans import require_counts, require_some
from benchmarks.record import Cell, Content, Record, Records
from benchmarks.tasks import DATASETS, NAMES, Rows, as_images, load_task
from benchmarks.text import markdown, percent, readable
from benchmarks.timing import seconds
from protopinv import ProtoPINVClassifier
from protopinv.train.resolve import EFFORTS


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


def measure_defaults(plan: DefaultsPlan, records: Records, *, device: str) -> Record:
    """Every effort, trained on all training rows and scored on the official test sets."""
    content = {"task": "Official test sets; default settings, images as they are", **asdict(plan)}
    record = records.open("defaults", plan=content, device=device)
    for dataset in plan.datasets:
        task = load_task(dataset, quick=plan.quick)
        train, test = map(as_images, (task.all_rows, task.test))
        for effort in plan.efforts:
            keys = {f"{dataset}/{effort}/seed{seed}": seed for seed in range(plan.seeds)}
            cells = record.cells_of(keys, partial(_fitted, train, test, effort, device))
            accuracy = percent([cell["accuracy"] for cell in cells])
            record.say(f"{dataset:14} {effort:9} {accuracy} %")
    record.finish()
    return record


def _fitted(
    train: Rows, test: Rows, effort: str, device: str, seeds: Sequence[int]
) -> Iterator[tuple[int, Cell]]:
    """A cell for each seed; the first fit of a shape on a GPU, which compiles, is timed apart."""
    build = partial(ProtoPINVClassifier, effort=effort, device=device)
    first = seconds(partial(build(random_state=0).fit, train.X, train.y), device)
    for place, seed in enumerate(seeds):
        model = build(random_state=seed)
        each = seconds(partial(model.fit, train.X, train.y), device)
        accuracy = float(model.score(test.X, test.y))
        yield place, {"accuracy": accuracy, "fit_seconds": each, "first_seconds": first}


def defaults_table(record: Content) -> list[str]:
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
