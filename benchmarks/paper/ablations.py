"""One knob at a time around the recipe; what each run says about accuracy, conditioning and gap."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.choices import require_some
from benchmarks.paper.methods import draw_ours, raise_if_interrupted
from benchmarks.paper.recipes import RECIPES
from benchmarks.paper.search import search
from benchmarks.paper.sweeps import SWEEPS, Sweep, fixed_part
from protopinv.bench.plans import record_name, require_counts
from protopinv.bench.record import Cell, Record, Say
from protopinv.bench.shape import SHAPE, Parameters
from protopinv.bench.steps import labelled_rows
from protopinv.bench.tasks import DATASETS, Task, load_task
from protopinv.diagnose import (
    Diagnosis,
    LayerDiagnosis,
    Outputs,
    Trace,
    diagnose,
    measure_allocation,
    measure_generalisation,
)
from protopinv.network import Network
from protopinv.train.bank_step import architecture_of
from protopinv.train.config import TrainConfig
from protopinv.train.loop import EpochReport
from protopinv.train.model import Model, train_classifier

CURVE_MARKS = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 250)
EARLY_EPOCHS = 50
TRACE_EVERY = 10
PIECE = 10_000
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
        sweep = SWEEPS[name]
        for label, changes in sweep.settings(recipe).items():
            parameters = {**recipe, **changes}
            scores = []
            for seed in range(plan.seeds):
                key = cell_key(recipe, changes, seed)
                # Other sweeps share the recipe itself, so it keeps all that any of them wants.
                detail = EVERYTHING if key == cell_key(recipe, {}, seed) else sweep
                work = partial(_measure, task, parameters, seed, detail, plan, device)
                scores.append(record.cell(key, work)["held_out"])
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

    def score(parameters: Parameters, seed: int) -> float:
        model = _trained(task, _config(parameters, plan), seed, device)
        return float(model.history.validation_score[-1])

    winner = search(record, f"search/{part} fixed", draw, score, plan.configurations)
    for seed in range(plan.seeds):
        work = partial(_measure, task, winner, seed, PLAIN, plan, device)
        cell = record.cell(f"searched/{part} fixed/seed{seed}", work)
        say(f"searched     {part + ' fixed':34} {100 * cell['held_out']:.2f} %")


def _config(parameters: Parameters, plan: AblationPlan) -> TrainConfig:
    return TrainConfig(**{**SHAPE, **parameters, **(QUICK if plan.quick else {})})


def _trained(
    task: Task,
    config: TrainConfig,
    seed: int,
    device: str,
    observer: Callable[[EpochReport], None] | None = None,
) -> Model:
    rows, held_out = labelled_rows(task)
    model = train_classifier(
        rows,
        config,
        seed=seed,
        device=torch.device(device),
        clock=time.perf_counter,
        held_out=held_out,
        observer=observer,
    )
    raise_if_interrupted(model.history)
    return model


def _measure(
    task: Task,
    parameters: Parameters,
    seed: int,
    detail: Sweep,
    plan: AblationPlan,
    device: str,
) -> dict[str, Any]:
    """Train once, and write down all that any question here asks for."""
    config = _config(parameters, plan)
    first: list[Tensor] = []
    trace = Trace(architecture_of(config), every=TRACE_EVERY)

    def observe(report: EpochReport) -> None:
        if report.epoch == 0:  # one small step after the start
            first.append(report.state.outputs.detach().cpu().clone())
        if detail.keeps_trace:
            trace(report)

    model = _trained(task, config, seed, device, observe)
    train, held_out, test = (
        _outputs(model.network, rows.X, rows.y, device)
        for rows in (task.train, task.held_out, task.test)
    )
    diagnosis = diagnose(model.bank, architecture_of(config))
    history = model.history
    cell = {
        "held_out": 1 - held_out.error,
        "train": 1 - train.error,
        "test": 1 - test.error,
        "trained": model.bank.n_trained,
        "ridge": model.bank.ridge.tolist(),
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
            measure_allocation(first[0], model.bank.outputs, _confusion(held_out))
        ),
    }
    if detail.keeps_curve:
        cell["every_epoch"] = [round(score, 4) for score in history.validation_score]
    if trace.points:
        cell["trace"] = [
            {"epoch": p.epoch + 1, "counts": p.counts, "layers": _summaries(p.diagnosis)}
            for p in trace.points
        ]
    return cell


def _outputs(network: Network, X: Any, y: Any, device: str) -> Outputs:
    moved = network.to(device)
    pieces = (np.array(X[start : start + PIECE]) for start in range(0, len(X), PIECE))
    values = torch.cat([moved(torch.from_numpy(X).to(device).double()) for X in pieces]).cpu()
    return Outputs(values, torch.from_numpy(y.astype(np.int64)))


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
