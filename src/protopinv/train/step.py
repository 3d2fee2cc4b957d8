"""One optimisation step: weights, data pass, backward through the weights, update."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from protopinv.kernels import usable
from protopinv.objective import Objective, Outputs
from protopinv.train.augment import Augment
from protopinv.train.bank_pass import Manner
from protopinv.train.config import TrainConfig
from protopinv.train.data_pass import Buffers, data_pass, evaluate, outputs_by_chunk
from protopinv.train.optimizer import OPTIMIZERS, Block
from protopinv.train.population import knob
from protopinv.train.ranks import ALONE, Ranks
from protopinv.train.rows import AnyRows, Rows, chunk_rows
from protopinv.train.stopping import Average, put_back

# Steps whose weights may be further off than this are not taken. A heuristic: over many shapes and
# conditions the Cholesky estimate was 30 to 150 times the true error, so this keeps it below 1 %.
SOLVE_TOLERANCE = 0.3


@runtime_checkable
class Solved(Protocol):
    """Weights of every layer and the estimated relative error of each, for every member."""

    @property
    def weights(self) -> list[Tensor]:
        """One matrix a layer, members first."""

    @property
    def error(self) -> Float[Tensor, "m layers"]:
        """Inf where a solve failed."""

    @property
    def factors(self) -> list[tuple[Tensor, Tensor] | None]:
        """(A, S) with W = A'S, where rows may go through both instead of W."""


SolvedKind = TypeVar("SolvedKind", bound=Solved)


@dataclass(frozen=True)
class StepReport:
    """What happened to each member, still on the device: nothing here makes the host wait.

    The loss of a step that was not taken is NaN. Losses and scores of held-out rows are those
    before the update.
    """

    loss: Float[Tensor, " m"]
    held_loss: Float[Tensor, " m"] | None = None
    held_score: Float[Tensor, " m"] | None = None

    def cloned(self) -> "StepReport":
        """A copy, for the next replay of a graph overwrites what it returned."""
        there = {name: part for name, part in vars(self).items() if part is not None}
        return StepReport(**{name: part.clone() for name, part in there.items()})


