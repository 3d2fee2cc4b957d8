"""What an epoch costs: products, bytes and messages, with rates from measurements."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.record import Content
from benchmarks.scale.study import epoch
from benchmarks.text import markdown

FLOAT, DOUBLE = 4, 8
# Not measured here: what a job on several machines may count on between them.
LINK_BYTES, LINK_SECONDS = 25e9, 30e-6


@dataclass(frozen=True)
class Work:
    """One way to train. ``widths`` are those of features, hidden layers and outputs."""

    rows: float
    widths: tuple[int, ...]
    members: int = 1
    batch: int | None = None

    @property
    def weights(self) -> int:
        """Numbers of all weight matrices, which ranks exchange in a step."""
        return self.members * sum((a + 1) * b for a, b in pairwise(self.widths))

    @property
    def operations(self) -> float:
        """Of an epoch: there and back, and the gradient; two for each multiplication."""
        first, *others = (a * b for a, b in pairwise(self.widths))
        # rows need no gradient
        return 2 * self.rows * self.members * (2 * first + 3 * sum(others))

    @property
    def bytes_read(self) -> float:
        """Of an epoch, as float32."""
        return self.rows * self.widths[0] * FLOAT

    @property
    def steps(self) -> float:
        """Of an epoch."""
        return 1.0 if self.batch is None else max(1.0, self.rows / self.batch)

    @property
    def bytes_reduced(self) -> float:
        """A rank sends and receives in an epoch: all gradients twice around a ring, in float64."""
        return self.steps * 2 * self.weights * DOUBLE


@dataclass(frozen=True)
class Machine:
    """Rates of one rank: operations and bytes a second; and what a step takes without any rows."""

    operations: float
    read: float
    step: float = 0.0

    def seconds(self, work: Work, ranks: int) -> dict[str, float]:
        """Of an epoch: reading overlaps with computing, messages do not."""
        reduced = 0.0
        if ranks > 1:
            share = (ranks - 1) / ranks
            reduced = share * work.bytes_reduced / LINK_BYTES + work.steps * 2 * LINK_SECONDS
        return {
            "computing": work.operations / ranks / self.operations + work.steps * self.step,
            "reading": work.bytes_read / ranks / self.read,
            "messages": reduced,
        }


def total(seconds: Mapping[str, float]) -> float:
    """Of an epoch."""
    return max(seconds["computing"], seconds["reading"]) + seconds["messages"]


def fitted_cpu(record: Content) -> Machine:
    """From the largest tables: the rate of both networks in memory, and what streaming adds."""
    n = record["plan"]["rows"][-1]
    rates, added = [], []
    for network, widths in WIDTHS.items():
        memory, stream = (epoch(record, f"{kind}/{network}/{n}") for kind in ("memory", "stream"))
        work = Work(n, widths)
        rates.append(work.operations / memory)
        added.append((stream - memory) / work.bytes_read)
    return Machine(statistics.mean(rates), 1 / max(1e-12, statistics.mean(added)))


def fitted_gpu(record: Content) -> Machine:
    """From full batches: on the GPU for its products, fetched for what the bus brings.

    And from small batches what a step takes, solves and update and all, however few its rows.
    """

    def epoch_of(case: str, kind: str) -> float:
        seconds: list[float] = record["cells"][f"{case}/{kind}"]["epoch_seconds"]
        return statistics.median(seconds)

    n = record["plan"]["rows"]
    full, small = "all rows a step, 1 x 128", "mini-batches, as by default"
    work = Work(n, WIDTHS["1 x 128"])
    steps = n / SMALL_BATCH
    return Machine(
        work.operations / epoch_of(full, "memory"),
        work.bytes_read / epoch_of(full, "stream"),
        epoch_of(small, "memory") / steps,
    )


# Rows a step where nothing is said.
SMALL_BATCH = 2_048
WIDTHS = {"1 x 128": (100, 128, 2), "2 x 128": (100, 128, 128, 2)}


def predictions(machine: Machine, rows: Sequence[float], ranks: Sequence[int]) -> list[str]:
    """Epochs of a network of two layers and five members, and what takes longest."""
    lines = []
    for n in rows:
        for batch in (None, 65_536):
            work = Work(n, WIDTHS["2 x 128"], members=5, batch=batch)
            for size in ranks:
                parts = machine.seconds(work, size)
                seconds = total(parts)
                most = max(parts, key=lambda name: parts[name])
                hours = f"{seconds * size / 3600:,.2f}"
                steps = "one" if batch is None else f"{work.steps:,.0f}"
                lines.append([f"{n:.0e}", steps, str(size), _time(seconds), most, hours])
    header = ["rows", "steps an epoch", "GPUs", "epoch", "takes longest", "GPU hours an epoch"]
    return markdown(header, lines)


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
