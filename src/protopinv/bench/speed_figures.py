"""The figures of ``bench speed``: our time, the peer's, and what the machine could do."""

import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from torch import Generator

from protopinv.baselines.mlp import WeightStep, first_weights
from protopinv.bench.listing import PaperListing
from protopinv.bench.methods import SHAPE, Parameters
from protopinv.bench.tasks import Task
from protopinv.bench.timing import Machine, by_part, medians, seconds
from protopinv.estimators import ProtoPINVClassifier
from protopinv.kernels import switched_off
from protopinv.train.bank_step import BankStep
from protopinv.train.capture import WARM_UP, CapturedStep
from protopinv.train.config import TrainConfig
from protopinv.train.loop import train
from protopinv.train.prepare import LabelledRows, first_bank, prepare
from protopinv.train.rows import Rows
from protopinv.train.step import Step

CLASSES = 10
PAPER: Parameters = {**SHAPE, "lr": 0.05}
PLAIN = {"row_dtype": "same"}
ROUGH = {"row_dtype": "bfloat16"}
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
# Full-batch epochs with which the paths are compared; on a CPU all 250 would take hours.
PATH_EPOCHS = {"cpu": 30, "cuda": 250}
# Several in a row: threads of one library still spin for a while when another one is called.
ONE_ROW_CALLS = 300
MANY_ROWS_CALLS = 20


def hurry_of(device: str) -> Parameters:
    """The quick fit of a device."""
    return GPU_HURRY if device == "cuda" else HURRY


