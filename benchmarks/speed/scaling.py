"""How the time of an epoch grows with every size, and where one way of computing beats another."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Generator

from benchmarks.recipes import SHAPE, recipe_config
from benchmarks.record import Record
from benchmarks.tasks import CLASSES
from benchmarks.timing import crossing, exponent, medians
from benchmarks.training import first_step, ready_step
from protopinv.solve import solve_layers
from protopinv.train.products import WideLayer
from protopinv.train.rows import Rows, chunk_rows


@dataclass(frozen=True)
class Sizes:
    """Rows, features, hidden width, prototypes, hidden layers."""

    n: int
    d: int
    h: int
    p: int
    layers: int = 1


AXES = {
    "n": "rows",
    "d": "features",
    "h": "hidden width",
    "p": "prototypes",
    "layers": "hidden layers",
}
BASE = {"cpu": Sizes(10_000, 200, 256, 100), "cuda": Sizes(100_000, 400, 512, 150)}
# Each size in turn, times these; the number of layers is one of the last ones.
FACTORS = (0.5, 1.0, 2.0, 4.0, 8.0)
LAYERS = (1, 2, 3, 4)
# Prototypes at which two ways are compared, for so many features and hidden numbers.
BREAK_EVEN = (25, 50, 100, 200, 400, 800)
BREAK_EVEN_SIZES = Sizes(10_000, 200, 256, 0)


def measure_scaling(record: Record, device: str, *, repeats: int, quick: bool) -> None:
    """Cells ``scaling/{axis}``, ``break-even/solve`` and, on a CPU, ``break-even/forward``."""
    base = BASE[device]
    if quick:
        base = replace(base, n=500)
    for axis, title in AXES.items():
        sizes = LAYERS if axis == "layers" else [round(f * asdict(base)[axis]) for f in FACTORS]
        work = partial(_along, base, axis, sizes, device, repeats)
        cell = record.cell(f"scaling/{axis}", work)
        record.say(f"{title}: time grows as the power {cell['exponent']:.2f}")
    record.cell("break-even/solve", partial(_solves, device, repeats))
    if device == "cpu":
        record.cell("break-even/forward", partial(_forwards, repeats, 500 if quick else None))


def _along(
    base: Sizes, axis: str, sizes: Sequence[int], device: str, repeats: int
) -> Mapping[str, Any]:
    """Seconds of an epoch while one size changes, and the power they grow with in the end."""
    works = {str(size): _epoch(replace(base, **{axis: size}), device) for size in sizes}
    times = list(medians(works, repeats=repeats, device=device).values())
    power = exponent(sizes[-3:], times[-3:])
    return {"sizes": list(sizes), "seconds": times, "exponent": power, "base": asdict(base)}


def _epoch(sizes: Sizes, device: str) -> Callable[[], object]:
    own = {"n_prototypes": sizes.p, "hidden_sizes": (sizes.h,) * sizes.layers}
    config = recipe_config({**SHAPE, **own, "lr": 0.05, "ridge": 10.0})
    generator = Generator().manual_seed(0)
    X = torch.randn(sizes.n, sizes.d, generator=generator).to(device)
    rows = Rows(X, (torch.arange(sizes.n) % CLASSES).to(device))
    return ready_step(first_step(rows, config, seeds=(1,)), rows)


def _solves(device: str, repeats: int) -> Mapping[str, Any]:
    """One layer's solve and its derivative, in the dual and in the primal form."""

    def work(p: int, form: str) -> Callable[[], object]:
        generator = Generator().manual_seed(0)
        d, h = BREAK_EVEN_SIZES.d, BREAK_EVEN_SIZES.h
        A, T = (torch.randn(p, n, generator=generator).to(device) for n in (d, h))
        A, T, ridge = A.requires_grad_(), T.requires_grad_(), torch.ones(1, device=device)

        def run() -> None:
            for _ in range(5):
                W = solve_layers([A], [T], ridge, form=form).weights[0]
                W.sum().backward()

        return _captured(run) if device == "cuda" else run

    return _compared("dual", "primal", work, device, repeats)


def _captured(work: Callable[[], None]) -> Callable[[], object]:
    """The work as a CUDA graph: launched one by one, small kernels would wait for the host."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        work()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        work()
    return graph.replay


def _forwards(repeats: int, n: int | None) -> Mapping[str, Any]:
    """The way forward of a layer: rows through the factors A' and S, and through W."""
    sizes = BREAK_EVEN_SIZES
    rows = sizes.n if n is None else n
    chunk = chunk_rows(sizes.h, torch.float32, torch.device("cpu"))

    def work(p: int, form: str) -> Callable[[], object]:
        generator = Generator().manual_seed(0)
        A, S = (torch.randn(p, m, generator=generator) for m in (sizes.d + 1, sizes.h))
        chunks = torch.randn(rows, sizes.d, generator=generator).split(chunk)
        layer = WideLayer((A.T @ S)[None], (A.T.contiguous(), S) if form == "factored" else None)
        return lambda: [layer(X) for X in chunks]

    return _compared("dense", "factored", work, "cpu", repeats)


def _compared(
    first: str,
    second: str,
    work: Callable[[int, str], Callable[[], object]],
    device: str,
    repeats: int,
) -> Mapping[str, Any]:
    """Seconds of both ways for every number of prototypes, and where they are equal."""
    times: dict[str, list[float]] = {first: [], second: []}
    for p in BREAK_EVEN:
        works = {form: work(p, form) for form in times}
        for form, value in medians(works, repeats=repeats, device=device).items():
            times[form].append(value)
    slower, faster = (second, first) if times[first][0] < times[second][0] else (first, second)
    equal = crossing(BREAK_EVEN, times[slower], times[faster])
    return {"sizes": list(BREAK_EVEN), "seconds": times, "equal_at": equal}
