"""Rows in the memory of the host, which a GPU fetches every epoch, against rows in its memory."""

import statistics
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import Cell, Content, Record, Records
from benchmarks.scale.rows import FEATURES, make_rows
from benchmarks.text import markdown, readable
from protopinv import ArrayRows, ProtoPINVClassifier
from protopinv.train.history import EpochReport

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


def measure_fetching(plan: FetchPlan, records: Records) -> Record:
    """Epochs of both, in one process."""
    content = {"task": "100 features in an array of float32, two classes", **asdict(plan)}
    record = records.open("scale", plan=content, device="cuda")
    X, y = _rows(plan.rows)
    for case, options in CASES.items():
        for kind in ("memory", "stream"):
            cell = record.cell(f"{case}/{kind}", partial(_epochs, X, y, kind, options))
            seconds = statistics.median(cell["epoch_seconds"])
            record.say(f"{case:30} {kind:8} {seconds:.4f} s an epoch")
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


def _epochs(X: NDArray[Any], y: NDArray[Any], kind: str, options: Mapping[str, Any]) -> Cell:
    """Seconds of all epochs but the first two, which compile and capture."""
    import torch

    ends: list[float] = []

    def watch(_: EpochReport) -> None:
        torch.cuda.synchronize()
        ends.append(time.perf_counter())

    data = (X, y) if kind == "memory" else (ArrayRows(X, y, memory=0),)
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    ProtoPINVClassifier(**options).fit(*data, observer=watch)
    epochs = np.diff(ends).tolist()
    return {
        "epoch_seconds": epochs[1:] if len(epochs) > 2 else epochs,
        "first_seconds": ends[0] - began,
        "gpu_bytes": torch.cuda.max_memory_allocated(),
    }


def fetching_table(record: Content) -> list[str]:
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
