"""How training grows with rows, what streaming costs, what a second rank gains."""

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.record import Cell, Content, Record, Records
from benchmarks.scale.rows import write_rows
from benchmarks.text import markdown, readable
from benchmarks.timing import exponent
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


def measure_scale(plan: ScalePlan, records: Records, *, rows: Path) -> Record:
    """Every measurement in a process of its own, one at a time."""
    content = {"task": "100 features in Parquet files, float32, two classes", **asdict(plan)}
    record = records.open("scale", plan=content)
    for n in plan.rows:
        repeats = plan.repeats if n < plan.rows[-1] else 1
        for repeat in range(repeats):
            for network in plan.networks:
                for kind in ("stream", "memory"):
                    key = f"{kind}/{network}/{n}/{repeat}"
                    _cell(record, rows, key, kind, n, NETWORKS[network])
    for repeat in range(plan.repeats):
        for ranks in (1, 2):
            options = {**NETWORKS["1 x 128"], "threads": 1}
            key = f"ranks/{ranks}/{plan.rows_of_ranks}/{repeat}"
            _cell(record, rows, key, "stream", plan.rows_of_ranks, options, ranks=ranks)
    n = plan.rows_of_peers
    mine = _cell(record, rows, f"peer/ours/{n}/0", "stream", n, {"effort": "quick"})
    aim = {"target": mine["accuracy"] - MARGIN, "longest": plan.longest}
    for peer, package in (("partial_fit", "sklearn"), ("lightgbm", "lightgbm")):
        if find_spec(package) is None:
            record.say(f"{peer} is left out: {package} is not installed (extra: study)")
            continue
        _cell(record, rows, f"peer/{peer}/{n}/0", peer, n, aim)
    record.finish()
    return record


def _cell(
    record: Record,
    rows: Path,
    key: str,
    kind: str,
    n: int,
    options: Mapping[str, Any],
    *,
    ranks: int = 1,
) -> Cell:
    files = write_rows(rows, n)
    cell = record.cell(key, partial(_measured, files, kind, options, ranks))
    epochs = cell.get("epoch_seconds")
    time = f"{statistics.median(epochs):.3f} s an epoch" if epochs else f"{cell['seconds']:.1f} s"
    record.say(f"{key:32} {time}, {cell['peak_bytes'] / 1e9:.2f} GB")
    return cell


def _measured(rows: Path, kind: str, options: Mapping[str, Any], ranks: int) -> Cell:
    start = [sys.executable, "-m"]
    if ranks > 1:
        start += ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
    command = [*start, "benchmarks.scale.work", kind, str(rows), json.dumps(dict(options))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TrainingError(f"A measurement must end well. {kind} did not: {done.stderr[-500:]}")
    cell: Cell = json.loads(done.stdout.strip().splitlines()[-1])
    return cell


def epoch(record: Content, prefix: str) -> float:
    """The median of all epochs of the measurements under a key."""
    return statistics.median(
        float(seconds) for cell in _under(record, prefix) for seconds in cell["epoch_seconds"]
    )


def peak(record: Content, prefix: str) -> float:
    """The highest memory of the measurements under a key, in GB."""
    return max(float(cell["peak_bytes"]) for cell in _under(record, prefix)) / 1e9


def _under(record: Content, prefix: str) -> list[Cell]:
    return [cell for key, cell in record["cells"].items() if key.startswith(prefix + "/")]


def power_of_rows(record: Content, network: str) -> float:
    """The power of the rows that the time of a streamed epoch grows with."""
    sizes = record["plan"]["rows"]
    return exponent(sizes, [epoch(record, f"stream/{network}/{n}") for n in sizes])


def scale_tables(record: Content) -> dict[str, list[str]]:
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
