"""Work that users have, timed with whatever protopinv is imported.

python -m benchmarks.against.work TASK runs one task and prints seconds as JSON. It calls what users
can call and nothing else, so that older versions can run it too.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Seconds = dict[str, float]


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def _fits(X: Any, y: Any, kind: str = "ProtoPINVClassifier", **options: Any) -> Seconds:
    """A fit in a process that has fitted before, and predictions of 1 and of all rows."""
    import protopinv

    build = getattr(protopinv, kind)
    build(effort="quick", max_epochs=2).fit(X[:200], y[:200])
    fit, model = _timed(lambda: build(random_state=0, **options).fit(X, y))
    model.predict(X[:1])
    one, _ = _timed(lambda: [model.predict(X[:1]) for _ in range(50)])
    all_rows = statistics.median(_timed(lambda: model.predict(X))[0] for _ in range(5))
    return {"fit": fit, "predict one": one / 50, "predict all": all_rows}


def _bundled(name: str, effort: str) -> Seconds:
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    kind = "ProtoPINVRegressor" if name == "diabetes" else "ProtoPINVClassifier"
    return _fits(X, y, kind, effort=effort)


def _waves(n: int, d: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    return X, (np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] > 0).astype(int)


def _paper() -> Seconds:
    """Full-batch epochs of the paper's shape, on noise."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20_000, 400)).astype(np.float32), rng.integers(0, 10, 20_000)
    options: dict[str, Any] = {
        "projection": "none",
        "scaling": "none",
        "early_stopping": False,
        "n_members": 1,
    }
    shape = {"n_prototypes": 150, "hidden_sizes": (512,), "batch_size": None, "max_epochs": 8}
    return _fits(X, y, **{**options, **shape})


def _frame() -> Any:
    import pyarrow as pa

    rng = np.random.default_rng(0)
    n = 1_470
    return pa.table(
        {
            **{f"x{i}": rng.normal(size=n) for i in range(12)},
            **{f"c{i}": rng.choice(list("abcdefg"), n) for i in range(8)},
            "city": rng.choice([f"city {i}" for i in range(60)], n),
            "day": np.datetime64("2020-01-01", "D") + rng.integers(0, 900, n),
        }
    )


def _mixed() -> Seconds:
    frame = _frame()
    is_a = np.array(frame["c0"].to_pylist()) == "a"
    return _fits(frame, np.where(frame["x0"].to_numpy() + is_a > 0, "yes", "no"))


def _more() -> Seconds:
    """A tenth more rows, and what a file takes."""
    from protopinv import ProtoPINVClassifier, load

    X, y = _waves(8_800, 20)
    model = ProtoPINVClassifier(effort="quick", random_state=0).fit(X[:8_000], y[:8_000])
    more, _ = _timed(lambda: model.partial_fit(X[8_000:], y[8_000:]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors"
        save, _ = _timed(lambda: model.save(path))
        back, _ = _timed(lambda: load(path))
    return {"partial_fit": more, "save": save, "load": back}


def _files() -> Seconds:
    """A CSV file, streamed for two epochs, and trained on by the command line."""
    from protopinv import ProtoPINVClassifier, open_rows

    X, y = _waves(100_000, 20)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        names = ",".join([*(f"x{i}" for i in range(20)), "y"])
        values = np.column_stack([X, y])
        np.savetxt(path, values, delimiter=",", fmt="%.6g", header=names, comments="")
        short = {"n_prototypes": 20, "hidden_sizes": (16,), "max_epochs": 2}
        model = ProtoPINVClassifier(effort="quick", early_stopping=False, **short)
        streamed, _ = _timed(lambda: model.fit(open_rows(path, "y", memory=0)))
        options = ["--n-prototypes", "20", "--hidden-sizes", "16", "--max-epochs", "2"]
        options += ["--early-stopping", "false", "-o", str(Path(folder) / "m.safetensors")]
        command = [sys.executable, "-c", "from protopinv.cli import main; main()", "train"]
        command += [str(path), "--target", "y", "--quiet", *options]
        train, _ = _timed(lambda: subprocess.run(command, check=True, capture_output=True))
    return {"streamed": streamed, "command line": train}


def _start() -> Seconds:
    """A new process to its first prediction, and help."""
    program = (
        "import numpy as np; from protopinv import ProtoPINVClassifier as C; "
        "X = np.random.default_rng(0).normal(size=(150, 4)); "
        "C(effort='quick').fit(X, X[:, 0] > 0).predict(X)"
    )
    first, _ = _timed(lambda: subprocess.run([sys.executable, "-c", program], check=True))
    shown = [sys.executable, "-c", "from protopinv.cli import main; main()", "train", "--help"]
    shows, _ = _timed(lambda: subprocess.run(shown, check=True, capture_output=True))
    return {"first fit": first, "help": shows}


TASKS: dict[str, Callable[[], Seconds]] = {
    "start": _start,
    **{
        f"{name} {effort}": partial(_bundled, name, effort)
        for name in ("iris", "breast_cancer", "diabetes", "digits")
        for effort in ("quick", "balanced")
    },
    "8,000 x 20 quick": lambda: _fits(*_waves(8_000, 20), effort="quick"),
    "8,000 x 20 balanced": lambda: _fits(*_waves(8_000, 20)),
    "paper's shape": _paper,
    "mixed frame": _mixed,
    "more rows": _more,
    "files": _files,
}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(TASKS[sys.argv[1]]()))
