"""Figures of ``bench speed`` that a user sees: fits, predictions, memory, start."""

import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from protopinv.bench.shape import SHAPE, Parameters
from protopinv.bench.tasks import Task
from protopinv.bench.timing import medians, seconds
from protopinv.estimators import ProtoPINVClassifier

# A fit for those in a hurry: of nine with few components and epochs the one with 98 % of the
# held-out rows.
HURRY: Parameters = {
    "n_prototypes": 100,
    "hidden_sizes": 256,
    "n_components": 100,
    "ridge": 5.0,
    "batch_size": 1000,
    "max_epochs": 8,
    "warmup_epochs": 1,
    "lr": 0.06,
    "input_noise": 0.3,
    "early_stopping": False,
    "scaling": "global",
}
# The same for a GPU: of 24 with 80 to 200 epochs the shortest with more than 98.1 % of those rows.
GPU_HURRY: Parameters = {**SHAPE, "max_epochs": 150, "warmup_epochs": 12, "lr": 0.15}
GPU_HURRY |= {"input_noise": 0.5}
AIM = 0.978
PEER_WIDTH = 165
MOST_PEER_EPOCHS = 60
# Several in a row: threads of one library still spin for a while when another one is called.
ONE_ROW_CALLS = 300
MANY_ROWS_CALLS = 20


def hurry_of(device: str) -> Parameters:
    """The quick fit of a device."""
    return GPU_HURRY if device == "cuda" else HURRY


class UserFigures:
    """The figures of a device."""

    def __init__(self, device: str, task: Task, *, repeats: int, seeds: int, quick: bool) -> None:
        self.device, self.task = device, task
        self.repeats, self.seeds, self.quick = repeats, seeds, quick

    def all(self) -> dict[str, Callable[[], Mapping[str, Any]]]:
        """Name and work of each; predictions are made on the host."""
        if self.device == "cuda":
            return {"fit": self.fit}
        return {
            "fit": self.race,
            "one row": self.one_row,
            "many rows": self.many_rows,
            "memory": self.memory,
            "start": self.start,
        }

    def fit(self) -> Mapping[str, Any]:
        """From host arrays to a fitted model, everything included, once the process is warm."""
        self._fits(GPU_HURRY, seeds=1)
        return self._fits(GPU_HURRY, seeds=self.seeds)

    def _fits(self, hurry: Parameters, seeds: int) -> dict[str, Any]:
        """Median seconds, and the share of the test set that is right by every seed."""
        X, y = self._all_rows()
        test = _pixels(self.task.test.X)
        spent, right = [], []
        for seed in range(seeds):
            model = ProtoPINVClassifier(**hurry, device=self.device, random_state=seed)
            spent.append(seconds(partial(model.fit, X, y), self.device))
            right.append(model.score(test, self.task.test.y))
        return {"seconds": {"ours": statistics.median(spent)}, "accuracy": right}

    def race(self) -> Mapping[str, Any]:
        """Seconds until 97.8 % of the test set, against scikit-learn's MLP with its defaults.

        The peer is looked at after every epoch, ours at its end; looking is not timed.
        """
        X, y = self._all_rows()
        test = _pixels(self.task.test.X)
        ours = self._fits(HURRY, seeds=self.seeds)
        peer = MLPClassifier((PEER_WIDTH,), random_state=0)
        peer_seconds, peer_score, epochs = 0.0, 0.0, 0
        most = 2 if self.quick else MOST_PEER_EPOCHS
        classes = np.unique(y)
        with _quiet():
            while peer_score < AIM and epochs < most:
                peer_seconds += seconds(lambda: peer.partial_fit(X, y, classes=classes), "cpu")
                epochs += 1
                peer_score = peer.score(test, self.task.test.y)
        ours["seconds"]["peer"] = peer_seconds
        return {
            **ours,
            "peer_accuracy": peer_score,
            "peer_epochs": epochs,
        }

    def one_row(self) -> Mapping[str, Any]:
        """predict_proba of one row, on the host, by networks of about as many numbers."""
        return self._prediction(1, ONE_ROW_CALLS)

    def many_rows(self) -> Mapping[str, Any]:
        """predict_proba of all test rows."""
        return self._prediction(len(self.task.test.X), MANY_ROWS_CALLS)

    def memory(self) -> Mapping[str, Any]:
        """Peak memory of a fit over its data, each time in a process alone; Linux only."""
        if not sys.platform.startswith("linux") or self.quick:
            return {"megabytes": None}
        command = [sys.executable, "-m", "protopinv.bench.memory"]
        found = [
            float(subprocess.run(command, capture_output=True, check=True).stdout)  # noqa: S603
            for _ in range(self.seeds)
        ]
        return {"megabytes": statistics.median(found), "all": found}

    def start(self) -> Mapping[str, Any]:
        """Seconds a process takes to be ready."""
        programs = {
            "import torch": "import torch",
            "import the estimator": "from protopinv import ProtoPINVClassifier",
            "import and fit iris": "from sklearn.datasets import load_iris\n"
            "from protopinv import ProtoPINVClassifier\n"
            "ProtoPINVClassifier(max_epochs=50, early_stopping=False).fit("
            "*load_iris(return_X_y=True))",
            "command line, --help": "import sys; sys.argv[1:] = ['--help']\n"
            "from protopinv.cli import main; main()",
        }

        def run(program: str) -> None:
            command = [sys.executable, "-c", program]
            subprocess.run(command, capture_output=True, check=True)  # noqa: S603

        works = {name: partial(run, program) for name, program in programs.items()}
        return {"seconds": medians(works, repeats=3, device="cpu")}

    def _prediction(self, n: int, calls: int) -> Mapping[str, Any]:
        X, y = self._all_rows()
        some = slice(0, 2_000)
        ours = ProtoPINVClassifier(
            hidden_sizes=PEER_WIDTH,
            effort="quick",
            max_epochs=2,
            warmup_epochs=1,
            random_state=0,
            device="cpu",
        ).fit(X[some], y[some])
        with _quiet():
            peer = MLPClassifier((PEER_WIDTH,), max_iter=2, random_state=0).fit(X[some], y[some])
        rows = _pixels(self.task.test.X[:n])

        def many(model: Any) -> None:
            for _ in range(calls):
                model.predict_proba(rows)

        works = {"ours": partial(many, ours), "peer": partial(many, peer)}
        found = medians(works, repeats=self.repeats, device="cpu")
        return {"seconds": {name: value / calls for name, value in found.items()}, "rows": n}

    def _all_rows(self) -> tuple[Any, Any]:
        """Training pixels in float32 and their labels, those held out for choices among them."""
        rows = self.task.all_rows
        return _pixels(rows.X), rows.y


def _pixels(X: Any) -> Any:
    """Pixels from 0 to 1 in float32."""
    return (X / np.float32(255)).astype(np.float32)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the peer's remark that it has not converged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
