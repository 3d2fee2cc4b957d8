"""How training grows with rows, what streaming costs, what a second rank gains."""

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.scale.rows import write_rows
from protopinv.bench.markdown import markdown
from protopinv.bench.plans import record_name
from protopinv.bench.record import Cell, Record, Say
from protopinv.bench.speed_tables import readable
from protopinv.errors import TrainingError

# All rows a step, so that an epoch is one pass; a small network, whose rows are the most work.
FULL = {"batch_size": None, "early_stopping": False, "max_epochs": 3, "activation": "relu"}
NETWORKS = {
    "1 x 128": {**FULL, "n_prototypes": 100, "hidden_sizes": [128]},
    "2 x 128": {**FULL, "n_prototypes": 100, "hidden_sizes": [128, 128]},
}
# A peer is given this much time to reach the accuracy of ours, less half a point.
LONGEST = 240.0
MARGIN = 0.005


@dataclass(frozen=True)
class ScalePlan:
    """Rows to grow through, rows for ranks and peers, and repeats."""

    rows: tuple[int, ...] = (100_000, 1_000_000, 10_000_000)
    rows_of_ranks: int = 1_000_000
    rows_of_peers: int = 1_000_000
    repeats: int = 2
    longest: float = LONGEST
    networks: tuple[str, ...] = tuple(NETWORKS)
    quick: bool = False


def measure_scale(
    plan: ScalePlan,
    *,
    rows: Path,
    folder: Path,
    fresh: bool = False,
    say: Say = lambda _: None,
) -> Record:
    """Every measurement in a process of its own, one at a time."""
    content = {"task": "100 features in Parquet files, float32, two classes", **asdict(plan)}
    name = record_name("scale", "cpu", quick=plan.quick)
    record = Record(folder, name, content, "cpu", fresh=fresh, say=say)
    for n in plan.rows:
        repeats = plan.repeats if n < plan.rows[-1] else 1
        for repeat in range(repeats):
            for network in plan.networks:
                for kind in ("stream", "memory"):
                    key = f"{kind}/{network}/{n}/{repeat}"
                    _cell(record, rows, key, kind, n, NETWORKS[network], say)
    for repeat in range(plan.repeats):
        for ranks in (1, 2):
            options = {**NETWORKS["1 x 128"], "threads": 1}
            key = f"ranks/{ranks}/{plan.rows_of_ranks}/{repeat}"
            _cell(record, rows, key, "stream", plan.rows_of_ranks, options, say, ranks=ranks)
    n = plan.rows_of_peers
    mine = _cell(record, rows, f"peer/ours/{n}/0", "stream", n, {"effort": "quick"}, say)
    asked = {"target": mine["accuracy"] - MARGIN, "longest": plan.longest}
    for peer, package in (("partial_fit", "sklearn"), ("lightgbm", "lightgbm")):
        if find_spec(package) is None:
            say(f"{peer} is left out: {package} is not installed (extra: study)")
            continue
        _cell(record, rows, f"peer/{peer}/{n}/0", peer, n, asked, say)
    record.finish()
    return record


def _cell(
    record: Record,
    rows: Path,
    key: str,
    kind: str,
    n: int,
    options: Mapping[str, Any],
    say: Say,
    *,
    ranks: int = 1,
) -> Cell:
    made = write_rows(rows, n)
    (cell,) = record.cells_of({key: 0}, partial(_measured, made, kind, options, ranks))
    say(f"{key:32} {_short(cell)}")
    return cell


def _measured(
    rows: Path, kind: str, options: Mapping[str, Any], ranks: int, places: Sequence[int]
) -> Iterator[tuple[int, Cell]]:
    start = [sys.executable, "-m"]
    if ranks > 1:
        start += ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
    command = [*start, "benchmarks.scale.work", kind, str(rows), json.dumps(dict(options))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TrainingError(f"A measurement must end well. {kind} did not: {done.stderr[-500:]}")
    cell = json.loads(done.stdout.strip().splitlines()[-1])
    for place in places:
        yield place, cell


def _short(cell: Cell) -> str:
    epochs = cell.get("epoch_seconds")
    what = f"{statistics.median(epochs):.3f} s an epoch" if epochs else f"{cell['seconds']:.1f} s"
    return f"{what}, {cell['peak_bytes'] / 1e9:.2f} GB"


def epoch(record: Mapping[str, Any], prefix: str) -> float:
    """The median of all epochs of the measurements under a key."""
    found: list[float] = [
        seconds
        for key, cell in record["cells"].items()
        if key.startswith(prefix + "/")
        for seconds in cell["epoch_seconds"]
    ]
    return statistics.median(found)


def peak(record: Mapping[str, Any], prefix: str) -> float:
    """The highest memory of the measurements under a key, in GB."""
    cells = [cell for key, cell in record["cells"].items() if key.startswith(prefix + "/")]
    return max(float(cell["peak_bytes"]) for cell in cells) / 1e9


def exponent(record: Mapping[str, Any], network: str) -> float:
    """Of the rows, in the time of a streamed epoch; by least squares of logarithms."""
    sizes = record["plan"]["rows"]
    x = [math.log(n) for n in sizes]
    y = [math.log(epoch(record, f"stream/{network}/{n}")) for n in sizes]
    return statistics.linear_regression(x, y).slope


def scale_tables(record: Mapping[str, Any]) -> dict[str, list[str]]:
    """Growth with rows, ranks, and peers."""
    grown = []
    for network in record["plan"].get("networks", NETWORKS):
        for n in record["plan"]["rows"]:
            streamed, resident = (epoch(record, f"{kind}/{network}/{n}") for kind in KINDS)
            gb = [f"{peak(record, f'{kind}/{network}/{n}'):.2f} GB" for kind in KINDS]
            share = f"{100 * resident / streamed:.0f} %"
            grown.append([network, f"{n:,}", readable(streamed), readable(resident), share, *gb])
    header = ["hidden", "rows", "streamed epoch", "in memory", "speed kept"]
    growth = markdown([*header, "peak, streamed", "peak, in memory"], grown)
    n = record["plan"]["rows_of_ranks"]
    alone, both = (epoch(record, f"ranks/{ranks}/{n}") for ranks in (1, 2))
    ranks = [["1", readable(alone), "1.00"], ["2", readable(both), f"{alone / both:.2f}"]]
    peers = []
    for key, cell in record["cells"].items():
        if key.startswith("peer/"):
            reached = "" if cell.get("reached", True) else ", not reached"
            accuracy = f"{100 * cell['accuracy']:.2f} %{reached}"
            memory = f"{cell['peak_bytes'] / 1e9:.2f} GB"
            peers.append([PEERS[key.split("/")[1]], readable(cell["seconds"]), accuracy, memory])
    return {
        "growth": growth,
        "ranks": markdown(["ranks of one thread", "epoch", "times as fast"], ranks),
        "peers": markdown(["", "seconds", "accuracy on 100,000 other rows", "peak memory"], peers),
    }


KINDS = ("stream", "memory")
PEERS = {
    "ours": 'protopinv, effort="quick", streamed',
    "partial_fit": "scikit-learn's MLPClassifier.partial_fit",
    "lightgbm": "LightGBM from a Sequence of row groups",
}
