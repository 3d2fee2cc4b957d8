"""A step as a CUDA graph: one launch instead of several hundred."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.train.rows import AnyRows, Rows
from protopinv.train.step import Step, StepReport

# Steps that are taken eagerly before one is captured: libraries set themselves up, and kernels are
# compiled.
WARM_UP = 1


class CapturedStep:
    """Takes the steps of ``step``, from a graph as soon as it has been warmed up.

    Batches other than all rows are copied into buffers that the graph reads. Another batch size
    gets a graph of its own; another form of the solve or a restarted optimizer begins anew. A step
    that cannot be captured (the SVD reads its status on the host) stays eager.
    """

    def __init__(self, step: Step, rows: AnyRows) -> None:
        self._step = step
        self._rows = rows
        # what precedes captures has a stream, and all graphs of a run share memory: they may
        # overwrite one another's results, so these are copied at once
        self._stream = torch.cuda.Stream()
        self._pool = torch.cuda.graph_pool_handle()
        self._captured_for = step.solver, step.optimizer.restarts
        self._replays: dict[Any, _Replay] = {}

    def __call__(self, batch: Rows, factor: float) -> StepReport:
        """One update at ``factor`` times the peak rate."""
        self._step.optimizer.set_rate(factor)
        key, buffer = ("update", len(batch)), batch
        if batch is not self._rows and key not in self._replays:
            buffer = batch.each(torch.clone)
        report: StepReport = self._replay(key, buffer, self._step.update)(batch)
        return report

    def evaluate(self, rows: AnyRows) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """Mean score and mean loss of every member over the rows."""
        if not isinstance(rows, Rows):  # they come a piece at a time
            return self._step.evaluate(rows)
        score, loss = self._replay(("evaluate", id(rows)), rows, self._step.evaluate)(rows)
        return score, loss

    def _replay(self, key: Any, buffer: Rows, work: Callable[[Rows], Any]) -> "_Replay":
        current = self._step.solver, self._step.optimizer.restarts
        if self._captured_for != current:  # the guard has changed something: begin anew
            self._captured_for = current
            self._replays.clear()
        if key not in self._replays:
            self._replays[key] = _Replay(work, buffer, self._step, self._stream, self._pool)
        return self._replays[key]


class _Replay:
    """One piece of work on one set of buffers: eager at first, then captured and replayed."""

    def __init__(
        self, work: Callable[[Rows], Any], buffer: Rows, step: Step, stream: Any, pool: Any
    ) -> None:
        self._work, self._buffer, self._step = work, buffer, step
        self._stream, self._pool = stream, pool
        self._eager_calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Any = None

    def __call__(self, rows: Rows) -> Any:
        if self._step.solver.form == "svd":
            return self._work(rows)
        if rows is not self._buffer:
            for name, mine in self._buffer.tensors.items():
                mine.copy_(rows.tensors[name])
        if self._graph is None and self._eager_calls < WARM_UP:
            self._eager_calls += 1
            return self._on_side_stream()
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            self._graph.register_generator_state(self._step.generator)
            with torch.cuda.graph(self._graph, pool=self._pool, stream=self._stream):
                self._result = self._work(self._buffer)
        self._graph.replay()
        # the next replay overwrites what the graph returned
        if isinstance(self._result, StepReport):
            parts = vars(self._result).items()
            return StepReport(**{name: part.clone() for name, part in parts if part is not None})
        return tuple(tensor.clone() for tensor in self._result)

    def _on_side_stream(self) -> Any:
        """Where torch wants the work that precedes a capture."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            result = self._work(self._buffer)
        torch.cuda.current_stream().wait_stream(self._stream)
        return result
