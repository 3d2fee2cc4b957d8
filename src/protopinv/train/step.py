"""One optimisation step: weights, data pass, backward through the weights, update."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor
from torch.autograd.function import once_differentiable

from protopinv.kernels import usable
from protopinv.solve import Solution
from protopinv.train.augment import Augment
from protopinv.train.config import TrainConfig
from protopinv.train.data_pass import Buffers, data_pass, evaluate
from protopinv.train.losses import CrossEntropy
from protopinv.train.optimizer import OPTIMIZERS, Block
from protopinv.train.rows import Rows, chunk_rows
from protopinv.train.stopping import Average

# Steps whose weights may be further off than this are not taken. A heuristic: over many shapes and
# conditions the Cholesky estimate was 30 to 150 times the true error, so this keeps it below 1 %.
SOLVE_TOLERANCE = 0.3


@dataclass(frozen=True)
class StepReport:
    """What happened, still on the device: nothing here makes the host wait.

    The loss of a step that was not taken is NaN.
    """

    loss: Float[Tensor, ""]


class _Known(torch.autograd.Function):
    """(loss, *weights, *gradients) -> loss, with these gradients in the weights.

    ``torch.autograd.backward`` would take gradients as they are, but imports a computer algebra
    system to check their shapes, which takes longer than many a fit.
    """

    @staticmethod
    def forward(ctx: Any, loss: Tensor, *tensors: Tensor) -> Tensor:
        ctx.gradients = tensors[len(tensors) // 2 :]
        return loss.view_as(loss)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.gradients, *(None for _ in ctx.gradients)


class Step(ABC):
    """One update of ``state``: a bank, whose weights are solved, or weights themselves.

    A subclass says how the state becomes weights. The guard may change ``form`` and ``precision``
    of a solve on the way, and ends its errors with ``advice``. ``width`` counts the features;
    ``failures`` counts solves and data passes that failed, on the device.
    """

    advice = "Scale the features (scaling='feature'), or lower lr."

    def __init__(
        self,
        state: Any,
        blocks: Sequence[Block],
        config: TrainConfig,
        *,
        width: int,
        n_classes: int,
        generator: Generator,
        chunk: int | None = None,
    ) -> None:
        first = blocks[0].tensors[0]
        widest = max(width, *config.widths)
        self.state = state
        self.config = config
        self.loss = CrossEntropy(config.label_smoothing)
        kind = first.dtype if config.row_dtype == "same" else getattr(torch, config.row_dtype)
        self.chunk = chunk or chunk_rows(widest, kind, first.device)
        self.buffers = Buffers()
        self.generator = generator
        self.augment = Augment(config, n_classes, generator)
        self.optimizer = OPTIMIZERS[config.optimizer](blocks, config.lr)
        self.trained = tuple(tensor for block in blocks for tensor in block.tensors)
        self.failures = torch.zeros(2, dtype=torch.long, device=first.device)
        self._kept_solution: tuple[tuple[Any, ...] | None, Solution | None] = (None, None)
        self.form: str = config.solver
        self.precision = first.dtype
        self.average = Average(self.trained, config.averaging) if config.averaging else None

    @property
    def kept(self) -> tuple[Tensor, ...]:
        """What training is for: the tensors as they are, or their average over steps."""
        return self.trained if self.average is None else self.average.tensors

    @abstractmethod
    def weights(self, *, training: bool) -> Solution:
        """The weights of every layer, differentiable in what is trained."""

    def penalty(self) -> tuple[Float[Tensor, ""], Float[Tensor, " layers"]] | None:
        """What the objective adds that is not a function of the weights, and its status."""
        return None

    def numbers(self) -> Mapping[str, Tensor]:
        """What the history should hold of every epoch besides loss and rate."""
        return {}

    def __call__(self, batch: Rows, factor: float) -> StepReport:
        """Update on a batch at ``factor`` times the peak rate, unless it would harm."""
        self.optimizer.set_rate(factor)
        return self.update(batch)

    def update(self, batch: Rows) -> StepReport:
        """The update at the rate that was set: nothing in here asks or tells the host."""
        solution = self._solved_already() or self.weights(training=True)
        loss, gradients = data_pass(
            batch,
            solution.weights,
            self.config.activation,
            self.loss,
            chunk=self.chunk,
            factors=solution.factors,
            augment=self.augment,
            buffers=self.buffers,
        )
        if self.config.weight_penalty > 0:
            loss = loss + self._add_weight_penalty(solution.weights, gradients)
        self.optimizer.clear_gradients()
        added = self.penalty()
        error = solution.error
        loss = _Known.apply(loss, *solution.weights, *gradients)
        if added is not None:
            loss = loss + added[0].to(loss)
            error = torch.cat([error, added[1]])
        loss.backward()
        skip, loss = self._judged(loss.detach(), error)
        self.optimizer.step(skip=skip)
        if self.average is not None:
            self.average.update(self.trained)
        return StepReport(loss)

    def _judged(
        self, loss: Float[Tensor, ""], error: Float[Tensor, " layers"]
    ) -> tuple[Bool[Tensor, ""], Float[Tensor, ""]]:
        """Whether to skip the update, counted in ``failures``, and the loss, NaN if so."""
        gradients = self.optimizer.gradients()
        if usable(loss) and loss.dtype == torch.float32:
            from protopinv.kernels.verdict import verdict

            return verdict(loss, error.to(loss.dtype), gradients, self.failures, SOLVE_TOLERANCE)
        norm = torch.nn.utils.get_total_norm(gradients)
        solved = (error < SOLVE_TOLERANCE).all()
        skip = ~((loss + norm).isfinite() & solved)
        self.failures += torch.stack([~solved, skip & solved])
        return skip, torch.where(skip, torch.nan, loss)

    @torch.no_grad()
    def evaluate(self, rows: Rows) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Mean score and mean loss of the state as it stands, without noise or dropout."""
        solution = self._solved_for_both() or self.weights(training=False)
        weights = [W.detach() for W in solution.weights]
        return evaluate(rows, weights, self.config.activation, self.loss, chunk=self.chunk)

    def _solved_for_both(self) -> Solution | None:
        """Weights to evaluate that the next step may take over; None where it would not want them.

        On a GPU they would belong to another graph.
        """
        if self.config.hidden_dropout or self.average is not None or self.trained[0].is_cuda:
            return None
        with torch.enable_grad():
            solution = self.weights(training=True)
        self._kept_solution = (self._stamp(), solution)
        return solution

    def _solved_already(self) -> Solution | None:
        """What was solved to evaluate, if nothing has changed since; it can be used once."""
        (stamp, solution), self._kept_solution = self._kept_solution, (None, None)
        return solution if stamp == self._stamp() else None

    def _stamp(self) -> tuple[Any, ...]:
        """Changes when a trained tensor is written to, or with the way to solve.

        Not with a fused update; but a step has taken what was kept before it makes one.
        """
        return (self.form, self.precision, *(tensor._version for tensor in self.trained))

    def _add_weight_penalty(
        self, weights: Sequence[Tensor], gradients: Sequence[Tensor]
    ) -> Float[Tensor, ""]:
        """weight_penalty * sum ||W||^2, its gradient added in place."""
        penalty = self.config.weight_penalty
        with torch.no_grad():
            for W, gradient in zip(weights, gradients, strict=True):
                gradient.add_(W, alpha=2 * penalty)
            return penalty * torch.stack([W.square().sum() for W in weights]).sum()
