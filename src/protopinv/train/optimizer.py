"""Adam on what is trained, with a rate and a decoupled decay of its own for each block."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor


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
        tensors = (tensor for block in self.blocks for tensor in block.tensors)
        return [tensor.grad for tensor in tensors if tensor.grad is not None]

    def clear_gradients(self) -> None:
        """Before a backward pass."""
        self._adam.zero_grad(set_to_none=True)

    def restart(self, peak: float) -> None:
        """Forget all momenta and go on with another peak rate."""
        self._adam.state.clear()
        self.peak = peak
        self.restarts += 1
