"""One optimisation step: weights, data pass, backward through the weights, update.

On a GPU a step is captured as a CUDA graph: one launch instead of several hundred.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from protopinv.bank import Bank
from protopinv.kernels import usable
from protopinv.objective import Objective, Outputs
from protopinv.train.bank_pass import BankPass, Penalty, SolverSettings
from protopinv.train.config import TrainConfig
from protopinv.train.data_pass import Buffers, data_pass, outputs_by_chunk, score_and_loss
from protopinv.train.machine import ALONE, Ranks
from protopinv.train.optimizer import OPTIMIZERS, ParameterGroup
from protopinv.train.rows import AnyRows, Augment, Rows, chunk_rows
from protopinv.train.state import Average, Resumable, copied

# Steps whose weights may be further off than this are not taken. A heuristic: over many shapes and
# conditions the Cholesky estimate was 30 to 150 times the true error, so this keeps it below 1 %.
SOLVE_TOLERANCE = 0.3
# Steps that are taken eagerly before one is captured: libraries set themselves up, and kernels are
# compiled.
WARM_UP = 1


@dataclass(frozen=True)
class StepReport:
    """What happened to each member, still on the device: nothing here makes the host wait.

    The loss of a step that was not taken is NaN. ``held`` are score and loss of held-out rows
    before the update, if the pass showed them.
    """

    loss: Float[Tensor, " m"]
    held: tuple[Float[Tensor, " m"], Float[Tensor, " m"]] | None = None


class TrainingStep(Resumable, ABC):
    """One update of ``state``: banks, whose weights are solved, or weights themselves.

    All tensors have a leading axis, one entry for each member of a population. A subclass says how
    the state becomes weights: ``weights`` returns something with ``weights``, one matrix a layer,
    their relative ``error`` by member and layer, inf where a solve failed, and ``factors``, pairs
    (A, S) with W = A'S where rows may go through both instead of W.

    The guard may change the ``solver`` settings on the way, and ends its errors with ``advice``.
    ``width`` counts the features; ``failures`` counts solves and data passes that failed, for each
    member, on the device. All ``ranks`` draw the same from ``generator``: the order of batches,
    dropout on the bank. What is drawn for rows comes from ``row_generator``, where each has its
    own.
    """

    advice = "Scale the features (scaling='feature'), or lower lr."
    state_names = ("trained", "optimizer", "average", "failures", "generator")

    def __init__(
        self,
        state: Any,
        groups: Sequence[ParameterGroup],
        config: TrainConfig,
        objective: Objective,
        *,
        width: int,
        generator: Generator,
        row_generator: Generator | None = None,
        ranks: Ranks = ALONE,
        chunk: int | None = None,
    ) -> None:
        first = groups[0].tensors[0]
        self.n_members = len(first)
        self.state = state
        self.config = config
        self.objective = objective.under(label_smoothing=config.label_smoothing, loss=config.loss)
        kind = first.dtype if config.row_dtype == "same" else getattr(torch, config.row_dtype)
        widest = max(width, *(self.n_members * h for h in config.widths))
        self.chunk = chunk or chunk_rows(widest, kind, first.device)
        self.buffers = Buffers()
        self.generator = generator
        self.ranks = ranks
        self.augment = None
        if config.mixup > 0 or config.input_noise > 0:
            drawing = row_generator or generator
            self.augment = Augment(config.mixup, config.input_noise, self.objective, drawing)
        self.optimizer = OPTIMIZERS[config.optimizer](groups, config.lr)
        self.trained = tuple(tensor for group in groups for tensor in group.tensors)
        self.failures = torch.zeros(self.n_members, 2, dtype=torch.long, device=first.device)
        self.solver = SolverSettings(config.solver, first.dtype)
        self.average = Average(self.trained, config.averaging) if config.averaging else None
        # Nothing is recorded for a derivative, and less asked about every tensor where it can be:
        # some options of a bank have a derivative that is left to autograd.
        by_autograd = config.normalize_inputs or config.temperature or config.condition_penalty
        self._without_graph: Any = torch.no_grad if by_autograd else torch.inference_mode
        # What was solved to look at the state, until the state changes.
        self._pending: Any = None

    @property
    def best(self) -> tuple[Tensor, ...]:
        """What training is for: the tensors as they are, or their average over steps."""
        return self.trained if self.average is None else self.average.tensors

    @property
    def judges_for_free(self) -> bool:
        """Whether the pass that trains shows held-out rows the state as it is.

        Not when rows are changed, when the bank is, or when it is an average that counts.
        """
        config = self.config
        plain = self.augment is None and config.hidden_dropout == 0
        return plain and config.batch_size is None and self.average is None

    @abstractmethod
    def weights(self, *, training: bool) -> Any:
        """The weights of every layer."""

    @abstractmethod
    def pullback(
        self, solved: Any, gradients: list[Tensor]
    ) -> tuple[list[Tensor | None], Penalty | None]:
        """From gradients in the weights to those of ``trained``, and what the loss adds to them."""

    def numbers(self) -> Mapping[str, Tensor]:
        """What the history should hold of every epoch besides loss and rate, one a member."""
        return {}

    def __call__(self, batch: AnyRows, factor: float) -> StepReport:
        """Update on a batch at ``factor`` times the peak rate, unless it would harm."""
        self.optimizer.set_rate(factor)
        return self.update(batch)

    def update(self, batch: AnyRows) -> StepReport:
        """The update at the rate that was set: nothing in here asks or tells a GPU's host."""
        with self._without_graph():
            solved, self._pending = self._pending or self.weights(training=True), None
            passed = data_pass(
                batch,
                solved.weights,
                self.config.activation,
                self.objective,
                chunk=self.chunk,
                factors=solved.factors,
                augment=self.augment,
                buffers=self.buffers,
                ranks=self.ranks,
            )
            loss, error = passed.loss, solved.error
            penalty = self.config.weight_penalty
            if penalty > 0:  # weight_penalty * sum ||W||^2
                for W, gradient in zip(solved.weights, passed.gradients, strict=True):
                    gradient.add_(W, alpha=2 * penalty)
                    loss = loss + penalty * W.square().sum((1, 2))
            gradients, added = self.pullback(solved, passed.gradients)
            if added is not None:
                loss = loss + added.value.to(loss)
                error = torch.cat([error, added.error], dim=-1)
            skip, loss = self._checked(loss, error, [g for g in gradients if g is not None])
            self.optimizer.step(gradients, skip)
            if self.average is not None:
                self.average.update(self.trained)
            return StepReport(loss, passed.held)

    def _checked(
        self, loss: Float[Tensor, " m"], error: Float[Tensor, "m layers"], gradients: list[Tensor]
    ) -> tuple[Bool[Tensor, " m"] | None, Float[Tensor, " m"]]:
        """Which members to skip, counted in ``failures``, and the losses, NaN for these."""
        if usable(loss) and loss.dtype == torch.float32:
            from protopinv.kernels.update import check_step

            return check_step(loss, error.to(loss.dtype), gradients, self.failures, SOLVE_TOLERANCE)
        if not loss.is_cuda:  # a host need not wait: whether no member has failed
            norms = [*map(float, torch._foreach_norm(gradients)), *loss.tolist()]
            # a number that is not one is in no order
            solves = all(number < SOLVE_TOLERANCE for number in error.flatten().tolist())
            if solves and math.isfinite(sum(norms)):
                return None, loss
        norm = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).sum(0)
        solved = (error < SOLVE_TOLERANCE).all(-1)
        skip = ~((loss + norm).isfinite() & solved)
        self.failures += torch.stack([~solved, skip & solved], dim=1)
        return skip, torch.where(skip, torch.nan, loss)

    def evaluate(self, rows: AnyRows) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """Mean score and mean loss of the state as it stands, without noise or dropout."""
        same = self.config.hidden_dropout == 0 and self.average is None
        with self._without_graph():
            solved = self.weights(training=same)
            # On a GPU what is solved here belongs to a graph of its own.
            self._pending = solved if same and not self.trained[0].is_cuda else None
            return score_and_loss(
                rows,
                solved.weights,
                self.config.activation,
                self.objective,
                chunk=self.chunk,
                ranks=self.ranks,
            )

    def outputs(self, rows: Rows) -> Iterator[tuple[Rows, Outputs]]:
        """Some rows at a time with the outputs of every member of the state as it stands."""
        with self._without_graph():
            weights = self.weights(training=False).weights
            yield from outputs_by_chunk(rows, weights, self.config.activation, chunk=self.chunk)

    def solve_by(self, solver: SolverSettings) -> None:
        """Solve in another form or precision from now on."""
        self.solver, self._pending = solver, None

    @torch.no_grad()
    def go_back(self, tensors: Sequence[Tensor], member: int | None = None) -> None:
        """Give what is trained, and its average, these values: all of it, or one member's part."""
        self._pending, part = None, slice(None) if member is None else member
        average = () if self.average is None else self.average.tensors
        for group in filter(None, (self.trained, average)):
            for tensor, value in zip(group, tensors, strict=True):
                tensor[part] = value[part]


