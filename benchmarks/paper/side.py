"""What the paper says beside its table: what back-propagation costs, and when solves are stable."""

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from benchmarks.baselines.mlp import MLPBaselineClassifier
from benchmarks.recipes import RECIPES, SHAPE, Parameters
from benchmarks.tasks import load_task
from benchmarks.timing import seconds
from protopinv import ProtoPINVClassifier
from protopinv.solve import ridge_solve

REPEATS = 3
RIDGES = (1.0, 1e-2, 1e-4, 1e-6, 1e-8)
CONDITION = 1e4
SHARED = ("hidden_sizes", "n_components", "max_epochs", "batch_size", "early_stopping", "scaling")

Work = Callable[[], Mapping[str, Any]]


def side_figures(datasets: tuple[str, ...], *, device: str, quick: bool) -> dict[str, Work]:
    """Name and work of each."""
    return {
        "cost": partial(cost, datasets[0], device=device, quick=quick),
        "numerics": partial(numerics, device=device),
    }


def cost(dataset: str, *, device: str, quick: bool) -> dict[str, Any]:
    """Seconds and peak memory of one network trained both ways, full batch, in the same loop."""
    task = load_task(dataset, quick=quick)
    shared: Parameters = {name: SHAPE[name] for name in SHARED}
    if quick:
        shared["max_epochs"] = 5
    ours = {**SHAPE, **RECIPES[dataset], **shared, "device": device}
    builds: dict[str, Any] = {
        "bank": partial(ProtoPINVClassifier, **ours, random_state=0),
        "back-propagation": partial(
            MLPBaselineClassifier, **shared, lr=0.01, device=device, random_state=0
        ),
    }
    costs: dict[str, Any] = {}
    for name, build in builds.items():
        build().fit(task.train.X, task.train.y)  # warms up
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        times = [
            seconds(partial(build().fit, task.train.X, task.train.y), device)
            for _ in range(REPEATS)
        ]
        peak = torch.cuda.max_memory_allocated() / 1e6 if device == "cuda" else None
        costs[name] = {
            "seconds": statistics.median(times),
            "all": times,
            "peak_megabytes": peak,
        }
    return {"dataset": dataset, **costs}


def numerics(*, device: str) -> dict[str, Any]:
    """Relative errors of weights solved in float32, against the same in float64 by SVD.

    The matrix has the paper's shape and singular values from 1 down to one over its condition; the
    system's own is about its square over the ridge.
    """
    generator = torch.Generator().manual_seed(0)
    p, d, h = SHAPE["n_prototypes"], SHAPE["n_components"] + 1, SHAPE["hidden_sizes"][0]

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    left, right = torch.linalg.qr(draw(p, p))[0], torch.linalg.qr(draw(d, p))[0]
    sizes = torch.logspace(0, -torch.log10(torch.tensor(CONDITION)).item(), p, dtype=torch.float64)
    A, T = (left * sizes) @ right.T, draw(p, h)
    errors: dict[str, dict[str, float]] = {}
    for ridge in RIDGES:
        exact = ridge_solve(A, T, torch.tensor(ridge, dtype=torch.float64), form="svd").weights[0]
        errors[f"{ridge:g}"] = {
            form: _error(A, T, ridge, form, exact, device) for form in ("dual", "svd")
        }
    return {"condition": CONDITION, "errors": errors}


def _error(
    A: torch.Tensor, T: torch.Tensor, ridge: float, form: str, exact: torch.Tensor, device: str
) -> float:
    rough = [tensor.to(device, torch.float32) for tensor in (A, T, torch.tensor(ridge))]
    W = ridge_solve(*rough, form=form).weights[0].cpu().double()
    return float((W - exact).norm() / exact.norm())
