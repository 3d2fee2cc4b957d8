"""Table 1 of the paper, measured again, next to fairer baselines."""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.choices import require_some
from benchmarks.paper.methods import METHODS, Method
from benchmarks.paper.search import Scores, Trial, one_by_one, search, take_over
from benchmarks.paper.side import side_figures
from protopinv.bench.plans import record_name, require_counts
from protopinv.bench.record import Record, Say, read_record
from protopinv.bench.scores import Score, percent
from protopinv.bench.shape import Parameters
from protopinv.bench.steps import source_of
from protopinv.bench.tasks import DATASETS, Task, load_task
from protopinv.bench.timing import synchronize
from protopinv.bench.together import (
    Job,
    accuracy_of,
    numbers_of,
    settled,
    train_together,
)
from protopinv.errors import TrainingError
from protopinv.kernels.building import want_kernels

# A fit of less than so many seconds is timed so many times, after one that warms up.
SHORT = 3.0
TIMED = 3


@dataclass(frozen=True)
class PaperPlan:
    """What to measure; everything in it is written into the record.

    ``searched`` is a record whose trials are taken over where the same would be made again.
    """

    datasets: tuple[str, ...] = DATASETS
    methods: tuple[str, ...] = tuple(method.key for method in METHODS)
    seeds: int = 5
    configurations: int = 40
    quick: bool = False
    searched: Path | None = None

    def __post_init__(self) -> None:
        require_some("datasets", self.datasets, DATASETS)
        require_some("methods", self.methods, [method.key for method in METHODS])
        require_counts(self, "seeds", "configurations")


def measure_paper(
    plan: PaperPlan, *, device: str, folder: Path, fresh: bool = False, say: Say = lambda _: None
) -> Record:
    """Every cell of the table: searched on held-out rows, then trained and scored on the test."""
    want_kernels()
    earlier = None if plan.searched is None else read_record(plan.searched)
    name = record_name("paper", device, quick=plan.quick)
    content = {
        "task": "Table 1: official test sets; 6,000 training rows held out for every choice",
        "datasets": plan.datasets,
        "methods": plan.methods,
        "seeds": plan.seeds,
        "configurations": plan.configurations,
        "quick": plan.quick,
        "searched": None if plan.searched is None else plan.searched.name,
        "seconds": "fit, from arrays on the host to a model on the host; after one that warms up",
        "seeds_of_banks": "one population, which shares noise and batches; times are of one alone",
    }
    record = Record(folder, name, content, device, fresh=fresh, say=say)
    for method, dataset in _cells(plan):
        task = load_task(dataset, quick=plan.quick)
        if earlier is not None and method.draw is not None:
            prefix = f"search/{method.key}/{dataset}"
            take_over(record, earlier, prefix, method.draw, budget(method, plan))
        parameters = chosen(record, method, task, plan, device)
        seeds = range(method.seeds or plan.seeds)
        jobs = {f"test/{method.key}/{dataset}/seed{seed}": seed for seed in seeds}
        work = partial(scored, method, task, parameters, plan, device)
        for seed, cell in zip(seeds, record.cells_of(jobs, work), strict=True):
            result = f"{100 * cell['test']:.2f} % in {cell['seconds']:.2f} s"
            say(f"{method.key:22} {dataset:14} seed {seed}: {result}")
    for key, figure in side_figures(plan.datasets, device=device, quick=plan.quick).items():
        record.cell(key, figure)
    record.finish()
    return record


def _cells(plan: PaperPlan) -> Iterator[tuple[Method, str]]:
    for method in METHODS:
        if method.key in plan.methods:
            for dataset in plan.datasets:
                yield method, dataset


def chosen(record: Record, method: Method, task: Task, plan: Any, device: str) -> Parameters:
    """The winner of the method's search, or nothing where nothing is searched."""
    if method.draw is None:
        return {}

    def score(parameters: Parameters, seed: int) -> float:
        model = method.fit(task.train, parameters, seed=seed, device=device, quick=plan.quick)
        return float(model.score(task.held_out.X, task.held_out.y))

    scores = _together(method, task, plan, device) if method.joins else one_by_one(score)
    prefix = f"search/{method.key}/{task.name}"
    return search(record, prefix, method.draw, scores, budget(method, plan))


def budget(method: Method, plan: Any) -> int:
    """Configurations that are drawn for a method."""
    return max(1, round(float(plan.configurations) * method.share))


