"""Epochs and steps: our time, the peer's, and what the machine could do."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional

from benchmarks.baselines.mlp import WeightStep, first_weights
from benchmarks.population import run_to_end
from benchmarks.recipes import SHAPE, Parameters, recipe_config
from benchmarks.tasks import CLASSES, OBJECTIVE, Task
from benchmarks.timing import Machine, by_part, medians, seconds
from benchmarks.training import SOME_RATE, first_step, projected_rows, ready_step
from protopinv.kernels import fast_bfloat16, switched_off
from protopinv.train.config import TrainConfig
from protopinv.train.rows import Rows
from protopinv.train.step import BankStep, TrainingStep

PAPER: Parameters = {**SHAPE, "lr": 0.05, "ridge": 10.0}
PLAIN = {"row_dtype": "same"}
ROUGH = {"row_dtype": "bfloat16"}
# Full-batch epochs with which the paths are compared; on a CPU all 250 would take hours.
PATH_EPOCHS = {"cpu": 30, "cuda": 250}
STEPS = 50  # that are timed in a row


def path_of(kind: str) -> str:
    """The name of a path in a record, by the number type of its rows."""
    return "float32" if kind == "float32" else f"{kind} rows"


class PaperListing:
    """One full-batch epoch of the listing in "Implementation Details (PyTorch)"."""

    def __init__(self, X: Tensor, y: Tensor, *, p: int, h: int, k: int, lam: float) -> None:
        self.X, self.y, self.lam = X, y, lam
        self.Xp = torch.randn(p, X.shape[1]).to(X).requires_grad_()
        self.Hp = torch.randn(p, h).to(X).requires_grad_()
        self.Yp = torch.eye(k).repeat(-(-p // k), 1)[:p].to(X).requires_grad_()
        self.optimizer = torch.optim.Adam([self.Xp, self.Hp, self.Yp], lr=1e-3)

    def epoch(self) -> float:
        """W1, W2 from explicit pseudo-inverses, all rows forward, backward, Adam."""
        W1 = pinv_ridge(add_bias(self.Xp), self.lam) @ self.Hp
        W2 = pinv_ridge(add_bias(torch.relu(self.Hp)), self.lam) @ self.Yp
        H1 = add_bias(torch.relu(add_bias(self.X) @ W1))
        loss = functional.cross_entropy(H1 @ W2, self.y)
        loss = loss + 1e-6 * (W1.norm() ** 2 + W2.norm() ** 2)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


def pinv_ridge(A: Tensor, lam: float) -> Tensor:
    """(A'A + lam I)^-1 A'."""
    At = A.transpose(0, 1)
    identity = torch.eye(A.shape[1], device=A.device, dtype=A.dtype)
    pseudo_inverse: Tensor = torch.linalg.solve(At @ A + lam * identity, At)
    return pseudo_inverse


def add_bias(Z: Tensor) -> Tensor:
    """[1, Z]."""
    return torch.cat([torch.ones(len(Z), 1, device=Z.device, dtype=Z.dtype), Z], dim=1)


class StepFigures:
    """The figures of a device about epochs and steps; what they share is made once.

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
        return {"250 epochs": self.full_training, **step, "profile": self.profile}

    def paths(self) -> dict[str, tuple[Parameters, Any]]:
        """Ways to the same result: number types, with fast paths and without."""
        paths: dict[str, tuple[Parameters, Any]] = {}
        for kind, options in self.kinds.items():
            name = path_of(kind)
            paths |= {name: (options, nullcontext), f"{name}, plain paths": (options, switched_off)}
        return paths

    def accuracy(self, path: str, seed: int) -> Mapping[str, Any]:
        """Full-batch training by one path, scored on held-out rows."""
        options, context = self.paths()[path]
        with context():
            step, rows, held_out = self._step(options, seed, epochs=self.epochs)
            spent = seconds(lambda: run_to_end(step, rows, clock=time.perf_counter), self.device)
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
        times = medians(works, repeats=self.repeats, device=self.device)
        floors = {kind: self._floor(len(rows), kind) for kind in self.kinds}
        return {"seconds": times, "floor": floors}

    def full_training(self) -> Mapping[str, Any]:
        """250 full-batch epochs from projected rows on the device, against the listing."""

        def run(options: Parameters) -> None:
            step, rows, _ = self._step(options, 0)
            run_to_end(step, rows, clock=time.perf_counter)

        rows, _ = self._rows_of(PLAIN)
        listing, epochs = self._listing(rows), self._config(PLAIN).max_epochs
        works: dict[str, Callable[[], object]] = {
            "listing": lambda: [listing.epoch() for _ in range(epochs)]
        }
        works |= {kind: partial(run, options) for kind, options in self.kinds.items()}
        times = medians(works, repeats=self.repeats, device=self.device)
        floors = {kind: epochs * self._floor(len(rows), kind) for kind in self.kinds}
        return {"seconds": times, "floor": floors, "epochs": epochs}

    def step_against_mlp(self) -> Mapping[str, Any]:
        """Our step and one of an MLP of the same width, all captured, in the same loop.

        The MLP once with our kernels for its data pass and update, and once with torch's.
        """
        ours, rows, _ = self._step(ROUGH, 0)
        config = self._config(ROUGH)
        sizes = (rows.X.shape[1], *config.widths, CLASSES)
        generator = Generator(self.device).manual_seed(0)
        steps: dict[str, Callable[[], None]] = {"ours": _many(ours, rows)}
        for name, context in (("mlp", nullcontext), ("mlp, plain paths", switched_off)):
            with context():
                first = first_weights(sizes, Generator().manual_seed(0))
                weights = first.to(rows.X.device, config.dtype)
                mlp = WeightStep(weights, config, OBJECTIVE, 0.0, generator)
                steps[name] = _many(mlp, rows)
        times = medians(steps, repeats=self.repeats, device=self.device)
        each = {name: value / STEPS for name, value in times.items()}
        return {"seconds": each, "floor": self._floor(len(rows), "bfloat16")}

    def profile(self) -> Mapping[str, Any]:
        """Seconds of one step in each number type by operation, or by kernel on a GPU."""
        profiles = {}
        for kind, options in self.kinds.items():
            step, rows, _ = self._step(options, 0)
            profiles[kind] = by_part(ready_step(step, rows), self.device)
        return profiles

    def _config(self, options: Parameters, epochs: int | None = None) -> TrainConfig:
        chosen = {**PAPER, **options}
        if epochs is not None or self.quick:
            epochs = 4 if epochs is None else epochs
            chosen |= {"max_epochs": epochs, "warmup_epochs": max(1, epochs // 12)}
        return recipe_config(chosen)

    def _rows_of(self, options: Parameters) -> tuple[Rows, Rows]:
        """Projected rows to train on and to validate on, made once for each number type."""
        kind = options["row_dtype"]
        if kind not in self._rows:
            config = recipe_config({**PAPER, **options})
            self._rows[kind] = projected_rows(self.task, config, seed=0, device=self.device)
        return self._rows[kind]

    def _step(
        self, options: Parameters, seed: int, epochs: int | None = None
    ) -> tuple[BankStep, Rows, Rows]:
        rows, held_out = self._rows_of(options)
        return first_step(rows, self._config(options, epochs), seeds=(seed,)), rows, held_out

    def _listing(self, rows: Rows) -> PaperListing:
        config = recipe_config(PAPER)
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
        config = recipe_config(PAPER)
        d, h, p = config.n_components or 0, config.widths[0], config.n_prototypes
        factored = kind == "float32" and self.device == "cpu"
        forward = p * (d + h) if factored else d * h
        size = 2 if kind == "bfloat16" else 4
        operations = 2 * n * (forward + d * h + 3 * h * CLASSES)
        return self.machine.floor(operations, n * size * (2 * d + 4 * h), kind)


def _many(step: TrainingStep, rows: Rows) -> Callable[[], None]:
    """A run of captured steps, captured here."""
    one = ready_step(step, rows)

    def run() -> None:
        for _ in range(STEPS):
            one()

    return run
