"""Figures of ``bench speed`` about steps: our time, the peer's, and what the machine could do."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Generator

from protopinv.baselines.mlp import WeightStep, first_weights
from protopinv.bench.listing import PaperListing
from protopinv.bench.shape import SHAPE, Parameters
from protopinv.bench.steps import OBJECTIVE, SOME_RATE, first_step, projected_rows, ready_step
from protopinv.bench.tasks import CLASSES, Task
from protopinv.bench.timing import Machine, by_part, medians, seconds
from protopinv.kernels import switched_off
from protopinv.kernels.bfloat16 import fast_bfloat16
from protopinv.train.bank_step import BankStep
from protopinv.train.config import TrainConfig
from protopinv.train.loop import train
from protopinv.train.rows import Rows
from protopinv.train.step import Step

PAPER: Parameters = {**SHAPE, "lr": 0.05}
PLAIN = {"row_dtype": "same"}
ROUGH = {"row_dtype": "bfloat16"}
# Full-batch epochs with which the paths are compared; on a CPU all 250 would take hours.
PATH_EPOCHS = {"cpu": 30, "cuda": 250}


def path_of(kind: str) -> str:
    """What a path is called in a record, by the number type of its rows."""
    return "float32" if kind == "float32" else f"{kind} rows"


class Figures:
    """The figures of a device; what they share is made once.

    Where a device has no products in bfloat16 its figures are left out: they would take hours.
    """

    def __init__(
        self, device: str, machine: Machine, task: Task, *, repeats: int, quick: bool
    ) -> None:
        self.device, self.machine, self.task = device, machine, task
        self.repeats, self.quick = repeats, quick
        self.epochs = 4 if quick else PATH_EPOCHS[device]
        self.kinds = {"float32": PLAIN}
        if fast_bfloat16(torch.device(device)):
            self.kinds["bfloat16"] = ROUGH
        self._rows: dict[str, tuple[Rows, Rows]] = {}

    def all(self) -> dict[str, Callable[[], Mapping[str, Any]]]:
        """Name and work of each."""
        if self.device != "cuda":
            return {"epoch": self.epoch, "profile": self.profile}
        step = {"step against an MLP": self.step_against_mlp} if "bfloat16" in self.kinds else {}
        return {"250 epochs": self.whole_training, **step, "profile": self.profile}

    def paths(self) -> dict[str, tuple[Parameters, Any]]:
        """Ways to the same result: number types, with fast paths and without."""
        found: dict[str, tuple[Parameters, Any]] = {}
        for kind, options in self.kinds.items():
            name = path_of(kind)
            found |= {name: (options, nullcontext), f"{name}, plain paths": (options, switched_off)}
        return found

    def accuracy(self, path: str, seed: int) -> Mapping[str, Any]:
        """Full-batch training by one path, scored on held-out rows."""
        options, context = self.paths()[path]
        with context():
            step, rows, held_out = self._step(options, seed, epochs=self.epochs)
            spent = seconds(lambda: train(step, rows, clock=time.perf_counter), self.device)
            score, _ = step.evaluate(held_out)
        return {"held_out": float(score), "seconds": spent, "epochs": self.epochs}

    def epoch(self) -> Mapping[str, Any]:
        """A full-batch epoch against the paper's listing, in every number type."""

        def epoch(options: Parameters) -> Callable[[], object]:
            step, rows, _ = self._step(options, 0)
            return lambda: float(step(rows, SOME_RATE).loss)

        rows, _ = self._rows_of(PLAIN)
        works: dict[str, Callable[[], object]] = {"listing": self._listing(rows).epoch}
        works |= {kind: epoch(options) for kind, options in self.kinds.items()}
        found = medians(works, repeats=self.repeats, device=self.device)
        floors = {kind: self._floor(len(rows), kind) for kind in self.kinds}
        return {"seconds": found, "floor": floors}

    def whole_training(self) -> Mapping[str, Any]:
        """250 full-batch epochs from projected rows on the device, against the listing."""

        def run(options: Parameters) -> None:
            step, rows, _ = self._step(options, 0)
            train(step, rows, clock=time.perf_counter)

        listing = self._listing(self._rows_of(PLAIN)[0])
        epochs = TrainConfig(**self._config(PLAIN)).max_epochs
        works: dict[str, Callable[[], object]] = {
            "listing": lambda: [listing.epoch() for _ in range(epochs)]
        }
        works |= {kind: partial(run, options) for kind, options in self.kinds.items()}
        found = medians(works, repeats=self.repeats, device=self.device)
        n = len(self._rows_of(PLAIN)[0])
        floors = {kind: epochs * self._floor(n, kind) for kind in self.kinds}
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
                mlp = WeightStep(weights, config, OBJECTIVE, 0.0, generator)
                steps[name] = _many(mlp, rows)
        found = medians(steps, repeats=self.repeats, device=self.device)
        each = {name: value / STEPS for name, value in found.items()}
        return {"seconds": each, "floor": self._floor(len(rows), "bfloat16")}

    def profile(self) -> Mapping[str, Any]:
        """Seconds of one step in each number type by operation, or by kernel on a GPU."""
        found = {}
        for kind, options in self.kinds.items():
            step, rows, _ = self._step(options, 0)
            found[kind] = by_part(ready_step(step, rows), self.device)
        return found

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
            config = TrainConfig(**{**PAPER, **options})
            self._rows[kind] = projected_rows(self.task, config, seed=0, device=self.device)
        return self._rows[kind]

    def _step(
        self, options: Parameters, seed: int, epochs: int | None = None
    ) -> tuple[BankStep, Rows, Rows]:
        rows, held_out = self._rows_of(options)
        config = TrainConfig(**self._config(options, epochs))
        return first_step(rows, config, seeds=(seed,)), rows, held_out

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


def _many(step: Step[Any], rows: Rows) -> Callable[[], None]:
    """A run of captured steps, captured here."""
    take = ready_step(step, rows)

    def run() -> None:
        for _ in range(STEPS):
            take()

    return run
