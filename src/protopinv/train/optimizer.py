"""Updates of what is trained, with a rate and a decoupled decay of its own for each block."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

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
    """Torch's fused AdamW over blocks. On a GPU its rates are tensors, so a graph can hold it."""

    def __init__(self, blocks: Sequence[Block], peak: float) -> None:
        self.blocks = blocks
        self.peak = peak
        self.restarts = 0
        on_gpu = blocks[0].tensors[0].is_cuda
        self._adam = torch.optim.AdamW(
            [{"params": list(block.tensors), "weight_decay": block.decay} for block in blocks],
            lr=torch.tensor(peak, device=blocks[0].tensors[0].device) if on_gpu else peak,
            fused=True,
            capturable=on_gpu,
        )
        if on_gpu:  # the groups must not share one tensor
            for group in self._adam.param_groups:
                group["lr"] = group["lr"].clone()

    def set_rate(self, factor: float) -> None:
        """Take the next steps at ``factor`` times the peak rate."""
        for group, block in zip(self._adam.param_groups, self.blocks, strict=True):
            rate = self.peak * factor * block.ratio
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def step(self, skip: Bool[Tensor, ""]) -> None:
        """One update; none where ``skip`` is true.

        The decision stays on the device: fused optimizers leave everything as it was where their
        ``found_inf`` is 1, as gradient scaling needs it.
        """
        self._adam.found_inf = skip.to(torch.float32)  # type: ignore[attr-defined]
        self._adam.step()

    def gradients(self) -> list[Tensor]:
        """After a backward pass."""
        return [tensor.grad for tensor in self._tensors() if tensor.grad is not None]

    def clear_gradients(self) -> None:
        """Before a backward pass."""
        for tensor in self._tensors():
            tensor.grad = None

    def restart(self, peak: float) -> None:
        """Forget all momenta and go on with another peak rate."""
        self._adam.state.clear()
        self.peak = peak
        self.restarts += 1

    def _tensors(self) -> list[Tensor]:
        return [tensor for block in self.blocks for tensor in block.tensors]


class Muon(Optimizer):
    """Momentum whose singular values are all brought to about one, for matrices; Adam for the rest.

    Adam scales every entry by itself; this moves all directions of a matrix alike, so that rare
    ones are learned as fast as common ones.
    """

    def __init__(self, blocks: Sequence[Block], peak: float) -> None:
        super().__init__(blocks, peak)
        self._momenta: list[dict[Tensor, Tensor]] = []
        for group in self._adam.param_groups:
            matrices = [tensor for tensor in group["params"] if tensor.ndim == 2]
            group["params"] = [tensor for tensor in group["params"] if tensor.ndim != 2]
            self._momenta.append({matrix: torch.zeros_like(matrix) for matrix in matrices})

    @torch.no_grad()
    def step(self, skip: Bool[Tensor, ""]) -> None:
        """One update; none where ``skip`` is true."""
        super().step(skip)
        for group, momenta in zip(self._adam.param_groups, self._momenta, strict=True):
            for matrix, momentum in momenta.items():
                if matrix.grad is None:
                    continue
                new = matrix.grad + MOMENTUM * momentum
                direction = orthogonal(matrix.grad + MOMENTUM * new)
                size = UPDATE_SIZE * max(matrix.shape) ** 0.5 * group["lr"]
                shrunk = matrix * (1 - group["lr"] * group["weight_decay"])
                momentum.copy_(torch.where(skip, momentum, new))
                matrix.copy_(torch.where(skip, matrix, shrunk - size * direction))

    def restart(self, peak: float) -> None:
        """Forget all momenta and go on with another peak rate."""
        super().restart(peak)
        for momenta in self._momenta:
            for momentum in momenta.values():
                momentum.zero_()


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
