"""A step as a CUDA graph: one launch instead of several hundred."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.train.bank_pass import Manner
from protopinv.train.rows import AnyRows, Rows
from protopinv.train.step import Step, StepReport

Result = TypeVar("Result")

# Steps that are taken eagerly before one is captured: libraries set themselves up, and kernels are
# compiled.
WARM_UP = 1


class CapturedStep:
    """Takes the same steps as ``step``, from a graph as soon as it has been warmed up.

    Batches other than all rows are copied into buffers that the graph reads. Another batch size
    gets a graph of its own; another form of the solve or a restarted optimizer begins anew. A step
    that cannot be captured (the SVD reads its status on the host) stays eager.
    """

    def __init__(self, step: Step[Any], rows: AnyRows) -> None:
        self._step = step
        self._rows = rows
        self._side = _Side()
        self._current = self._solve()
        self._replays: dict[Any, _Replay[Any]] = {}

    def __call__(self, batch: Rows, factor: float) -> StepReport:
        """One update at ``factor`` times the peak rate."""
        self._step.optimizer.set_rate(factor)
        copy = batch is not self._rows
        return self._replay(("update", len(batch)), batch, self._step.update, copy=copy)(batch)

    def evaluate(self, rows: AnyRows) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """Mean score and mean loss of every member over the rows."""
        if not isinstance(rows, Rows):  # they come a piece at a time
            return self._step.evaluate(rows)
        return self._replay(("evaluate", id(rows)), rows, self._step.evaluate, copy=False)(rows)

    def _solve(self) -> tuple[Manner, int]:
        return self._step.manner, self._step.optimizer.restarts

    def _replay(
        self, key: Any, rows: Rows, work: Callable[[Rows], Result], *, copy: bool
    ) -> "_Replay[Result]":
        if self._current != self._solve():  # the guard has changed something: begin anew
            self._current = self._solve()
            self._replays.clear()
        if key not in self._replays:
            possible = self._step.manner.form != "svd"
            generator = self._step.generator
            buffer = rows.cloned() if copy else rows
            self._replays[key] = _Replay(work, buffer, generator, self._side, possible=possible)
        return self._replays[key]


class _Side:
    """A stream for what precedes captures, and memory that all graphs of a run share.

    Graphs that share memory may overwrite one another's results, so these are copied at once.
    """

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.pool = torch.cuda.graph_pool_handle()


class _Replay(Generic[Result]):
    """One piece of work on one set of buffers: eager at first, then captured and replayed."""

    def __init__(
        self,
        work: Callable[[Rows], Result],
        buffer: Rows,
        generator: torch.Generator,
        side: _Side,
        *,
        possible: bool,
    ) -> None:
        self._work = work
        self._buffer = buffer
        self._generator = generator
        self._side = side
        self._possible = possible
        self._eager_calls = 0
        self._captured: _Captured[Result] | None = None

    def __call__(self, rows: Rows) -> Result:
        if not self._possible:
            return self._work(rows)
        if rows is not self._buffer:
            for mine, given in zip(self._buffer.tensors(), rows.tensors(), strict=True):
                mine.copy_(given)
        if self._captured is None and self._eager_calls < WARM_UP:
            self._eager_calls += 1
            return self._on_side_stream()
        if self._captured is None:
            self._captured = self._capture()
        self._captured.graph.replay()
        result: Result = _cloned(self._captured.result)
        return result

    def _on_side_stream(self) -> Result:
        """Where torch wants the work that precedes a capture."""
        stream = self._side.stream
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = self._work(self._buffer)
        torch.cuda.current_stream().wait_stream(stream)
        return result

    def _capture(self) -> "_Captured[Result]":
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        with torch.cuda.graph(graph, pool=self._side.pool, stream=self._side.stream):
            result = self._work(self._buffer)
        return _Captured(graph, result)


@dataclass(frozen=True)
class _Captured(Generic[Result]):
    graph: torch.cuda.CUDAGraph
    result: Result


def _cloned(result: Any) -> Any:
    """The next replay overwrites what the graph returned."""
    if isinstance(result, StepReport):
        return result.cloned()
    return tuple(tensor.clone() for tensor in result)