class BankStep(TrainingStep):
    """Bank pass, data pass, bank backward, update, of all members of a population at once.

    The first ``n_frozen`` prototypes of every bank stay where they are; ``more`` is as for a step.
    """

    state: Bank
    advice = "Scale the features (scaling='feature'), lower lr, or raise ridge."

    def __init__(
        self,
        bank: Bank,
        config: TrainConfig,
        objective: Objective,
        *,
        n_frozen: int = 0,
        **more: Any,
    ) -> None:
        self._n_frozen = n_frozen
        self._architecture = config.architecture
        self._designs: list[Tensor] = []
        # ridges that are not learned need no derivative, and are recorded as they are
        self._ridge = None if bool(bank.learnable_ridge.any()) else bank.ridge
        of_inputs, of_hidden, of_outputs = config.lr_ratios
        groups = [
            ParameterGroup([bank.inputs], config.input_decay, of_inputs),
            ParameterGroup(bank.hidden, config.hidden_decay, of_hidden),
            ParameterGroup([bank.outputs], config.output_decay, of_outputs),
            ParameterGroup([bank.raw_ridge]),
        ]
        if bank.scale is not None:
            groups.append(ParameterGroup([bank.scale], ratio=config.scale_lr_ratio))
        super().__init__(bank, groups, config, objective, width=bank.inputs.shape[-1], **more)

    def weights(self, *, training: bool) -> BankPass:
        """Solved from the banks, with dropout on their hidden targets while training."""
        bank, rate = self.state, self.config.hidden_dropout
        if not training and self.average is not None:
            bank = bank.with_trained(self.average.tensors)
        # the same for all members, with the mean that hidden targets have
        dropout = [
            (torch.rand(H.shape[1:], generator=self.generator, device=H.device) >= rate).to(H.dtype)
            / (1 - rate)
            for H in (bank.hidden if training and rate > 0 else ())
        ]
        ridge = bank.ridge if self._ridge is None else self._ridge
        return BankPass(
            bank, self._architecture, self.solver, self._designs, ridge=ridge, dropout=dropout
        )

    def pullback(
        self, solved: BankPass, gradients: list[Tensor]
    ) -> tuple[list[Tensor | None], Penalty | None]:
        """Through the solves, with condition_penalty times the spread of every system added."""
        of_bank, penalty = solved.pullback(
            gradients,
            with_ridge=self._ridge is None,
            condition_penalty=self.config.condition_penalty,
        )
        # the last two are the ridge and, where it is learned, the scale
        for gradient in of_bank[: 2 + len(self.state.hidden)] if self._n_frozen else ():
            if gradient is not None:
                gradient[:, : self._n_frozen] = 0
        return of_bank, penalty

    def numbers(self) -> Mapping[str, Tensor]:
        """The ridge of every layer."""
        return {"ridge": self.state.ridge if self._ridge is None else self._ridge}