class Figures:
    """The figures of a device; what they share is made once."""

    def __init__(
        self, device: str, machine: Machine, task: Task, *, repeats: int, seeds: int, quick: bool
    ) -> None:
        self.device, self.machine, self.task = device, machine, task
        self.repeats, self.seeds, self.quick = repeats, seeds, quick
        self.epochs = 4 if quick else PATH_EPOCHS[device]
        self._rows: dict[str, tuple[Rows, Rows]] = {}

    def all(self) -> dict[str, Callable[[], Mapping[str, Any]]]:
        """Name and work of each."""
        if self.device == "cuda":
            return {
                "250 epochs": self.whole_training,
                "step against an MLP": self.step_against_mlp,
                "fit": self.fit,
                "profile": self.profile,
            }
        return {
            "epoch": self.epoch,
            "profile": self.profile,
            "fit": self.race,
            "one row": self.one_row,
            "many rows": self.many_rows,
            "memory": self.memory,
            "start": self.start,
        }

    def paths(self) -> dict[str, tuple[Parameters, Any]]:
        """Ways to the same result: number types, with fast paths and without."""
        return {
            "float32": (PLAIN, nullcontext),
            "float32, plain paths": (PLAIN, switched_off),
            "bfloat16 rows": (ROUGH, nullcontext),
            "bfloat16 rows, plain paths": (ROUGH, switched_off),
        }

    def accuracy(self, path: str, seed: int) -> Mapping[str, Any]:
        """Full-batch training by one path, scored on held-out rows."""
        options, context = self.paths()[path]
        with context():
            step, rows, held_out = self._step(options, seed, epochs=self.epochs)
            spent = seconds(lambda: train(step, rows, clock=time.perf_counter), self.device)
            score, _ = step.evaluate(held_out)
        return {"held_out": float(score), "seconds": spent, "epochs": self.epochs}

    def epoch(self) -> Mapping[str, Any]:
        """A full-batch epoch against the paper's listing, in both number types."""
        exact, rows, _ = self._step(PLAIN, 0)
        rough, rough_rows, _ = self._step(ROUGH, 0)
        found = medians(
            {
                "listing": self._listing(rows).epoch,
                "float32": lambda: float(exact(rows, 0.1).loss),
                "bfloat16": lambda: float(rough(rough_rows, 0.1).loss),
            },
            repeats=self.repeats,
            device=self.device,
        )
        floors = {kind: self._floor(len(rows), kind) for kind in ("float32", "bfloat16")}
        return {"seconds": found, "floor": floors}

    def whole_training(self) -> Mapping[str, Any]:
        """250 full-batch epochs from projected rows on the device, against the listing."""

        def run(options: Parameters) -> None:
            step, rows, _ = self._step(options, 0)
            train(step, rows, clock=time.perf_counter)

        listing = self._listing(self._rows_of(PLAIN)[0])
        epochs = TrainConfig(**self._config(PLAIN)).max_epochs
        found = medians(
            {
                "listing": lambda: [listing.epoch() for _ in range(epochs)],
                "float32": partial(run, PLAIN),
                "bfloat16": partial(run, ROUGH),
            },
            repeats=self.repeats,
            device=self.device,
        )
        n = len(self._rows_of(PLAIN)[0])
        floors = {kind: epochs * self._floor(n, kind) for kind in ("float32", "bfloat16")}
        return {"seconds": found, "floor": floors, "epochs": epochs}

    def step_against_mlp(self) -> Mapping[str, Any]:
        """Our step and one of an MLP of the same width, all captured, in the same loop.

        The MLP once with our kernels for its data pass and update, and once with torch's.
        """
        ours, rows, _ = self._step(ROUGH, 0)
        config = TrainConfig(**self._config(ROUGH))
        sizes = (rows.X.shape[1], *config.widths, CLASSES)
        generator = Generator(self.device).manual_seed(0)
        steps: dict[str, Callable[[], None]] = {"ours": _many(ours, rows)}
        for name, context in (("mlp", nullcontext), ("mlp, plain paths", switched_off)):
            with context():
                first = first_weights(sizes, Generator().manual_seed(0))
                weights = first.to(rows.X.device, config.dtype)
                steps[name] = _many(WeightStep(weights, config, 0.0, generator), rows)
        found = medians(steps, repeats=self.repeats, device=self.device)
        each = {name: value / STEPS for name, value in found.items()}
        return {"seconds": each, "floor": self._floor(len(rows), "bfloat16")}

    def profile(self) -> Mapping[str, Any]:
        """Seconds of one step in each number type by operation, or by kernel on a GPU."""
        found = {}
        for kind, options in (("float32", PLAIN), ("bfloat16", ROUGH)):
            step, rows, _ = self._step(options, 0)
            taken: Callable[[Rows, float], Any] = step
            if self.device == "cuda":
                taken = CapturedStep(step, rows)
            for _ in range(WARM_UP + 1):
                taken(rows, 0.1)
            found[kind] = by_part(partial(taken, rows, 0.1), self.device)
        return found

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
            subprocess.run(command, capture_output=True, check=False)  # noqa: S603

        works = {name: partial(run, program) for name, program in programs.items()}
        return {"seconds": medians(works, repeats=3, device="cpu")}

    def _prediction(self, n: int, calls: int) -> Mapping[str, Any]:
        X, y = self._all_rows()
        some = slice(0, 2_000)
        ours = ProtoPINVClassifier(
            hidden_sizes=PEER_WIDTH, max_epochs=2, warmup_epochs=1, random_state=0, device="cpu"
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
        parts = (self.task.train, self.task.held_out)
        X = _pixels(np.concatenate([part.X for part in parts]))
        return X, np.concatenate([part.y for part in parts])

    def _config(self, options: Parameters, epochs: int | None = None) -> Parameters:
        chosen = {**PAPER, **options}
        if epochs is not None or self.quick:
            epochs = 4 if epochs is None else epochs
            chosen |= {"max_epochs": epochs, "warmup_epochs": max(1, epochs // 12)}
        return chosen

    def _rows_of(self, options: Parameters) -> tuple[Rows, Rows]:
        """Projected rows to train on and to validate on, kept for the next figure."""
        kind = options["row_dtype"]
        if kind not in self._rows:
            X = np.concatenate([self.task.train.X, self.task.held_out.X])
            y = np.concatenate([self.task.train.y, self.task.held_out.y])
            source = LabelledRows(X, y.astype(np.int64), CLASSES)
            held_out = np.arange(len(self.task.train.X), len(X))
            config = TrainConfig(**{**PAPER, **options})
            prepared = prepare(source, config, torch.device(self.device), seed=0, held_out=held_out)
            if prepared.validation is None:
                raise AssertionError("rows were held out")
            self._rows[kind] = prepared.rows, prepared.validation
        return self._rows[kind]

    def _step(
        self, options: Parameters, seed: int, epochs: int | None = None
    ) -> tuple[BankStep, Rows, Rows]:
        rows, held_out = self._rows_of(options)
        config = TrainConfig(**self._config(options, epochs))
        bank = first_bank(rows, CLASSES, config, Generator().manual_seed(seed))
        generator = Generator(self.device).manual_seed(seed)
        return BankStep(bank.leaves(), config, generator=generator), rows, held_out

    def _listing(self, rows: Rows) -> PaperListing:
        config = TrainConfig(**PAPER)
        return PaperListing(
            rows.X,
            rows.y,
            p=config.n_prototypes,
            h=config.widths[0],
            k=CLASSES,
            lam=config.ridges[0],
        )

    def _floor(self, n: int, kind: str) -> float:
        """Seconds an epoch's products with rows take at the machine's own rate.

        On a CPU in float32 the way forward goes through the factors. Rows are read twice, the
        hidden layer is written and read once each way.
        """
        config = TrainConfig(**PAPER)
        d, h, p = config.n_components or 0, config.widths[0], config.n_prototypes
        factored = kind == "float32" and self.device == "cpu"
        forward = p * (d + h) if factored else d * h
        size = 2 if kind == "bfloat16" else 4
        operations = 2 * n * (forward + d * h + 3 * h * CLASSES)
        return self.machine.floor(operations, n * size * (2 * d + 4 * h), kind)


STEPS = 50


def _many(step: Step, rows: Rows) -> Callable[[], None]:
    """A run of captured steps, captured here."""
    taken = CapturedStep(step, rows)
    for _ in range(WARM_UP + 1):
        taken(rows, 0.1)

    def run() -> None:
        for _ in range(STEPS):
            taken(rows, 0.1)

    return run


def _pixels(X: Any) -> Any:
    """Pixels from 0 to 1 in float32."""
    return (X / np.float32(255)).astype(np.float32)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the peer's remark that it has not converged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
