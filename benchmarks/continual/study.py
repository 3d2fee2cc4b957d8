"""Classes, rows, domains and concepts that come one after another, each in a cell of a record."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.continual import defaults
from benchmarks.continual.drift import OURS as STREAM_OURS
from benchmarks.continual.drift import Cells, drift, drift_river, river
from benchmarks.continual.learners import NAMES, OURS, Learner, PartialFit, learner, ours
from benchmarks.continual.tried import VARIANTS, variant
from benchmarks.continual.worlds import DEGREES, TASKS, Sequel, by_classes, by_turns, class_order
from benchmarks.plans import require_counts, require_some
from benchmarks.record import Record, Records
from benchmarks.tasks import DATASETS, load_task
from benchmarks.timing import seconds
from protopinv.errors import ConfigError
from protopinv.estimators import ProtoPINVClassifier

RIVER = "drift-river"
PARTS = ("classes", "defaults", "rows", "domains", "drift", RIVER, "tried")
KINDS = ("vector", "stem")
# Rows that are added to a fitted model, by its own; small calls in a row.
ADDED, CALLS = 0.1, 50
# Sizes of a fit of all rows: the first of many small calls cannot know how many rows will come.
SIZES: dict[str, Any] = {"n_prototypes": 120, "hidden_sizes": (192, 192)}
# A smoke run has fewer small calls.
QUICK_CALLS, QUICK_EPOCHS = 3, 2


@dataclass(frozen=True)
class ContinualPlan:
    """What to measure."""

    part: str
    datasets: tuple[str, ...] = DATASETS
    seeds: int = 5
    quick: bool = False

    def __post_init__(self) -> None:
        require_counts(self, "seeds")
        choices = defaults.CHOICES if self.part == "defaults" else DATASETS
        require_some("datasets", self.datasets, choices)
        if self.part not in PARTS:
            raise ConfigError(
                f"A part must be one of {', '.join(PARTS)}. Got {self.part!r}. Choose one of these."
            )
        if self.part == RIVER:
            river("datasets")  # a missing package is named before anything is measured

    @property
    def options(self) -> dict[str, Any]:
        """Parameters of a smoke run."""
        return {"max_epochs": QUICK_EPOCHS} if self.quick else {}


def measure_continual(
    plan: ContinualPlan, records: Records, *, device: str, wheels: Path | None = None
) -> Record:
    """All cells of one part; of one data set in a record of its own, which pages join."""
    streams = "drift" in plan.part
    recipe = {"ours": OURS, "orders": [class_order(s) for s in range(plan.seeds)]}
    content = {**asdict(plan), **({"ours": STREAM_OURS} if streams else recipe)}
    alone = plan.datasets if len(plan.datasets) == 1 and not streams else ()
    record = records.open(f"continual-{plan.part}", *alone, plan=content, device=device)
    measure: dict[str, Callable[[ContinualPlan, str], Cells]] = {
        "classes": _classes,
        "defaults": partial(_defaults, wheels),
        "rows": _rows,
        "domains": _domains,
        "drift": drift,
        RIVER: drift_river,
        "tried": _tried,
    }
    for key, work in measure[plan.part](plan, device).items():
        cell = record.cell(key, work)
        shown = {k: v for k, v in cell.items() if not isinstance(v, list)}
        record.say(f"{key}: {shown}")
    record.finish()
    return record


def _classes(plan: ContinualPlan, device: str) -> Cells:
    """Two classes at a time, from one head, for every contestant."""
    return {
        f"{dataset}/{kind}/{name}/{seed}": partial(
            _one_by_one, plan, dataset, kind, name, seed, device
        )
        for seed in range(plan.seeds)
        for dataset in plan.datasets
        for kind in KINDS
        for name in NAMES
    }


def _one_by_one(
    plan: ContinualPlan, dataset: str, kind: str, name: str, seed: int, device: str
) -> dict[str, Any]:
    sequel = by_classes(dataset, seed, held_out=False, quick=plan.quick)
    return _learned(learner(name, seed, device, stem=kind == "stem", stages=TASKS), sequel, plan)


def _defaults(wheels: Path | None, plan: ContinualPlan, device: str) -> Cells:
    """Two classes at a time, by a model whose user sets nothing."""

    def one(make: Callable[[int], Sequel], who: str, seed: int) -> dict[str, Any]:
        sequel, build = make(seed), defaults.builder(device, seed, **plan.options)
        return _learned(defaults.learner(who, build, len(sequel.stages)), sequel, plan)

    return {
        f"{name}/{who}/{seed}": partial(one, make, who, seed)
        for seed in range(plan.seeds)
        for name, make in defaults.sequels(plan.datasets, wheels, quick=plan.quick).items()
        for who in defaults.WHO
    }


def _learned(who: Learner, sequel: Sequel, plan: ContinualPlan) -> dict[str, Any]:
    """Accuracy on test rows of all stages so far, after every stage; numbers stored; seconds."""
    if isinstance(who, PartialFit):
        who.model.set_params(**plan.options)
    accuracies, started = [], time.perf_counter()
    for stage, seen in zip(sequel.stages, sequel.seen, strict=True):
        who.learn(stage.X, stage.y)
        accuracies.append(float((who.predict(seen.X) == seen.y).mean()))
    return {
        "accuracy": accuracies[-1],
        "after": accuracies,
        "stored": who.n_stored,
        "seconds": time.perf_counter() - started,
    }


def _rows(plan: ContinualPlan, device: str) -> Cells:
    """A tenth more rows, and many small calls, against a fit of everything."""
    works: dict[str, Callable[..., dict[str, Any]]] = {
        "a tenth more": partial(_a_tenth_more, partial(ours, stem=False)),
        "a tenth more by default": partial(_a_tenth_more, _by_default),
        "small calls": _small_calls,
    }
    return {
        f"{dataset}/{name}/{seed}": partial(work, plan, dataset, seed, device)
        for seed in range(plan.seeds)
        for dataset in plan.datasets
        for name, work in works.items()
    }


def _by_default(seed: int, device: str, **options: Any) -> ProtoPINVClassifier:
    """The model of a user who sets nothing."""
    return ProtoPINVClassifier(**options, device=device, random_state=seed)


def _a_tenth_more(
    build: Callable[..., ProtoPINVClassifier],
    plan: ContinualPlan,
    dataset: str,
    seed: int,
    device: str,
) -> dict[str, Any]:
    task = load_task(dataset, quick=plan.quick)
    X, y, order = task.all_rows.X, task.all_rows.y, _shuffled(len(task.all_rows.y), seed)
    first = order[: round(len(y) / (1 + ADDED))]
    more = order[len(first) :]
    model = build(seed, device, **plan.options)
    few = first[:1_000]
    model.fit(X[few], y[few]).partial_fit(X[few], y[few])  # warms up
    before = model.fit(X[first], y[first]).score(task.test.X, task.test.y)
    update = seconds(partial(model.partial_fit, X[more], y[more]), device)
    updated = model.score(task.test.X, task.test.y)
    full = build(seed, device, **plan.options)
    refit = seconds(partial(full.fit, X, y), device)
    return {
        "before": before,
        "updated": updated,
        "refit": full.score(task.test.X, task.test.y),
        "update_seconds": update,
        "refit_seconds": refit,
        "cost": update / refit,
    }


def _small_calls(plan: ContinualPlan, dataset: str, seed: int, device: str) -> dict[str, Any]:
    task = load_task(dataset, quick=plan.quick)
    X, y, order = task.all_rows.X, task.all_rows.y, _shuffled(len(task.all_rows.y), seed)
    model, after = ours(seed, device, stem=False, **SIZES, **plan.options), []
    parts = np.array_split(order, CALLS)[: QUICK_CALLS if plan.quick else None]
    started = time.perf_counter()
    for part in parts:
        model.partial_fit(X[part], y[part])
        after.append(float(model.score(task.test.X, task.test.y)))
    return {"accuracy": after[-1], "after": after, "seconds": time.perf_counter() - started}


def _shuffled(n: int, seed: int) -> Any:
    return np.random.default_rng(seed).permutation(n)


def _domains(plan: ContinualPlan, device: str) -> Cells:
    """Images that are turned further and further."""

    def one(dataset: str, name: str, seed: int) -> dict[str, Any]:
        sequel = by_turns(dataset, seed, quick=plan.quick)
        return _learned(learner(name, seed, device, stem=False, stages=len(DEGREES)), sequel, plan)

    return {
        f"{dataset}/{name}/{seed}": partial(one, dataset, name, seed)
        for seed in range(plan.seeds)
        for dataset in plan.datasets
        for name in ("ours", "fine-tuning", "joint")
    }


def _tried(plan: ContinualPlan, device: str) -> Cells:
    """Other ways to remember, two classes at a time, on rows held out for choices."""

    def one(dataset: str, name: str, seed: int) -> dict[str, Any]:
        sequel = by_classes(dataset, seed, held_out=True, quick=plan.quick)
        with variant(name) as build:
            return _learned(build(seed, device), sequel, plan)

    return {
        f"{dataset}/{name}/{seed}": partial(one, dataset, name, seed)
        for seed in range(plan.seeds)
        for dataset in plan.datasets
        for name in VARIANTS
    }
