"""Rows in the memory of the host, fetched by a GPU for every epoch, against rows that lie there."""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.scale.rows import FEATURES, make_rows
from protopinv import ArrayRows, ProtoPINVClassifier
from protopinv.bench.markdown import markdown
from protopinv.bench.plans import record_name
from protopinv.bench.record import Cell, Record, Say
from protopinv.bench.speed_tables import readable
from protopinv.train.loop import EpochReport

ROWS_AT_A_TIME = 1_000_000
PLAIN = {"early_stopping": False, "row_dtype": "same", "device": "cuda", "random_state": 0}
CASES: dict[str, dict[str, Any]] = {
    "mini-batches, as by default": {**PLAIN, "max_epochs": 3, "lr": 0.02},
    "all rows a step, 1 x 128": {
        **PLAIN,
        "max_epochs": 9,
        "batch_size": None,
        "n_prototypes": 100,
        "hidden_sizes": [128],
        "activation": "relu",
    },
}


@dataclass(frozen=True)
class FetchPlan:
    """Rows to train on."""

    rows: int = 20_000_000
    quick: bool = False


def measure_fetching(
    plan: FetchPlan, *, folder: Path, fresh: bool = False, say: Say = lambda _: None
) -> Record:
    """Epochs of both, in one process."""
    content = {"task": "100 features in an array of float32, two classes", **asdict(plan)}
    name = record_name("scale", "cuda", quick=plan.quick)
    record = Record(folder, name, content, "cuda", fresh=fresh, say=say)
    X, y = _rows(plan.rows)
    for case, options in CASES.items():
        for kind in ("memory", "stream"):
            work = partial(_epochs, X, y, kind, options)
            (cell,) = record.cells_of({f"{case}/{kind}": 0}, work)
            say(f"{case:30} {kind:8} {statistics.median(cell['epoch_seconds']):.4f} s an epoch")
    record.finish()
    return record


def _rows(n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    X, y = np.empty((n, FEATURES), np.float32), np.empty(n, np.int8)

    def fill(number: int) -> None:
        some = slice(number * ROWS_AT_A_TIME, min(n, (number + 1) * ROWS_AT_A_TIME))
        X[some], y[some] = make_rows(some.stop - some.start, number)

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(-(-n // ROWS_AT_A_TIME))))
    return X, y


def _epochs(
    X: NDArray[Any], y: NDArray[Any], kind: str, options: Mapping[str, Any], places: Sequence[int]
) -> Iterator[tuple[int, Cell]]:
    """Seconds of all epochs but the first two, which compile and capture."""
    import torch

    ends: list[float] = []

    def watch(_: EpochReport) -> None:
        torch.cuda.synchronize()
        ends.append(time.perf_counter())

    given = (X, y) if kind == "memory" else (ArrayRows(X, y, memory=0),)
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    ProtoPINVClassifier(**options).fit(*given, observer=watch)
    epochs = np.diff(ends).tolist()
    for place in places:
        yield (
            place,
            {
                "epoch_seconds": epochs[1:] if len(epochs) > 2 else epochs,
                "first_seconds": ends[0] - began,
                "gpu_bytes": torch.cuda.max_memory_allocated(),
            },
        )


def fetching_table(record: Mapping[str, Any]) -> list[str]:
    """A line for each way to train."""
    rows = []
    for case in CASES:
        cells = [record["cells"][f"{case}/{kind}"] for kind in ("stream", "memory")]
        streamed, resident = (statistics.median(cell["epoch_seconds"]) for cell in cells)
        memory = [f"{cell['gpu_bytes'] / 1e9:.1f} GB" for cell in cells]
        share = f"{100 * resident / streamed:.0f} %"
        rows.append([case, readable(streamed), readable(resident), share, *memory])
    header = ["", "fetched", "on the GPU", "speed kept", "GPU memory, fetched", "all there"]
    return markdown(header, rows)
