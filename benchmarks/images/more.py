"""Is it the number of prototypes? Where ours is behind, the same network with more of them.

The budget counts trained numbers, and a bank spends them on prototypes: no weight matrix has a
higher rank than there are prototypes. So the winner of a row is trained again with more of them, on
the rows that both searches were trained on, and scored on those they were chosen on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.choices import require_some
from benchmarks.images.accuracy import winner_of
from benchmarks.images.contenders import QUICK, ROWS, contenders
from benchmarks.paper.comparison import Difference, unpaired
from benchmarks.paper.names import NAMES
from protopinv.bench.markdown import markdown
from protopinv.bench.plans import record_name, require_counts
from protopinv.bench.record import Cell, Record, Say
from protopinv.bench.scores import Score, percent
from protopinv.bench.shape import Parameters
from protopinv.bench.steps import source_of
from protopinv.bench.tasks import DATASETS, Task, load_task
from protopinv.bench.together import Job, accuracy_of, numbers_of, settled, train_together
from protopinv.errors import TrainingError

Earlier = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class MorePlan:
    """What to measure; seeds are as many as finalists of a search have."""

    dataset: str = "fashion-mnist"
    rows: tuple[str, ...] = ("stem", "one-copies")
    factor: int = 3
    seeds: int = 3
    quick: bool = False

    def __post_init__(self) -> None:
        require_some("dataset", (self.dataset,), DATASETS)
        require_some("rows", self.rows, [row.key for row in ROWS])
        require_counts(self, "seeds")


def measure_more(
    plan: MorePlan,
    earlier: Earlier,
    *,
    device: str,
    folder: Path,
    fresh: bool = False,
    say: Say = lambda _: None,
) -> Record:
    """The winners of ``earlier`` records with more prototypes; ridges grow with them."""
    content = {
        "task": "Winners of the contest on images with more prototypes; held-out rows",
        **asdict(plan),
    }
    name = record_name("more", plan.dataset, device, quick=plan.quick)
    record = Record(folder, name, content, device, fresh=fresh, say=say)
    task = load_task(plan.dataset, quick=plan.quick)
    for row in plan.rows:
        winner = winner_of(earlier[f"accuracy-{row}-{plan.dataset}-cuda"], "protopinv")
        jobs = {f"{row}/seed{seed}": seed for seed in range(plan.seeds)}
        cells = record.cells_of(
            jobs, partial(_scored, task, row, winner["parameters"], plan, device)
        )
        say(f"{row}: {percent([cell['held_out'] for cell in cells])} %")
    record.finish()
    return record


def enlarged(parameters: Parameters, factor: int) -> Parameters:
    """So many times the prototypes; a ridge is for each of them."""
    return {
        **parameters,
        "n_prototypes": parameters["n_prototypes"] * factor,
        "ridge": tuple(ridge * factor for ridge in parameters["ridge"]),
    }


def _scored(
    task: Task, row: str, parameters: Parameters, plan: MorePlan, device: str, seeds: Sequence[int]
) -> Iterator[tuple[int, Cell]]:
    ours, _ = contenders(next(each for each in ROWS if each.key == row), plan.dataset)
    given = {**ours.fixed, **enlarged(parameters, plan.factor), **(QUICK if plan.quick else {})}
    source = source_of(task.train)
    config = settled(given, source, device)
    for place, model in train_together(source, [Job(config, seed) for seed in seeds], device):
        if isinstance(model, TrainingError):
            raise model
        trained, shipped = numbers_of(model)
        score = accuracy_of(model, task.held_out.X, task.held_out.y, device)
        yield place, {"held_out": score, "trained": trained, "shipped": shipped}


@dataclass(frozen=True)
class More:
    """A row: held-out scores of ours, of ours with more prototypes, and of the MLP."""

    row: str
    ours: Score
    more: Score
    mlp: Score
    gain: Difference
    against_mlp: Difference


def more_found(record: Mapping[str, Any], earlier: Earlier) -> list[More]:
    """What a record says, next to the searches it goes on from."""
    found = []
    for row in record["plan"]["rows"]:
        search = earlier[f"accuracy-{row}-{record['plan']['dataset']}-cuda"]
        ours, mlp = (winner_of(search, who)["held_out"] for who in ("protopinv", "mlp"))
        cells = record["cells"]
        more = [cells[f"{row}/seed{seed}"]["held_out"] for seed in range(record["plan"]["seeds"])]
        points = [[100 * value for value in values] for values in (more, ours, mlp)]
        found.append(
            More(
                row,
                percent(ours),
                percent(more),
                percent(mlp),
                unpaired(points[0], points[1]),
                unpaired(points[0], points[2]),
            )
        )
    return found


def more_table(record: Mapping[str, Any], earlier: Earlier) -> list[str]:
    """A line a row."""
    factor, data = record["plan"]["factor"], NAMES[record["plan"]["dataset"]]
    header = [f"{data}, held-out %", "ours", f"ours, {factor} x the prototypes", "gain", "MLP"]
    rows = [
        [each.row, str(each.ours), str(each.more), str(each.gain), str(each.mlp)]
        for each in more_found(record, earlier)
    ]
    return markdown(header, rows)
