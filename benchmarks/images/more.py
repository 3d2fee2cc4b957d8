"""Is it the number of prototypes? Where ours is behind, the same network with more of them.

The budget counts trained numbers, and a bank spends them on prototypes: no weight matrix has a
higher rank than there are prototypes. So the winner of a row is trained again with more of them, on
the rows that both searches were trained on, and scored on those they were chosen on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from benchmarks.images.accuracy import winner_of
from benchmarks.images.contenders import ROWS, contenders
from benchmarks.paper.comparison import Difference, unpaired
from benchmarks.plans import require_counts, require_some
from benchmarks.recipes import Parameters
from benchmarks.record import Cell, Content, Record, Records
from benchmarks.tasks import DATASETS, NAMES, Task, arrays_of, load_task
from benchmarks.text import Score, markdown, percent
from benchmarks.training import Job, accuracy_of, config_of, sizes_of, train_together
from protopinv.errors import TrainingError

Earlier = Mapping[str, Content]


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


def measure_more(plan: MorePlan, earlier: Earlier, records: Records, *, device: str) -> Record:
    """The winners of ``earlier`` records with more prototypes; ridges grow with them."""
    content = {
        "task": "Winners of the contest on images with more prototypes; held-out rows",
        **asdict(plan),
    }
    record = records.open("more", plan.dataset, plan=content, device=device)
    task = load_task(plan.dataset, quick=plan.quick)
    for row in plan.rows:
        winner = winner_of(earlier[f"accuracy-{row}-{plan.dataset}-cuda"], "protopinv")
        jobs = {f"{row}/seed{seed}": seed for seed in range(plan.seeds)}
        cells = record.cells_of(
            jobs, partial(_scored, task, row, winner["parameters"], plan, device)
        )
        record.say(f"{row}: {percent([cell['held_out'] for cell in cells])} %")
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
    data, larger = arrays_of(task.train), enlarged(parameters, plan.factor)
    config = config_of(ours.parameters(larger, quick=plan.quick), data, device)
    for place, model in train_together(data, [Job(config, seed) for seed in seeds], device):
        if isinstance(model, TrainingError):
            raise model
        trained, shipped = sizes_of(model)
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


def more_found(record: Content, earlier: Earlier) -> list[More]:
    """The rows of a record, next to the searches that it continues."""
    rows = []
    for row in record["plan"]["rows"]:
        search = earlier[f"accuracy-{row}-{record['plan']['dataset']}-cuda"]
        ours, mlp = (winner_of(search, who)["held_out"] for who in ("protopinv", "mlp"))
        cells = record["cells"]
        more = [cells[f"{row}/seed{seed}"]["held_out"] for seed in range(record["plan"]["seeds"])]
        points = [[100 * value for value in values] for values in (more, ours, mlp)]
        rows.append(
            More(
                row,
                percent(ours),
                percent(more),
                percent(mlp),
                unpaired(points[0], points[1]),
                unpaired(points[0], points[2]),
            )
        )
    return rows


def more_table(record: Content, earlier: Earlier) -> list[str]:
    """A line a row."""
    factor, data = record["plan"]["factor"], NAMES[record["plan"]["dataset"]]
    header = [f"{data}, held-out %", "ours", f"ours, {factor} x the prototypes", "gain", "MLP"]
    rows = [
        [each.row, str(each.ours), str(each.more), str(each.gain), str(each.mlp)]
        for each in more_found(record, earlier)
    ]
    return markdown(header, rows)