def _together(method: Method, task: Task, plan: Any, device: str) -> Scores:
    """Trials of one shape as one population."""

    def scores(trials: Sequence[Trial]) -> Iterator[tuple[int, float | TrainingError]]:
        source = source_of(task.train)
        jobs = [
            Job(settled(method.parameters(drawn, quick=plan.quick), source, device), seed)
            for drawn, seed in trials
        ]
        for place, model in train_together(source, jobs, device):
            if isinstance(model, TrainingError):
                yield place, model
            else:
                yield place, accuracy_of(model, task.held_out.X, task.held_out.y, device)

    return scores


def scored(
    method: Method,
    task: Task,
    parameters: Parameters,
    plan: Any,
    device: str,
    seeds: Sequence[int],
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Train with every seed and score the test set, once for each.

    Several seeds of a bank are one population; ``seconds`` are then those of a fit by itself, the
    median of a few where that is short.
    """
    if not method.joins or len(seeds) == 1:
        for place, seed in enumerate(seeds):
            yield place, _alone(method, task, parameters, seed, plan, device)
        return
    alone = _alone(method, task, parameters, seeds[0], plan, device)
    if device == "cuda" or alone["seconds"] < SHORT:  # the first also compiles, and warms up
        again = [_alone(method, task, parameters, seed, plan, device) for seed in seeds[:TIMED]]
        times = [fit["seconds"] for fit in again]
        alone |= {"seconds": statistics.median(times), "all_seconds": times}
    source = source_of(task.train)
    config = settled(method.parameters(parameters, quick=plan.quick), source, device)
    for place, model in train_together(source, [Job(config, seed) for seed in seeds], device):
        if isinstance(model, TrainingError):
            raise model
        trained, shipped = numbers_of(model)
        yield (
            place,
            {
                **alone,
                "test": accuracy_of(model, task.test.X, task.test.y, device),
                "held_out": accuracy_of(model, task.held_out.X, task.held_out.y, device),
                "trained": trained,
                "shipped": shipped,
                "together": len(seeds),
            },
        )


def _alone(
    method: Method, task: Task, parameters: Parameters, seed: int, plan: Any, device: str
) -> dict[str, Any]:
    """A fit through the door, timed."""
    synchronize(device)
    started = time.perf_counter()
    model = method.fit(task.train, parameters, seed=seed, device=device, quick=plan.quick)
    synchronize(device)
    seconds = time.perf_counter() - started
    trained, shipped = _numbers_of_estimator(model)
    return {
        "parameters": method.parameters(parameters, quick=plan.quick),
        "test": float(model.score(task.test.X, task.test.y)),
        "held_out": float(model.score(task.held_out.X, task.held_out.y)),
        "seconds": seconds,
        "loop_seconds": model.history_.seconds if hasattr(model, "history_") else None,
        "trained": trained,
        "shipped": shipped,
    }


def _numbers_of_estimator(model: Any) -> tuple[int, int]:
    """Numbers trained and numbers shipped; for scikit-learn's models they are the same."""
    if hasattr(model, "n_trained_"):
        return model.n_trained_, model.n_shipped_
    last = model[-1]
    layers = zip(last.coefs_, last.intercepts_, strict=True) if hasattr(last, "coefs_") else ()
    matrices = [array for pair in layers for array in pair] or [last.coef_, last.intercept_]
    total = sum(array.size for array in matrices)
    return total, total


@dataclass(frozen=True)
class TableRow:
    """A method with its scores; seconds are the median over seeds and data sets."""

    method: Method
    trained: int
    shipped: int
    seconds: float
    scores: Mapping[str, Score]


def test_cells(record: Mapping[str, Any], method: str, dataset: str) -> list[dict[str, Any]]:
    """The cells of a method's fits that were tested, a seed each."""
    prefix = f"test/{method}/{dataset}/"
    return [cell for key, cell in record["cells"].items() if key.startswith(prefix)]


def table_rows(record: Mapping[str, Any]) -> list[TableRow]:
    """What a record says, a row a method."""
    rows = []
    for method in METHODS:
        cells = {name: test_cells(record, method.key, name) for name in record["plan"]["datasets"]}
        if not any(cells.values()):
            continue
        every = [cell for found in cells.values() for cell in found]
        rows.append(
            TableRow(
                method,
                max(cell["trained"] for cell in every),  # a learned ridge is one more
                every[0]["shipped"],
                statistics.median(cell["seconds"] for cell in every),
                {
                    dataset: percent([cell["test"] for cell in found])
                    for dataset, found in cells.items()
                    if found
                },
            )
        )
    return rows
