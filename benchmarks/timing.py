"""How long work takes on a machine that is never quite idle, and what the machine could do."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from protopinv.kernels import fast_bfloat16

Work = Callable[[], object]
Result = TypeVar("Result")
# Parts of a profile that are named.
PARTS = 12


def synchronize(device: str) -> None:
    """Wait until the device has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def timed(work: Callable[[], Result], device: str = "cpu") -> tuple[float, Result]:
    """Wall-clock seconds of one call, until the device has finished, and its result."""
    synchronize(device)
    started = time.perf_counter()
    result = work()
    synchronize(device)
    return time.perf_counter() - started, result


def seconds(work: Work, device: str = "cpu") -> float:
    """Wall-clock seconds of one call, until the device has finished."""
    return timed(work, device)[0]


def medians(works: Mapping[str, Work], *, repeats: int, device: str) -> dict[str, float]:
    """Median seconds of each; they take turns, so that all see the same machine.

    A first round, which warms up, is not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats + 1):
        for name, work in works.items():
            times[name].append(seconds(work, device))
    return {name: statistics.median(spent[1:]) for name, spent in times.items()}


def by_part(work: Work, device: str) -> dict[str, float]:
    """Seconds of one call by operation, or by kernel on a GPU, the longest first.

    A profiler takes time itself: look at shares.
    """
    gpu = device == "cuda"
    activity = ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU
    with profile(activities=[activity], record_shapes=not gpu) as profiled:
        seconds(work, device)
    parts: defaultdict[str, float] = defaultdict(float)
    for event in profiled.key_averages(group_by_input_shape=not gpu):
        name = f"{event.key[:60]} {_shapes(event.input_shapes)}".strip()
        parts[name] += 1e-6 * (event.self_device_time_total if gpu else event.self_cpu_time_total)
    longest = sorted(parts.items(), key=lambda part: -part[1])[:PARTS]
    return {**dict(longest), "everything else": sum(parts.values()) - sum(t for _, t in longest)}


def _shapes(inputs: Sequence[Sequence[int]] | None) -> str:
    """Those of matrices: other inputs of an operation say little."""
    return " ".join("x".join(map(str, shape)) for shape in inputs or () if len(shape) == 2)


@dataclass(frozen=True)
class Machine:
    """Measured ceilings: operations a second in large products, bytes a second in copies.

    ``bfloat16`` is None where there are no instructions for it.
    """

    float32: float
    bfloat16: float | None
    bandwidth: float

    def floor(self, operations: float, moved: float, kind: str) -> float:
        """The least seconds for so many operations and so many bytes moved."""
        rate = self.bfloat16 if kind == "bfloat16" else self.float32
        if rate is None:
            raise AssertionError("there is no bfloat16 here")
        return max(operations / rate, moved / self.bandwidth)


def measure_machine(device: str, *, repeats: int) -> Machine:
    """Products and copies large enough to fill the device."""
    size = 8192 if device == "cuda" else 2048
    numbers = 2**28 if device == "cuda" else 2**25
    factors = torch.randn(2, size, size, device=device)
    source = torch.randn(numbers, device=device)
    target = torch.empty_like(source)
    works: dict[str, Work] = {
        "float32": lambda: factors[0] @ factors[1],
        "copy": lambda: target.copy_(source),
    }
    if fast_bfloat16(torch.device(device)):
        rough = factors.bfloat16()
        works["bfloat16"] = lambda: rough[0] @ rough[1]
    times = medians(works, repeats=repeats, device=device)
    operations = 2 * size**3
    return Machine(
        operations / times["float32"],
        operations / times["bfloat16"] if "bfloat16" in times else None,
        2 * source.nbytes / times["copy"],
    )


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The slope of log time over log size, by least squares."""
    x, y = (torch.tensor(values, dtype=torch.float64).log() for values in (sizes, times))
    x = x - x.mean()
    return float((x * (y - y.mean())).sum() / x.square().sum())


def crossing(
    sizes: Sequence[float], first: Sequence[float], second: Sequence[float]
) -> float | None:
    """The size at which the second becomes as slow as the first, between sizes that were measured.

    None where it never does.
    """
    logs = torch.tensor(sizes, dtype=torch.float64).log()
    ahead = torch.tensor(first).double().log() - torch.tensor(second).double().log()
    for left in range(len(sizes) - 1):
        a, b = float(ahead[left]), float(ahead[left + 1])
        if a > 0 >= b:
            share = a / (a - b)
            return float(torch.exp(logs[left] + share * (logs[left + 1] - logs[left])))
    return None