class CapturedStep:
    """Takes the steps of ``step``, from a graph as soon as it has been warmed up.

    Batches other than all rows are copied into buffers that the graph reads. Another batch size
    gets a graph of its own; another form of the solve or a restarted optimizer begins anew. A step
    that cannot be captured (the SVD reads its status on the host) stays eager.
    """

    def __init__(self, step: TrainingStep, rows: AnyRows) -> None:
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
        is_copied = batch is not self._rows
        work = self._step.update
        report: StepReport = self._run(("update", len(batch)), batch, work, is_copied=is_copied)
        return report

    def evaluate(self, rows: AnyRows) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """Mean score and mean loss of every member over the rows."""
        if not isinstance(rows, Rows):  # they come a piece at a time
            return self._step.evaluate(rows)
        score, loss = self._run(("evaluate", id(rows)), rows, self._step.evaluate, is_copied=False)
        return score, loss

    def _run(self, key: Any, rows: Rows, work: Callable[[Rows], Any], *, is_copied: bool) -> Any:
        current = self._step.solver, self._step.optimizer.restarts
        if self._captured_for != current:  # the guard has changed something: begin anew
            self._captured_for = current
            self._replays.clear()
        if self._step.solver.form == "svd":
            return work(rows)
        if key not in self._replays:
            buffer = rows.each(torch.clone) if is_copied else rows
            generator = self._step.generator
            self._replays[key] = _Replay(work, buffer, generator, self._stream, self._pool)
        return self._replays[key](rows)


@dataclass
class _Replay:
    """One piece of work on one set of buffers: eager at first, then captured and replayed."""

    work: Callable[[Rows], Any]
    buffer: Rows
    generator: Generator
    stream: Any
    pool: Any
    eager_calls: int = 0
    graph: torch.cuda.CUDAGraph | None = None
    result: Any = None

    def __call__(self, rows: Rows) -> Any:
        """What the work returns for these rows."""
        if rows is not self.buffer:
            for name, mine in self.buffer.tensors.items():
                mine.copy_(rows.tensors[name])
        if self.graph is None and self.eager_calls < WARM_UP:
            self.eager_calls += 1
            return self._on_side_stream()
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            self.graph.register_generator_state(self.generator)
            with torch.cuda.graph(self.graph, pool=self.pool, stream=self.stream):
                self.result = self.work(self.buffer)
        self.graph.replay()
        # the next replay overwrites what the graph returned
        if not isinstance(self.result, StepReport):
            return copied(self.result)
        loss, held = self.result.loss.clone(), self.result.held
        return StepReport(loss, None if held is None else (held[0].clone(), held[1].clone()))

    def _on_side_stream(self) -> Any:
        """Where torch wants the work that precedes a capture."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            result = self.work(self.buffer)
        torch.cuda.current_stream().wait_stream(self.stream)
        return result
