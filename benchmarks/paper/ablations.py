"""One knob at a time around the recipe; what each run says about accuracy, conditioning and gap."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.choices import require_some
from benchmarks.paper.methods import draw_ours
from benchmarks.paper.recipes import RECIPES
from benchmarks.paper.search import Trial, search
from benchmarks.paper.sweeps import SWEEPS, Sweep, fixed_part
from protopinv.bench.plans import record_name, require_counts
from protopinv.bench.record import Cell, Record, Say
from protopinv.bench.shape import SHAPE, Parameters
from protopinv.bench.steps import labelled_rows
from protopinv.bench.tasks import DATASETS, Task, load_task
from protopinv.bench.together import Job, outputs_of, train_together
from protopinv.diagnose import (
    Diagnosis,
    LayerDiagnosis,
    Outputs,
    Trace,
    diagnose,
    measure_allocation,
    measure_generalisation,
)
from protopinv.errors import TrainingError
from protopinv.train.bank_step import architecture_of
from protopinv.train.config import TrainConfig
from protopinv.train.loop import EpochReport
from protopinv.train.model import Model

CURVE_MARKS = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 250)
EARLY_EPOCHS = 50
TRACE_EVERY = 10
QUICK: Parameters = {"max_epochs": 15, "warmup_epochs": 2}
PLAIN = Sweep("A run by itself", lambda _: {})
EVERYTHING = Sweep("The recipe", lambda _: {}, keeps_curve=True, keeps_trace=True)
# The paper's central claim gets a search of its own for each variant, all of the same budget.
SEARCH = "search"
SEARCHED_PARTS = ("nothing", "hidden", "inputs", "outputs")


@dataclass(frozen=True)
class AblationPlan:
    """What to measure; everything in it is written into the record."""

    dataset: str
    sweeps: tuple[str, ...] = (*SWEEPS, SEARCH)
    seeds: int = 3
    configurations: int = 15
    quick: bool = False

    def __post_init__(self) -> None:
        require_some("dataset", (self.dataset,), DATASETS)
        require_some("sweeps", self.sweeps, (*SWEEPS, SEARCH))
        require_counts(self, "seeds", "configurations")


def measure_ablations(
    plan: AblationPlan, *, device: str, folder: Path, fresh: bool = False, say: Say = lambda _: None
) -> Record:
    """Every setting of every sweep with every seed, then the searches over what is trained."""
    recipe = RECIPES[plan.dataset]
    content = {
        "task": "One knob at a time around the recipe; held-out rows for accuracy, test for gaps",
        **asdict(plan),
        "recipe": {**SHAPE, **recipe},
    }
    name = record_name("ablations", plan.dataset, device, quick=plan.quick)
    record = Record(folder, name, content, device, fresh=fresh, say=say)
    task = load_task(plan.dataset, quick=plan.quick)
    for name in (name for name in plan.sweeps if name != SEARCH):
        sweep, runs = SWEEPS[name], {}
        settings = sweep.settings(recipe)
        for changes in settings.values():
            for seed in range(plan.seeds):
                key = cell_key(recipe, changes, seed)
                # Other sweeps share the recipe itself, so it keeps all that any of them wants.
                detail = EVERYTHING if key == cell_key(recipe, {}, seed) else sweep
                runs[key] = Run(_config({**recipe, **changes}, plan), seed, detail)
        record.cells_of(runs, partial(_measure, task, device))
        for label, changes in settings.items():
            keys = [cell_key(recipe, changes, seed) for seed in range(plan.seeds)]
            scores = [record.cells[key]["held_out"] for key in keys]
            say(f"{name:12} {label:34} {100 * sum(scores) / len(scores):.2f} %")
    for part in SEARCHED_PARTS if SEARCH in plan.sweeps else ():
        _search_part(record, task, part, plan, device, say)
    record.finish()
    return record


def cell_key(recipe: Parameters, changes: Parameters, seed: int) -> str:
    """The changes that are changes, so that sweeps share what they have in common."""
    defaults = {**asdict(TrainConfig()), **SHAPE, **recipe}
    real = {name: value for name, value in sorted(changes.items()) if defaults[name] != value}
    return f"run/{json.dumps(real)}/seed{seed}"


def _search_part(
    record: Record, task: Task, part: str, plan: AblationPlan, device: str, say: Say
) -> None:
    def draw(random: Random) -> Parameters:
        drawn = draw_ours(random)
        return drawn if part == "nothing" else {**drawn, **fixed_part(drawn, part)}

    def scores(trials: Sequence[Trial]) -> Iterator[tuple[int, float | TrainingError]]:
        jobs = [Job(_config(parameters, plan), seed) for parameters, seed in trials]
        rows, held_out = labelled_rows(task)
        for place, model in train_together(rows, jobs, device, held_out):
            if isinstance(model, TrainingError):
                yield place, model
            else:
                yield place, float(model.history.validation_score[-1])

    winner = search(record, f"search/{part} fixed", draw, scores, plan.configurations)
    runs = {
        f"searched/{part} fixed/seed{seed}": Run(_config(winner, plan), seed, PLAIN)
        for seed in range(plan.seeds)
    }
    for cell in record.cells_of(runs, partial(_measure, task, device)):
        say(f"searched     {part + ' fixed':34} {100 * cell['held_out']:.2f} %")


def _config(parameters: Parameters, plan: AblationPlan) -> TrainConfig:
    return TrainConfig(**{**SHAPE, **parameters, **(QUICK if plan.quick else {})})


@dataclass(frozen=True)
class Run:
    """One training of a sweep."""

    config: TrainConfig
    seed: int
    detail: Sweep


@dataclass
class Watched:
    """What a run shows while it trains: its first outputs, and where it is asked for a trace."""

    run: Run
    trace: Trace
    first: list[Tensor] = field(default_factory=list)

    def __call__(self, report: EpochReport) -> None:
        """One small step after the start, and every few epochs."""
        if report.epoch == 0:
            self.first.append(report.state.member(0).outputs.detach().cpu().clone())
        if self.run.detail.keeps_trace:
            self.trace(report)


def _measure(
    task: Task, device: str, runs: Sequence[Run]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Train each, those of one shape at once, and write down all that any question asks for."""
    watched = [Watched(run, Trace(architecture_of(run.config), every=TRACE_EVERY)) for run in runs]
    jobs = [Job(each.run.config, each.run.seed, each) for each in watched]
    rows, held_out = labelled_rows(task)
    for place, model in train_together(rows, jobs, device, held_out):
        if isinstance(model, TrainingError):
            raise model
        yield place, _told(task, model, watched[place], device)