class Step(ABC, Generic[SolvedKind]):
    """One update of ``state``: banks, whose weights are solved, or weights themselves.

    All tensors have a leading axis, one entry for each member of a population; ``configs`` has one
    configuration each, and these agree in all that shapes the work. A subclass says how the state
    becomes weights. The guard may change the ``manner`` of a solve on the way, and ends its errors
    with ``advice``. ``width`` counts the features; ``failures`` counts solves and data passes that
    failed, for each member, on the device.

    All ``ranks`` draw the same from ``generator``: the order of batches, dropout on the bank. What
    is drawn for rows comes from ``row_generator``, where each has its own.
    """

    advice = "Scale the features (scaling='feature'), or lower lr."

    def __init__(
        self,
        state: Any,
        blocks: Sequence[Block],
        configs: Sequence[TrainConfig],
        objective: Objective,
        *,
        width: int,
        generator: Generator,
        row_generator: Generator | None = None,
        ranks: Ranks = ALONE,
        chunk: int | None = None,
    ) -> None:
        first = blocks[0].tensors[0]
        config = configs[0]
        self.n_members = len(first)
        widest = max(width, *(self.n_members * h for h in config.widths))
        self.state = state
        self.config = config
        knobs = {name: knob(configs, name, first.device) for name in ("label_smoothing", "loss")}
        self.objective = objective.under(knobs)
        kind = first.dtype if config.row_dtype == "same" else getattr(torch, config.row_dtype)
        self.chunk = chunk or chunk_rows(widest, kind, first.device)
        self.buffers = Buffers()
        self.generator = generator
        self.ranks = ranks
        noise = knob(configs, "input_noise", first.device)
        self.augment = Augment(config.mixup, noise, self.objective, row_generator or generator)
        self.optimizer = OPTIMIZERS[config.optimizer](blocks, knob(configs, "lr", first.device))
        self.trained = tuple(tensor for block in blocks for tensor in block.tensors)
        self.failures = torch.zeros(self.n_members, 2, dtype=torch.long, device=first.device)
        self.manner = Manner(config.solver, first.dtype)
        self.average = Average(self.trained, config.averaging) if config.averaging else None
        # What was solved to look at the state, until the state changes.
        self._pending: SolvedKind | None = None

    @property
    def kept(self) -> tuple[Tensor, ...]:
        """What training is for: the tensors as they are, or their average over steps."""
        return self.trained if self.average is None else self.average.tensors

    @property
    def judges_for_free(self) -> bool:
        """Whether the pass that trains shows held-out rows the state as it is.

        Not when rows are changed, when the bank is, or when it is an average that counts.
        """
        plain = not self.augment and self.config.hidden_dropout == 0
        return plain and self.config.batch_size is None and self.average is None

    @abstractmethod
    def weights(self, *, training: bool) -> SolvedKind:
        """The weights of every layer."""

    @abstractmethod
    def pullback(
        self, solved: SolvedKind, gradients: list[Tensor]
    ) -> tuple[list[Tensor | None], tuple[Float[Tensor, " m"], Float[Tensor, "m layers"]] | None]:
        """From gradients in the weights to those of ``trained``.

        And what else the objective adds, if anything, with the error of its solves.
        """

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
            return self._update(batch)

    def _without_graph(self) -> Any:
        """Nothing in here is recorded for a derivative, and less asked about every tensor.

        Some options of a bank have a derivative that is left to autograd; those need it back.
        """
        config = self.config
        needs_graph = config.normalize_inputs or config.temperature or config.condition_penalty
        return torch.no_grad() if needs_graph else torch.inference_mode()

    def _update(self, batch: AnyRows) -> StepReport:
        solved, self._pending = self._pending or self.weights(training=True), None
        passed = data_pass(
            batch,
            solved.weights,
            self.config.activation,
            self.objective,
            chunk=self.chunk,
            factors=solved.factors,
            augment=self.augment if self.augment else None,
            buffers=self.buffers,
            ranks=self.ranks,
        )
        loss, error = passed.loss, solved.error
        if self.config.weight_penalty > 0:
            loss = loss + self._add_weight_penalty(solved.weights, passed.gradients)
        gradients, added = self.pullback(solved, passed.gradients)
        if added is not None:
            loss = loss + added[0].to(loss)
            error = torch.cat([error, added[1]], dim=-1)
        skip, loss = self._judged(loss, error, [g for g in gradients if g is not None])
        self.optimizer.step(gradients, skip)
        if self.average is not None:
            self.average.update(self.trained)
        return StepReport(loss, passed.held_loss, passed.held_score)

    def _judged(
        self,
        loss: Float[Tensor, " m"],
        error: Float[Tensor, "m layers"],
        gradients: list[Tensor],
    ) -> tuple[Bool[Tensor, " m"] | None, Float[Tensor, " m"]]:
        """Which members to skip, counted in ``failures``, and the losses, NaN for these."""
        if usable(loss) and loss.dtype == torch.float32:
            from protopinv.kernels.verdict import verdict

            return verdict(loss, error.to(loss.dtype), gradients, self.failures, SOLVE_TOLERANCE)
        if not loss.is_cuda and _all_fine(loss, error, gradients):
            return None, loss
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).sum(0)
        solved = (error < SOLVE_TOLERANCE).all(-1)
        skip = ~((loss + norms).isfinite() & solved)
        self.failures += torch.stack([~solved, skip & solved], dim=1)
        return skip, torch.where(skip, torch.nan, loss)

    def evaluate(self, rows: AnyRows) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """Mean score and mean loss of the state as it stands, without noise or dropout."""
        same = self.config.hidden_dropout == 0 and self.average is None
        with self._without_graph():
            solved = self.weights(training=same)
            # On a GPU what is solved here belongs to a graph of its own.
            self._pending = solved if same and not self.trained[0].is_cuda else None
            return evaluate(
                rows,
                solved.weights,
                self.config.activation,
                self.objective,
                chunk=self.chunk,
                ranks=self.ranks,
            )

    def outputs(self, rows: Rows) -> Iterator[tuple[Rows, Outputs]]:
        """Some rows at a time with what every member of the state as it stands answers."""
        with self._without_graph():
            solved = self.weights(training=False)
            yield from outputs_by_chunk(
                rows, solved.weights, self.config.activation, chunk=self.chunk
            )

    def solve_by(self, manner: Manner) -> None:
        """Solve in another form or precision from now on."""
        self.manner, self._pending = manner, None

    def go_back(self, tensors: Sequence[Tensor], member: int | None = None) -> None:
        """Give what is trained, and its average, these values: all of it, or one member's part."""
        self._pending = None
        for mine in {id(group): group for group in (self.trained, self.kept)}.values():
            if member is None:
                put_back(mine, tensors)
            else:
                put_back([t[member] for t in mine], [t[member] for t in tensors])

    def dump(self) -> dict[str, Any]:
        """All that lives through a run and is the same on all ranks, under names."""
        return {
            "trained": list(self.trained),
            "optimizer": self.optimizer.dump(),
            "average": None if self.average is None else self.average.dump(),
            "failures": self.failures,
            "form": self.manner.form,
            "precision": str(self.manner.precision).removeprefix("torch."),
            "generator": self.generator.get_state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there; tensors change in place."""
        put_back(self.trained, state["trained"])
        self.optimizer.restore(state["optimizer"])
        if self.average is not None:
            self.average.restore(state["average"])
        self.failures.copy_(state["failures"])
        self.solve_by(Manner(state["form"], getattr(torch, state["precision"])))
        self.generator.set_state(state["generator"].cpu())

    def _add_weight_penalty(
        self, weights: Sequence[Tensor], gradients: Sequence[Tensor]
    ) -> Float[Tensor, " m"]:
        """weight_penalty * sum ||W||^2, its gradient added in place."""
        penalty = self.config.weight_penalty
        for W, gradient in zip(weights, gradients, strict=True):
            gradient.add_(W, alpha=2 * penalty)
        return penalty * torch.stack([W.square().sum((1, 2)) for W in weights]).sum(0)


def _all_fine(loss: Tensor, error: Tensor, gradients: list[Tensor]) -> bool:
    """Whether no member has failed, in few operations; only for a host that need not wait."""
    numbers = [*map(float, torch._foreach_norm(gradients)), *loss.tolist()]
    errors = error.flatten().tolist()
    # a number that is not one is in no order
    return math.isfinite(sum(numbers)) and all(number < SOLVE_TOLERANCE for number in errors)
