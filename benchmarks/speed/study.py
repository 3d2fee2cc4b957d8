"""How fast, against which peers, how far from what the machine could do, with what accuracy."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from benchmarks.plans import require_counts
from benchmarks.record import Content, Record, Records
from benchmarks.speed.scaling import AXES, measure_scaling
from benchmarks.speed.steps import PAPER, StepFigures, path_of
from benchmarks.speed.users import UserFigures, hurry_of
from benchmarks.tasks import load_task
from benchmarks.text import Score, markdown, percent, readable
from benchmarks.timing import Machine, measure_machine
from protopinv.kernels import want_kernels
from protopinv.report.figures import Panel, Series

# Parts of a profile that a page names, and the share of the whole they must have.
NAMED = 6
LEAST = 0.02
# Instead of a number in bfloat16, where the machine has no instructions for it.
NOT_HERE = "not here"
HEADER = ["figure", "ours", "peer", "peer / ours", "floor", "accuracy"]


@dataclass(frozen=True)
class SpeedPlan:
    """What to measure; everything in it is written into the record."""

    repeats: int = 7
    seeds: int = 5
    scaling: bool = True
    quick: bool = False

    def __post_init__(self) -> None:
        require_counts(self, "repeats", "seeds")


def measure_speed(plan: SpeedPlan, records: Records, *, device: str) -> Record:
    """Every figure of the device, one cell each, with kernels that were built before."""
    want_kernels()
    task = "MNIST; times are medians, in turns with the peer in the same process"
    content = {"task": task, "shape": PAPER, "hurry": hurry_of(device), **asdict(plan)}
    record = records.open("speed", plan=content, device=device)
    machine = Machine(
        **record.cell(
            "machine", lambda: asdict(measure_machine(device, repeats=3 if plan.quick else 15))
        )
    )
    rows = load_task("mnist", quick=plan.quick)
    repeats, seeds, quick = plan.repeats, plan.seeds, plan.quick
    steps = StepFigures(device, machine, rows, repeats=repeats, quick=quick)
    users = UserFigures(device, rows, repeats=repeats, seeds=seeds, quick=quick)
    for key, work in {**steps.all(), **users.all()}.items():
        record.cell(key, work)
        record.say(f"{key}: done")
    for path in steps.paths():
        for seed in range(seeds):
            record.cell(f"accuracy/{path}/seed{seed}", partial(steps.accuracy, path, seed))
        record.say(f"accuracy, {path}: {path_scores(record.content)[path]}")
    if plan.scaling:
        measure_scaling(record, device, repeats=repeats, quick=quick)
    record.finish()
    return record


def path_scores(record: Content) -> dict[str, Score]:
    """Percent right on held-out rows, by path."""
    scores: dict[str, list[float]] = {}
    for key, cell in record["cells"].items():
        if key.startswith("accuracy/"):
            scores.setdefault(key.split("/")[1], []).append(cell["held_out"])
    return {path: percent(values) for path, values in scores.items()}


def speed_tables(record: Content) -> list[str]:
    """Figures, the accuracy of every path, and how time grows."""
    cells, machine = record["cells"], record["cells"]["machine"]
    lines = [
        f"Products of large matrices run at {machine['float32'] / 1e9:,.0f} GFLOP/s in float32"
        f"{_rough_rate(machine)}, copies at {machine['bandwidth'] / 1e9:,.0f} GB/s.",
        "",
        *markdown(HEADER, [*_steps(record), *_fits(cells), *_predictions(cells)]),
        "",
        *_others(cells),
        *_profiles(cells),
    ]
    scores = {path: str(score) for path, score in path_scores(record).items()}
    if scores:
        epochs = next(cell["epochs"] for k, cell in cells.items() if k.startswith("accuracy/"))
        lines += ["", f"Held-out accuracy after {epochs} full-batch epochs, by path:", ""]
        if machine["bfloat16"] is None:
            scores[path_of("bfloat16")] = NOT_HERE
        lines += markdown(["path", "%"], [[path, score] for path, score in scores.items()])
    return [*lines, "", *_growth(cells)] if "scaling/n" in cells else lines


def _rough_rate(machine: Mapping[str, Any]) -> str:
    if machine["bfloat16"] is None:
        return " here, which has no products in bfloat16"
    return f" and {machine['bfloat16'] / 1e9:,.0f} in bfloat16 here"


def _steps(record: Content) -> Iterator[list[str]]:
    """Epochs against the paper's listing, and a step against an MLP's."""
    cells = record["cells"]
    for key, title in (("epoch", "a full-batch epoch"), ("250 epochs", "250 full-batch epochs")):
        if key not in cells:
            continue
        times, floors = cells[key]["seconds"], cells[key]["floor"]
        for kind in ("float32", "bfloat16"):
            name = f"{title}, {kind}; peer: the paper's listing in float32"
            if kind in times:
                score = str(path_scores(record).get(path_of(kind), ""))
                yield _line(name, times[kind], times["listing"], floors[kind], score)
            else:
                yield [name, NOT_HERE, "", "", "", ""]
    if "step against an MLP" in cells:
        times = cells["step against an MLP"]["seconds"]
        for peer, how in (("mlp", "our kernels"), ("mlp, plain paths", "torch's operations")):
            name = f"a captured step, bfloat16; peer: an MLP of the same width, by {how}"
            yield _line(name, times["ours"], times[peer], cells["step against an MLP"]["floor"])


def _fits(cells: Mapping[str, Any]) -> Iterator[list[str]]:
    """Ours, alone or against the peer at its defaults and tuned."""
    if "fit" not in cells:
        return
    fit = cells["fit"]
    name, times = "from host arrays to a fitted model", fit["seconds"]
    score = f"{percent(fit['accuracy'])} test"
    if "peer" not in times:
        yield _line(name, times["ours"], None, None, score)
    for peer, how in (("peer", "at its defaults"), ("tuned peer", "best of nine")):
        if peer in times:
            key = peer.replace(" ", "_")
            theirs = f"peer {100 * fit[f'{key}_accuracy']:.2f}, {fit[f'{key}_epochs']} epochs"
            title = f"{name}; peer: scikit-learn's MLP {how}, until it has 97.8 %"
            yield _line(title, times["ours"], times[peer], None, f"{score} ({theirs})")


def _predictions(cells: Mapping[str, Any]) -> Iterator[list[str]]:
    for key in ("one row", "many rows"):
        if key not in cells:
            continue
        n, times = cells[key]["rows"], cells[key]["seconds"]
        rows = "one row" if n == 1 else f"{n:,} rows"
        for who, how in (("ours", "by one bank"), ("five banks", "by five, as by default")):
            if who in times:
                name = f"predict_proba of {rows} on the host, {how}; peer: scikit-learn's MLP"
                yield _line(name, times[who], times["peer"], None)


def _line(
    name: str, ours: float, peer: float | None, floor: float | None, accuracy: str = ""
) -> list[str]:
    peer_time, floor_time = ("" if t is None else readable(t) for t in (peer, floor))
    ratio = "" if peer is None else f"**{peer / ours:.2f}**"
    return [name, readable(ours), peer_time, ratio, floor_time, accuracy]


def _others(cells: Mapping[str, Any]) -> Iterator[str]:
    megabytes = cells.get("memory", {}).get("megabytes")
    if megabytes is not None:
        yield f"Peak memory of a full-batch fit over its data: {megabytes:.0f} MB."
    start = cells.get("start", {})
    if start and not start.get("checked"):  # an early record did not ask how programs ended
        yield "Start-up times of this record are left out: its programs were not seen to succeed."
        return
    for name, time in start.get("seconds", {}).items():
        yield f"A new process, {name}: {readable(time)}."


def _profiles(cells: Mapping[str, Any]) -> Iterator[str]:
    """Where the time of a step goes."""
    for kind, parts in cells.get("profile", {}).items():
        total = sum(parts.values())
        named = [name for name in parts if name != "everything else"][:NAMED]
        named = [name for name in named if parts[name] >= LEAST * total]
        shares = [f"{name} {parts[name] / total:.0%}" for name in named]
        yield ""
        yield f"Where a step in {kind} spends its time: {', '.join(shares)}."


def _growth(cells: Mapping[str, Any]) -> list[str]:
    rows = [
        [title, f"{cell['sizes'][0]:,} to {cell['sizes'][-1]:,}", f"{cell['exponent']:.2f}"]
        for axis, title in AXES.items()
        if (cell := cells.get(f"scaling/{axis}")) is not None
    ]
    lines = markdown(["size", "measured", "time grows as its power"], rows)
    for key, text in (
        ("break-even/solve", "The dual and the primal form take as long at"),
        ("break-even/forward", "Rows through factors and through W take as long at"),
    ):
        if key in cells:
            p = cells[key]["equal_at"]
            where = "no number of prototypes that was tried" if p is None else f"{p:.0f} prototypes"
            lines += ["", f"{text} {where}."]
    return lines


def speed_panels(record: Content) -> list[Panel]:
    """Time against every size, and the two break-even points."""
    cells = record["cells"]
    panels = []
    for axis, title in AXES.items():
        cell = cells[f"scaling/{axis}"]
        series = Series("epoch", cell["sizes"], cell["seconds"])
        name = f"{title}: power {cell['exponent']:.2f}"
        panels.append(Panel(name, title, "seconds", [series], log="xy", legend=False))
    for key, name in (("break-even/solve", "a solve"), ("break-even/forward", "a layer, forward")):
        if key in cells:
            cell = cells[key]
            lines = [Series(form, cell["sizes"], times) for form, times in cell["seconds"].items()]
            panels.append(Panel(name, "prototypes", "seconds", lines, log="xy"))
    return panels
