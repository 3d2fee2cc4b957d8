"""One optimisation step: bank pass, data pass, bank backward, update."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from protopinv.bank import Bank
from protopinv.network import Architecture, propagate, solve_weights
from protopinv.train.config import TrainConfig
from protopinv.train.losses import CrossEntropy
from protopinv.train.optimizer import BankOptimizer
from protopinv.train.rows import Rows

# Steps whose weights may be further off than this are not taken. A heuristic: over many shapes and
# conditions the Cholesky estimate was 30 to 150 times the true error, so this keeps it below 1 %.
SOLVE_TOLERANCE = 0.3


@dataclass(frozen=True)
class StepReport:
    """What happened, still on the device: nothing here makes the host wait.

    The loss of a step that was not taken is NaN.
    """

    loss: Float[Tensor, ""]
    solve_failed: Bool[Tensor, ""]
    data_failed: Bool[Tensor, ""]


def data_pass(
    rows: Rows,
    weights: Sequence[Float[Tensor, "_ _"]],
    activation: str,
    loss: CrossEntropy,
    *,
    chunk: int,
    noise: float = 0.0,
    generator: Generator | None = None,
) -> tuple[Float[Tensor, ""], list[Tensor]]:
    """Mean loss over the rows and its exact gradient in every W, summed over chunks of rows."""
    leaves = [W.detach().requires_grad_() for W in weights]
    total = torch.zeros((), dtype=leaves[0].dtype, device=leaves[0].device)
    for part in rows.chunks(chunk):
        X = part.X
        if noise > 0:
            draw = torch.randn(X.shape, generator=generator, dtype=X.dtype, device=X.device)
            X = draw.mul_(noise).add_(X)
        part_loss = loss.total(propagate(X, leaves, activation), part.y) / len(rows)
        part_loss.backward()
        total += part_loss.detach()
    return total, [leaf.grad for leaf in leaves if leaf.grad is not None]


@torch.no_grad()
def evaluate(
    rows: Rows,
    weights: Sequence[Float[Tensor, "_ _"]],
    activation: str,
    loss: CrossEntropy,
    *,
    chunk: int,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Mean score and mean loss over the rows."""
    sums = torch.zeros(2, dtype=weights[0].dtype, device=weights[0].device)
    for part in rows.chunks(chunk):
        outputs = propagate(part.X, weights, activation)
        sums += torch.stack([loss.score(outputs, part.y).to(sums), loss.total(outputs, part.y)])
    score, mean_loss = (sums / len(rows)).unbind()
    return score, mean_loss


class Step:
    """Everything one update needs. The guard may change ``form`` and ``precision`` on the way."""

    def __init__(
        self,
        bank: Bank,
        architecture: Architecture,
        config: TrainConfig,
        loss: CrossEntropy,
        *,
        chunk: int,
        generator: Generator,
    ) -> None:
        self.bank = bank
        self.architecture = architecture
        self.config = config
        self.loss = loss
        self.chunk = chunk
        self.generator = generator
        self.optimizer = BankOptimizer(bank, config)
        self.form: str = config.solver
        self.precision = bank.inputs.dtype

    def __call__(self, batch: Rows, factor: float) -> StepReport:
        """Update the bank on a batch at ``factor`` times the peak rate, unless it would harm."""
        solution = solve_weights(
            self._dropped_out(), self.architecture, form=self.form, precision=self.precision
        )
        loss, gradients = data_pass(
            batch,
            solution.weights,
            self.architecture.activation,
            self.loss,
            chunk=self.chunk,
            noise=self.config.input_noise,
            generator=self.generator,
        )
        loss = loss + self._add_penalty(solution.weights, gradients)
        self.optimizer.clear_gradients()
        torch.autograd.backward(solution.weights, gradients)
        norm = torch.nn.utils.get_total_norm(self.optimizer.gradients())
        solve_failed = ~(solution.error < SOLVE_TOLERANCE).all()
        data_failed = ~(loss.isfinite() & norm.isfinite()) & ~solve_failed
        skip = solve_failed | data_failed
        self.optimizer.step(factor, skip=skip)
        return StepReport(torch.where(skip, torch.nan, loss), solve_failed, data_failed)

    @torch.no_grad()
    def evaluate(self, rows: Rows) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Mean score and mean loss of the bank as it stands, without noise or dropout."""
        solution = solve_weights(
            self.bank, self.architecture, form=self.form, precision=self.precision
        )
        activation = self.architecture.activation
        return evaluate(rows, solution.weights, activation, self.loss, chunk=self.chunk)

    def _dropped_out(self) -> Bank:
        """The bank with dropout on its hidden targets."""
        rate = self.config.hidden_dropout
        if rate == 0:
            return self.bank
        kept = (
            torch.rand(H.shape, generator=self.generator, dtype=H.dtype, device=H.device) >= rate
            for H in self.bank.hidden
        )
        hidden = tuple(
            H * keep / (1 - rate) for H, keep in zip(self.bank.hidden, kept, strict=True)
        )
        return replace(self.bank, hidden=hidden)

    def _add_penalty(
        self, weights: Sequence[Tensor], gradients: Sequence[Tensor]
    ) -> Float[Tensor, ""] | float:
        """weight_penalty * sum ||W||^2, its gradient added in place."""
        penalty = self.config.weight_penalty
        if penalty == 0:
            return 0.0
        with torch.no_grad():
            for W, gradient in zip(weights, gradients, strict=True):
                gradient.add_(W, alpha=2 * penalty)
            return penalty * torch.stack([W.square().sum() for W in weights]).sum()
