"""Updates of what is trained, with a rate and a decoupled decay of its own for each block."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from protopinv.kernels import usable
from protopinv.kernels.streams import side_by_side

# Of Adam, as in torch.
BETAS = (0.9, 0.999)
EPSILON = 1e-8
MOMENTUM = 0.95
# Entries of an orthogonal update are made this large, times the rate: about what Adam's are.
UPDATE_SIZE = 0.2
# Rounds of x -> a x + b x^3 + c x^5 that bring singular values from 0.01 to about 1 (K. Jordan).
ROUNDS = 5
QUINTIC = (3.4445, -4.7750, 2.0315)


@dataclass(frozen=True)
class Block:
    """Tensors that share a decay and a ratio to the peak learning rate."""

    tensors: Sequence[Tensor]
    decay: float = 0.0
    ratio: float = 1.0


class Optimizer:
    """AdamW over blocks. On a GPU the rate is a tensor, so that a graph can hold an update."""

    def __init__(self, blocks: Sequence[Block], peak: float) -> None:
        self.blocks = blocks
        self.peak = peak
        self.restarts = 0
        first = blocks[0].tensors[0]
        self._factor: Tensor | float = torch.ones((), device=first.device) if first.is_cuda else 1.0
        given = [replace(block, tensors=self._for_adam(block)) for block in blocks]
        self._adam = _Adam(given)

    def set_rate(self, factor: float) -> None:
        """Take the next steps at ``factor`` times the peak rate."""
        if isinstance(self._factor, Tensor):
            self._factor.fill_(factor)
        else:
            self._factor = factor

    @torch.no_grad()
    def step(self, skip: Bool[Tensor, ""]) -> None:
        """One update; none where ``skip`` is true, a decision that stays on the device."""
        self._adam.step(skip, self.peak, self._factor)

    def gradients(self) -> list[Tensor]:
        """After a backward pass."""
        return [tensor.grad for tensor in self._tensors() if tensor.grad is not None]

    def clear_gradients(self) -> None:
        """Before a backward pass."""
        for tensor in self._tensors():
            tensor.grad = None

    def restart(self, peak: float) -> None:
        """Forget all momenta and go on with another peak rate."""
        self._adam.forget()
        self.peak = peak
        self.restarts += 1

    def _for_adam(self, block: Block) -> Sequence[Tensor]:
        """The tensors of a block that Adam updates."""
        return block.tensors

    def _tensors(self) -> list[Tensor]:
        return [tensor for block in self.blocks for tensor in block.tensors]


class _Adam:
    """AdamW of some blocks, by a kernel of ours on a GPU and by torch's fused one elsewhere.

    ``torch.optim`` is not asked: it imports a compiler, which takes longer than many a fit.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = [block for block in blocks if block.tensors]
        tensors = [tensor for block in blocks for tensor in block.tensors]
        self._moments = {
            tensor: (torch.zeros_like(tensor), torch.zeros_like(tensor)) for tensor in tensors
        }
        self._steps = torch.zeros((), device=tensors[0].device) if tensors else torch.zeros(())

    def step(self, skip: Bool[Tensor, ""], peak: float, factor: Tensor | float) -> None:
        """One update at ``factor`` times the peak rate; nothing changes where ``skip`` is true."""
        if not self._blocks:
            return
        self._steps.add_(~skip)
        works = [
            partial(self._update, tensors, block, skip, peak * block.ratio, factor)
            for block in self._blocks
            if (tensors := [tensor for tensor in block.tensors if tensor.grad is not None])
        ]
        side_by_side(works, self._steps.device)

    def forget(self) -> None:
        """Begin anew."""
        self._steps.zero_()
        for moments in self._moments.values():
            for moment in moments:
                moment.zero_()

    def _update(
        self,
        tensors: Sequence[Tensor],
        block: Block,
        skip: Bool[Tensor, ""],
        rate: float,
        factor: Tensor | float,
    ) -> None:
        gradients = [tensor.grad.contiguous() for tensor in tensors if tensor.grad is not None]
        means, squares = zip(*(self._moments[tensor] for tensor in tensors), strict=True)
        given = (list(tensors), gradients, means, squares)
        if isinstance(factor, Tensor) and usable(tensors[0]) and tensors[0].dtype == torch.float32:
            from protopinv.kernels.adam import adam_update

            for tensor, gradient, mean, square in zip(*given, strict=True):
                adam_update(
                    tensor,
                    gradient,
                    mean,
                    square,
                    steps=self._steps,
                    skip=skip,
                    factor=factor,
                    rate=rate,
                    decay=block.decay,
                    betas=BETAS,
                    eps=EPSILON,
                )
            return
        torch._fused_adamw_(
            *given,
            [],
            [self._steps] * len(tensors),
            lr=rate * factor,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=block.decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
            found_inf=skip.to(self._steps),
        )


class Muon(Optimizer):
    """Momentum whose singular values are all brought to about one, for matrices; Adam for the rest.

    Adam scales every entry by itself; this moves all directions of a matrix alike, so that rare
    ones are learned as fast as common ones.
    """

    def __init__(self, blocks: Sequence[Block], peak: float) -> None:
        super().__init__(blocks, peak)
        matrices = [tensor for tensor in self._tensors() if tensor.ndim == 2]
        self._momenta = {matrix: torch.zeros_like(matrix) for matrix in matrices}

    @torch.no_grad()
    def step(self, skip: Bool[Tensor, ""]) -> None:
        """One update; none where ``skip`` is true."""
        super().step(skip)
        for block in self.blocks:
            rate = self.peak * block.ratio * self._factor
            for matrix in block.tensors:
                if matrix.grad is None or matrix not in self._momenta:
                    continue
                momentum = self._momenta[matrix]
                new = matrix.grad + MOMENTUM * momentum
                direction = orthogonal(matrix.grad + MOMENTUM * new)
                size = UPDATE_SIZE * max(matrix.shape) ** 0.5 * rate
                shrunk = matrix * (1 - rate * block.decay)
                momentum.copy_(torch.where(skip, momentum, new))
                matrix.copy_(torch.where(skip, matrix, shrunk - size * direction))

    def restart(self, peak: float) -> None:
        """Forget all momenta and go on with another peak rate."""
        super().restart(peak)
        for momentum in self._momenta.values():
            momentum.zero_()

    def _for_adam(self, block: Block) -> Sequence[Tensor]:
        return [tensor for tensor in block.tensors if tensor.ndim != 2]


OPTIMIZERS = {"adam": Optimizer, "muon": Muon}


def orthogonal(G: Float[Tensor, "m n"]) -> Float[Tensor, "m n"]:
    """G with its singular values brought to about one, by products alone."""
    a, b, c = QUINTIC
    wide = G.shape[0] <= G.shape[1]
    X: Tensor = G if wide else G.T
    X = X / X.norm().clamp_min(torch.finfo(G.dtype).tiny)
    for _ in range(ROUNDS):
        A = X @ X.T
        X = torch.addmm(X, torch.addmm(A, A, A, beta=b, alpha=c), X, beta=a)
    return X if wide else X.T
