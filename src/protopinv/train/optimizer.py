"""Adam on the bank, with a rate and a decoupled decay of its own for each block."""

import torch
from jaxtyping import Bool
from torch import Tensor

from protopinv.bank import Bank
from protopinv.train.config import TrainConfig


class BankOptimizer:
    """Torch's fused AdamW over four blocks: inputs, hidden, outputs, ridges."""

    def __init__(self, bank: Bank, config: TrainConfig) -> None:
        blocks = ([bank.inputs], list(bank.hidden), [bank.outputs], [bank.raw_ridge])
        decays = (config.input_decay, config.hidden_decay, config.output_decay, 0.0)
        self._parameters = [tensor for block in blocks for tensor in block]
        self.ratios = (*config.lr_ratios, 1.0)
        self.peak = config.lr
        self._adam = torch.optim.AdamW(
            [
                {"params": block, "weight_decay": decay}
                for block, decay in zip(blocks, decays, strict=True)
            ],
            lr=config.lr,
            fused=True,
        )

    def step(self, factor: float, skip: Bool[Tensor, ""]) -> None:
        """One update at ``factor`` times the peak rate; none where ``skip`` is true.

        The decision stays on the device: fused optimizers leave everything as it was where their
        ``found_inf`` is 1, as gradient scaling needs it.
        """
        for group, ratio in zip(self._adam.param_groups, self.ratios, strict=True):
            group["lr"] = self.peak * factor * ratio
        self._adam.found_inf = skip.to(torch.float32)  # type: ignore[attr-defined]
        self._adam.step()

    def gradients(self) -> list[Tensor]:
        """After a backward pass."""
        return [tensor.grad for tensor in self._parameters if tensor.grad is not None]

    def clear_gradients(self) -> None:
        """Before a backward pass."""
        self._adam.zero_grad(set_to_none=True)

    def restart(self, peak: float) -> None:
        """Forget all momenta and go on with another peak rate."""
        self._adam.state.clear()
        self.peak = peak
