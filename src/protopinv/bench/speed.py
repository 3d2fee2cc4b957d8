"""How fast, against whom, how far from what the machine can do, and with what accuracy."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from protopinv.bench.plans import record_name, require_counts
from protopinv.bench.record import Record, Say
from protopinv.bench.scaling import measure_scaling
from protopinv.bench.scores import Score, percent
from protopinv.bench.speed_figures import PAPER, Figures
from protopinv.bench.tasks import load_task
from protopinv.bench.timing import Machine, measure_machine
from protopinv.bench.user_figures import UserFigures, hurry_of
from protopinv.kernels.building import want_kernels


@dataclass(frozen=True)
class SpeedPlan:
    """What to measure; everything in it is written into the record."""

    repeats: int = 7
    seeds: int = 5
    scaling: bool = True
    quick: bool = False

    def __post_init__(self) -> None:
        require_counts(self, "repeats", "seeds")


def measure_speed(
    plan: SpeedPlan, *, device: str, folder: Path, fresh: bool = False, say: Say = lambda _: None
) -> Record:
    """Every figure of the device, one cell each, with kernels that were built before."""
    want_kernels()
    task = "MNIST; times are medians, in turns with the peer in the same process"
    content = {"task": task, "shape": PAPER, "hurry": hurry_of(device), **asdict(plan)}
    name = record_name("speed", device, quick=plan.quick)
    record = Record(folder, name, content, device, fresh=fresh, say=say)
    machine = Machine(
        **record.cell(
            "machine", lambda: asdict(measure_machine(device, repeats=3 if plan.quick else 15))
        )
    )
    rows = load_task("mnist", quick=plan.quick)
    repeats, seeds, quick = plan.repeats, plan.seeds, plan.quick
    figures = Figures(device, machine, rows, repeats=repeats, quick=quick)
    users = UserFigures(device, rows, repeats=repeats, seeds=seeds, quick=quick)
    for key, work in {**figures.all(), **users.all()}.items():
        record.cell(key, work)
        say(f"{key}: done")
    for path in figures.paths():
        for seed in range(plan.seeds):
            record.cell(f"accuracy/{path}/seed{seed}", partial(figures.accuracy, path, seed))
        say(f"accuracy, {path}: {path_scores(record.content)[path]}")
    if plan.scaling:
        measure_scaling(record, device, repeats=plan.repeats, quick=plan.quick, say=say)
    record.finish()
    return record


def path_scores(record: Mapping[str, Any]) -> dict[str, Score]:
    """Percent right on held-out rows, by path."""
    found: dict[str, list[float]] = {}
    for key, cell in record["cells"].items():
        if key.startswith("accuracy/"):
            found.setdefault(key.split("/")[1], []).append(cell["held_out"])
    return {path: percent(scores) for path, scores in found.items()}
