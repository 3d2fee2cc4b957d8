"""Table 1 of the paper, measured again, next to fairer baselines."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sklearn.preprocessing import StandardScaler

from benchmarks.paper.methods import METHODS, Method
from benchmarks.paper.search import Scores, Trial, one_by_one, search, take_over
from benchmarks.paper.side import side_figures
from benchmarks.plans import require_counts, require_some
from benchmarks.recipes import Parameters
from benchmarks.record import Content, Record, Records, read_record
from benchmarks.tasks import DATASETS, NAMES, Task, arrays_of, load_task
from benchmarks.text import Score, markdown, percent
from benchmarks.timing import timed
from benchmarks.training import Job, accuracy_of, config_of, sizes_of, train_together
from protopinv.errors import TrainingError
from protopinv.kernels import want_kernels

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


def measure_paper(plan: PaperPlan, records: Records, *, device: str) -> Record:
    """Every cell of the table: searched on held-out rows, then trained and scored on the test."""
    want_kernels()
    earlier = None if plan.searched is None else read_record(plan.searched)
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
    record = records.open("paper", plan=content, device=device)
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
            record.say(f"{method.key:22} {dataset:14} seed {seed}: {result}")
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
        data = arrays_of(task.train)
        jobs = [
            Job(config_of(method.parameters(drawn, quick=plan.quick), data, device), seed)
            for drawn, seed in trials
        ]
        for place, model in train_together(data, jobs, device):
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
    data = arrays_of(task.train)
    config = config_of(method.parameters(parameters, quick=plan.quick), data, device)
    for place, model in train_together(data, [Job(config, seed) for seed in seeds], device):
        if isinstance(model, TrainingError):
            raise model
        trained, shipped = sizes_of(model)
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
    """A fit by the estimator, timed."""
    fit = partial(method.fit, task.train, parameters, seed=seed, device=device, quick=plan.quick)
    seconds, model = timed(fit, device)
    trained, shipped = estimator_sizes(model)
    return {
        "parameters": method.parameters(parameters, quick=plan.quick),
        "test": float(model.score(task.test.X, task.test.y)),
        "held_out": float(model.score(task.held_out.X, task.held_out.y)),
        "seconds": seconds,
        "loop_seconds": model.history_.seconds if hasattr(model, "history_") else None,
        "trained": trained,
        "shipped": shipped,
    }


def estimator_sizes(model: Any) -> tuple[int, int]:
    """Trainable parameters, and parameters that must be stored to predict.

    Of a pipeline of scikit-learn those of its last step; a scaler before it stores two per column.
    """
    if hasattr(model, "n_trained_"):
        return model.n_trained_, model.n_shipped_
    first, *_, last = getattr(model, "regressor_", model)
    if hasattr(last, "coefs_"):
        arrays = [*last.coefs_, *last.intercepts_]
    else:
        arrays = [last.coef_, last.intercept_]
    trained = sum(int(array.size) for array in arrays)
    return trained, trained + 2 * first.n_features_in_ * isinstance(first, StandardScaler)


@dataclass(frozen=True)
class TableRow:
    """A method with its scores; seconds are the median over seeds and data sets."""

    method: Method
    trained: int
    shipped: int
    seconds: float
    scores: Mapping[str, Score]


def test_cells(record: Content, method: str, dataset: str) -> list[dict[str, Any]]:
    """The cells of a method's fits that were tested, a seed each."""
    prefix = f"test/{method}/{dataset}/"
    return [cell for key, cell in record["cells"].items() if key.startswith(prefix)]


def table_rows(record: Content) -> list[TableRow]:
    """The rows of a record, one for each of its methods."""
    datasets = record["plan"]["datasets"]
    return [
        _row(method, cells)
        for method in METHODS
        if any((cells := {d: test_cells(record, method.key, d) for d in datasets}).values())
    ]


def _row(method: Method, cells: Mapping[str, list[dict[str, Any]]]) -> TableRow:
    every = [cell for of_dataset in cells.values() for cell in of_dataset]
    scores = {
        name: percent([cell["test"] for cell in some]) for name, some in cells.items() if some
    }
    return TableRow(
        method,
        max(cell["trained"] for cell in every),  # a learned ridge is one more
        every[0]["shipped"],
        statistics.median(cell["seconds"] for cell in every),
        scores,
    )


def paper_table(*records: Content) -> list[str]:
    """Table 1 from one or more records; each says where it was measured."""
    datasets = list(dict.fromkeys(name for r in records for name in r["plan"]["datasets"]))
    header = ["method", "trained", "shipped", "fit", "on", *(f"{NAMES[d]} %" for d in datasets)]
    rows = [_table_row(row, record, datasets) for record in records for row in table_rows(record)]
    return markdown(header, rows)


def _table_row(row: TableRow, record: Content, datasets: Sequence[str]) -> list[str]:
    quick, method = record["plan"]["quick"], row.method
    changed = ", ".join(f"{name}={value}" for name, value in method.quick.items())
    title = f"{method.title} [quick: {changed}]" if quick and changed else method.title
    paper = {} if quick else method.paper
    return [
        title,
        f"{row.trained:,}",
        f"{row.shipped:,}",
        f"{row.seconds:.2f} s",
        record["environment"]["device"],
        *(_score(row.scores.get(dataset), paper.get(dataset)) for dataset in datasets),
    ]


def _score(score: Score | None, paper: float | None) -> str:
    if score is None:
        return ""
    return f"{score} (n = {score.n})" + (f"; paper {paper}" if paper is not None else "")
