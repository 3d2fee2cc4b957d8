"""A step as a CUDA graph: one launch instead of several hundred."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.train.rows import Rows
from protopinv.train.step import Step, StepReport

Result = TypeVar("Result")

# Steps that are taken eagerly before one is captured, as torch asks for: libraries set themselves
# up and the optimizer makes its state.
WARM_UP = 3


class CapturedStep:
    """Takes the same steps as ``step``, from a graph as soon as it has been warmed up.

    Batches other than all rows are copied into buffers that the graph reads. Another batch size,
    another form of the solve or a restarted optimizer gets a graph of its own. A step that cannot
    be captured (the SVD reads its status on the host) stays eager.
    """

    def __init__(self, step: Step, rows: Rows) -> None:
        self._step = step
        self._rows = rows
        self._replays: dict[Any, _Replay[Any]] = {}

    def __call__(self, batch: Rows, factor: float) -> StepReport:
        """One update at ``factor`` times the peak rate."""
        self._step.optimizer.set_rate(factor)
        key = ("update", len(batch), self._step.optimizer.restarts, *self._solve())
        replay = self._replay(key, batch, self._step.update, copy=batch is not self._rows)
        return replay(batch)

    def evaluate(self, rows: Rows) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Mean score and mean loss over the rows."""
        key = ("evaluate", id(rows), *self._solve())
        return self._replay(key, rows, self._step.evaluate, copy=False)(rows)

    def _solve(self) -> tuple[str, torch.dtype]:
        return self._step.form, self._step.precision

    def _replay(
        self, key: Any, rows: Rows, work: Callable[[Rows], Result], *, copy: bool
    ) -> "_Replay[Result]":
        if key not in self._replays:
            possible = self._step.form != "svd"
            generator = self._step.generator
            buffer = Rows(rows.X.clone(), rows.y.clone()) if copy else rows
            self._replays[key] = _Replay(work, buffer, generator, possible=possible)
        return self._replays[key]


class _Replay(Generic[Result]):
    """One piece of work on one set of buffers: eager at first, then captured and replayed."""

    def __init__(
        self,
        work: Callable[[Rows], Result],
        buffer: Rows,
        generator: torch.Generator,
        *,
        possible: bool,
    ) -> None:
        self._work = work
        self._buffer = buffer
        self._generator = generator
        self._possible = possible
        self._eager_calls = 0
        self._captured: _Captured[Result] | None = None

    def __call__(self, rows: Rows) -> Result:
        if not self._possible:
            return self._work(rows)
        if rows is not self._buffer:
            self._buffer.X.copy_(rows.X)
            self._buffer.y.copy_(rows.y)
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
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = self._work(self._buffer)
        torch.cuda.current_stream().wait_stream(stream)
        return result

    def _capture(self) -> "_Captured[Result]":
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        with torch.cuda.graph(graph):
            result = self._work(self._buffer)
        return _Captured(graph, result)


@dataclass(frozen=True)
class _Captured(Generic[Result]):
    graph: torch.cuda.CUDAGraph
    result: Result


def _cloned(result: Any) -> Any:
    """The next replay overwrites what the graph returned."""
    if isinstance(result, StepReport):
        return StepReport(*_cloned((result.loss, result.solve_failed, result.data_failed)))
    return tuple(tensor.clone() for tensor in result)
