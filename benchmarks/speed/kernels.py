"""What our Triton kernels are worth: a captured step with them, by torch.compile, and by neither.

All steps are CUDA graphs. Each of our kernels is also replaced alone, once by the operations of
torch and once by a function that torch.compile turns into kernels.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.recipes import SHAPE, recipe_config
from benchmarks.record import Content, Record, Records
from benchmarks.text import markdown, readable
from benchmarks.timing import medians
from benchmarks.training import ready_step
from protopinv.kernels import want_kernels
from protopinv.objective import Classes
from protopinv.train.data import fold_weights
from protopinv.train.prepare import first_banks
from protopinv.train.rows import Rows
from protopinv.train.step import BankStep

# Where each kernel is asked for.
PLACES = {
    "inverse": "protopinv.solve.systems.usable",
    "last layer": "protopinv.train.data_pass.usable",
    "step check": "protopinv.train.step.usable",
    "Adam": "protopinv.train.optimizer.usable",
}
STEPS = 50
MEMBERS = 5
CLASSES = 10


class Shape(NamedTuple):
    """Rows, columns and settings of a step to time."""

    n_rows: int
    n_features: int
    members: int
    dtype: torch.dtype
    settings: Mapping[str, Any]


TABLE = {"n_prototypes": 150, "hidden_sizes": (128, 128), "ridge": 15.0, "learn_scale": True}
TABLE |= {"batch_size": None, "projection": "none", "scaling": "feature", "label_smoothing": 0.1}
SHAPES = {
    "the paper's": Shape(54_000, 400, 1, torch.bfloat16, {**SHAPE, "ridge": 10.0, "lr": 0.05}),
    "five banks, folds": Shape(2_048, 30, MEMBERS, torch.float32, TABLE),
    "five banks, no folds": Shape(2_048, 30, MEMBERS, torch.float32, TABLE),
}


def measure_kernels(records: Records, *, repeats: int) -> Record:
    """A cell for every shape: seconds of a step, by what serves each part."""
    want_kernels()
    record = records.open("kernels", plan={"repeats": repeats, "steps": STEPS}, device="cuda")
    for name in SHAPES:
        record.cell(name, partial(_seconds, name, repeats))
        record.say(f"{name}: done")
    record.finish()
    return record


def _seconds(name: str, repeats: int) -> dict[str, float]:
    shape = SHAPES[name]
    works: dict[str, Callable[[], object]] = {"kernels": _captured(name, shape)}
    ways = {f"torch for {part}": _by_torch([part]) for part in PLACES}
    ways |= {f"compiled {part}": _compiled([part]) for part in COMPILED}
    ways["torch for all"] = _by_torch(list(PLACES))
    ways["compiled, inverse by torch"] = _compiled(list(COMPILED), beside=["inverse"])
    for way, context in ways.items():
        with context:
            works[way] = _captured(name, shape)
    times = medians(works, repeats=repeats, device="cuda")
    return {way: seconds / STEPS for way, seconds in times.items()}


def _captured(name: str, shape: Shape) -> Callable[[], object]:
    generator = torch.Generator("cuda").manual_seed(0)
    X = torch.randn(shape.n_rows, shape.n_features, generator=generator, device="cuda")
    y = torch.arange(shape.n_rows, device="cuda") % CLASSES
    rows = Rows(X.to(shape.dtype), y)
    objective = Classes(torch.arange(CLASSES).numpy())
    kind = "bfloat16" if shape.dtype == torch.bfloat16 else "same"
    config = recipe_config({**shape.settings, "row_dtype": kind})
    bank = first_banks(rows, objective, config, range(shape.members))
    if name == "five banks, folds":
        fold = torch.arange(shape.n_rows, device="cuda") % (MEMBERS - 1)
        n = shape.n_rows
        masses = torch.full((MEMBERS - 1,), n / (MEMBERS - 1))
        weight, held = fold_weights(torch.ones(1, n), fold.cpu(), masses, 1, n)
        weight, held = weight.to(fold.device, shape.dtype), held.to(fold.device, shape.dtype)
        rows = replace(rows, weight=weight, held=held, fold=fold)
    step = BankStep(bank, config, objective, generator=generator)
    one = ready_step(step, rows)

    def run() -> None:
        for _ in range(STEPS):
            one()

    return run


@contextmanager
def _by_torch(parts: list[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for part in parts:
            stack.enter_context(patch(PLACES[part], lambda _: False))
        yield


@contextmanager
def _compiled(parts: list[str], beside: list[str] | None = None) -> Iterator[None]:
    with ExitStack() as stack:
        for part in parts:
            stack.enter_context(patch(*COMPILED[part]))
        stack.enter_context(_by_torch(beside or []))
        yield


@partial(torch.compile, dynamic=False)
def _adam(
    tensor: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    *,
    steps: Tensor,
    skip: Tensor,
    factor: Tensor,
    rates: Tensor,
    decays: Tensor,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """The interface of ``kernels.update.adam_update``."""
    steps, skipped, rate, decay = (
        each.view(-1, *[1] * (tensor.ndim - 1)) for each in (steps, skip, rates * factor, decays)
    )
    new_mean = torch.lerp(mean, gradient, 1 - betas[0])
    new_square = betas[1] * square + (1 - betas[1]) * gradient.square()
    size = (new_square / (1 - betas[1] ** steps)).sqrt() + eps
    new = tensor * (1 - rate * decay) - rate * (new_mean / (1 - betas[0] ** steps)) / size
    for old, value in ((tensor, new), (mean, new_mean), (square, new_square)):
        old.copy_(torch.where(skipped, old, value))


@partial(torch.compile, dynamic=False)
def _check(
    loss: Tensor, error: Tensor, gradients: list[Tensor], failures: Tensor, tolerance: float
) -> tuple[Tensor, Tensor]:
    """The interface of ``kernels.update.check_step``."""
    norms = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0)
    solved = (error < tolerance).all(-1)
    skip = ~((loss + norms).isfinite() & solved)
    failures += torch.stack([~solved, skip & solved], dim=1)
    return skip, torch.where(skip, torch.nan, loss)


class _Last(NamedTuple):
    """Loss and gradients, all there already."""

    loss: Tensor
    gradient: Tensor
    sums: Tensor

    def finish(self, dW: Tensor, dz: Tensor) -> Tensor:
        """The losses; their gradients are put."""
        dW.copy_(self.gradient)
        dz.copy_(self.sums)
        return self.loss


def _last_layer(
    Z: Tensor,
    W: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    activation: str,
    *,
    smoothing: float,
    scale: float,
) -> _Last:
    """The interface of ``kernels.head.last_layer``."""
    return _Last(*_head(Z, W, labels, weight, activation, smoothing, scale))


@partial(torch.compile, dynamic=False)
def _head(
    Z: Tensor,
    W: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    activation: str,
    smoothing: float,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    if activation != "relu":
        raise AssertionError("only relu is timed")
    n, (m, h, k) = len(Z), (W.shape[0], W.shape[1] - 1, W.shape[2])
    by_member = Z.view(n, m, h).transpose(0, 1)
    A = by_member.clamp_min(0)
    last = W.to(Z.dtype)
    outputs = torch.baddbmm(last[:, :1], A, last[:, 1:]).float()
    logs = functional.log_softmax(outputs, -1)
    classes = torch.arange(k, device=Z.device)
    target = (labels[:, None] == classes) * (1 - smoothing) + smoothing / k
    counts = scale if weight is None else scale * weight[..., None]
    loss = (-(target * logs) * counts).sum((1, 2))
    G = ((logs.exp() - target) * counts).to(Z.dtype)
    dW = torch.cat([G.sum(1, keepdim=True, dtype=W.dtype), (A.mT @ G).to(W.dtype)], dim=1)
    dZ = (G @ last[:, 1:].mT) * (by_member > 0)
    by_member.copy_(dZ)
    return loss, dW, dZ.sum(1, dtype=W.dtype)


COMPILED: dict[str, tuple[str, Callable[..., Any]]] = {
    "last layer": ("protopinv.kernels.head.last_layer", _last_layer),
    "step check": ("protopinv.kernels.update.check_step", _check),
    "Adam": ("protopinv.kernels.update.adam_update", _adam),
}


def kernels_table(record: Content) -> list[str]:
    """A line for every way, a column for every shape: time, and time relative to our kernels."""
    cells = record["cells"]
    ways = list(next(iter(cells.values())))
    rows = [
        [
            way,
            *(
                f"{readable(cell[way])} ({cell[way] / cell['kernels']:.2f})"
                for cell in cells.values()
            ),
        ]
        for way in ways
    ]
    return markdown(["a step", *cells], rows)
