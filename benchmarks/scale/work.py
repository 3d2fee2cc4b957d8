"""One measurement in a process of its own, for its peak memory: prints a line of JSON.

python -m benchmarks.scale.work KIND FOLDER OPTIONS
"""

import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.scale.rows import FEATURES, held_out
from protopinv import ProtoPINVClassifier, open_rows
from protopinv.optional import require
from protopinv.train.history import EpochReport

NAMES = [f"x{number}" for number in range(FEATURES)]


def ours(folder: Path, options: dict[str, Any], *, in_memory: bool) -> dict[str, Any]:
    """Seconds of every epoch, and before the first."""
    rows = open_rows(folder, "y", memory=0)
    data = rows.load()[:2] if in_memory else (rows,)
    began, ends = time.perf_counter(), []

    def watch(_: EpochReport) -> None:
        ends.append(time.perf_counter())

    model = ProtoPINVClassifier(random_state=0, **options).fit(*data, observer=watch)
    measured: dict[str, Any] = {
        "epoch_seconds": np.diff(ends).tolist(),
        "first_seconds": ends[0] - began,
        "seconds": time.perf_counter() - began,
        "loss": model.history_.loss[-1],
    }
    if os.environ.get("RANK", "0") == "0" and options.get("batch_size", "auto") == "auto":
        X, y = held_out()
        measured["accuracy"] = float((model.predict(X) == y).mean())
    return measured


def pieces(folder: Path) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """A row group at a time, in the order of the files."""
    import pyarrow.parquet as pq

    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=32_768):
                columns = [batch.column(name).to_numpy() for name in NAMES]
                yield np.column_stack(columns), batch.column("y").to_numpy()


def cycle_of(folder: Path) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """The same, over and over."""
    while True:
        yield from pieces(folder)


def until(
    target: float, longest: float, score: Callable[[], float], more: Callable[[], bool]
) -> dict[str, Any]:
    """Train some more until the score is reached; times do not count the scoring."""
    spent, best = 0.0, 0.0
    while True:
        began = time.perf_counter()
        goes_on = more()
        spent += time.perf_counter() - began
        best = max(best, score())
        if best >= target or spent > longest or not goes_on:
            return {"seconds": spent, "accuracy": best, "reached": best >= target}


def partial_fit(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """scikit-learn's MLP, a row group at a time."""
    from sklearn.neural_network import MLPClassifier

    X, y = held_out()
    model = MLPClassifier(random_state=0)
    stream = cycle_of(folder)

    def more() -> bool:
        for _ in range(4):
            part = next(stream)
            for start in range(0, len(part[1]), 200):  # its own batch size
                some = slice(start, start + 200)
                model.partial_fit(part[0][some], part[1][some], classes=[0, 1])
        return True

    return until(options["target"], options["longest"], lambda: model.score(X, y), more)


def lightgbm(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """LightGBM, which reads files twice: a sample for its bins, then all rows into them."""
    lgb: Any = require("lightgbm", extra="study", why="The comparison with LightGBM")
    import pyarrow.parquet as pq

    class Groups(lgb.Sequence):
        batch_size = 32_768

        def __init__(self, path: Path) -> None:
            self.file = pq.ParquetFile(path)
            self.held: tuple[int, Any] = (-1, None)

        def __len__(self) -> int:
            return int(self.file.metadata.num_rows)

        def __getitem__(self, index: Any) -> Any:
            first = index.start if isinstance(index, slice) else index
            number = first // 32_768
            if self.held[0] != number:
                group = self.file.read_row_group(number, columns=NAMES)
                self.held = (number, np.column_stack([group[name] for name in NAMES]))
            start = number * 32_768
            if isinstance(index, slice):
                return self.held[1][index.start - start : index.stop - start]
            return self.held[1][index - start].astype(np.float64)

    X, y = held_out()
    paths = sorted(folder.glob("*.parquet"))
    labels = np.concatenate([pq.read_table(path, columns=["y"])["y"] for path in paths])
    began = time.perf_counter()
    data = lgb.Dataset([Groups(path) for path in paths], label=labels)
    booster = lgb.Booster({"objective": "binary", "verbose": -1}, data)
    loading = time.perf_counter() - began

    def more() -> bool:
        return not any(booster.update() for _ in range(20))

    def score() -> float:
        return float(((booster.predict(X) > 0.5) == y).mean())

    measured = until(options["target"], options["longest"], score, more)
    return {**measured, "seconds": measured["seconds"] + loading, "loading": loading}


def main() -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    kind, folder, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    threads = options.pop("threads", None)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    if kind in ("memory", "stream"):
        measured = ours(folder, options, in_memory=kind == "memory")
    else:
        measured = {"partial_fit": partial_fit, "lightgbm": lightgbm}[kind](folder, options)
    measured["peak_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(measured))


if __name__ == "__main__":
    main()