def _told(task: Task, model: Model, watched: Watched, device: str) -> dict[str, Any]:
    config, trace = watched.run.config, watched.trace
    bank = model.bank.member(0)
    train, held_out, test = (
        Outputs(outputs_of(model, rows.X, device), torch.from_numpy(rows.y.astype(np.int64)))
        for rows in (task.train, task.held_out, task.test)
    )
    diagnosis = diagnose(bank, architecture_of(config))
    history = model.history
    cell = {
        "held_out": 1 - held_out.error,
        "train": 1 - train.error,
        "test": 1 - test.error,
        "trained": bank.n_trained,
        "ridge": bank.ridge.tolist(),
        "best_epoch": None if history.best_epoch is None else history.best_epoch + 1,
        "best_held_out": max(history.validation_score),
        "early_roughness": _roughness(history.validation_loss[:EARLY_EPOCHS]),
        "curve": {
            str(mark): round(history.validation_score[mark - 1], 5)
            for mark in CURVE_MARKS
            if mark <= history.n_epochs
        },
        "skipped_steps": history.skipped_steps,
        "rate_cuts": history.rate_cuts,
        "layers": [_summary(layer) for layer in diagnosis.layers],
        "generalisation": asdict(measure_generalisation(model.network, diagnosis, train, test)),
        "allocation": asdict(
            measure_allocation(watched.first[0], bank.outputs, _confusion(held_out))
        ),
    }
    if watched.run.detail.keeps_curve:
        cell["every_epoch"] = [round(score, 4) for score in history.validation_score]
    if trace.points:
        cell["trace"] = [
            {"epoch": p.epoch + 1, "counts": p.counts, "layers": _summaries(p.diagnosis)}
            for p in trace.points
        ]
    return cell


def _roughness(losses: list[float]) -> float:
    """The mean absolute second difference: zero for a straight line."""
    return float(np.abs(np.diff(losses, 2)).mean()) if len(losses) > 2 else 0.0


def _summaries(diagnosis: Diagnosis) -> list[dict[str, float]]:
    return [_summary(layer) for layer in diagnosis.layers]


def _summary(layer: LayerDiagnosis) -> dict[str, float]:
    numbers = asdict(layer)
    del numbers["singular_values"]
    numbers |= numbers.pop("sensitivity")
    return {name: float(f"{value:.5g}") for name, value in numbers.items()}


def _confusion(outputs: Outputs) -> list[list[int]]:
    k = outputs.values.shape[1]
    pairs = outputs.labels * k + outputs.values.argmax(dim=1)
    counts: list[list[int]] = pairs.bincount(minlength=k * k).view(k, k).tolist()
    return counts


def runs_of(record: Mapping[str, Any], sweep: str) -> dict[str, list[Cell]]:
    """For each setting of a sweep its runs, a cell a seed."""
    recipe = {name: _tupled(value) for name, value in record["plan"]["recipe"].items()}
    return {
        label: [
            record["cells"][cell_key(recipe, changes, seed)]
            for seed in range(record["plan"]["seeds"])
        ]
        for label, changes in SWEEPS[sweep].settings(recipe).items()
    }


def searched_runs(record: Mapping[str, Any]) -> dict[str, list[Cell]]:
    """For each searched variant its runs."""
    seeds = range(record["plan"]["seeds"])
    return {
        part: [record["cells"][f"searched/{part} fixed/seed{seed}"] for seed in seeds]
        for part in SEARCHED_PARTS
    }


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
