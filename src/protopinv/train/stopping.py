"""The best bank so far, kept on the device."""

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.bank import Bank


class BestBank:
    """Higher score wins; equal scores, lower loss. A score of NaN never wins."""

    def __init__(self, bank: Bank) -> None:
        device = bank.inputs.device
        self.bank = bank.snapshot()
        self.score = torch.full((), -torch.inf, device=device)
        self.loss = torch.full((), torch.inf, device=device)
        self.epoch = torch.full((), -1, device=device)

    @torch.no_grad()
    def offer(
        self, bank: Bank, score: Float[Tensor, ""], loss: Float[Tensor, ""], epoch: int
    ) -> None:
        """Keep a copy of the bank if it is better, without asking the host."""
        better = (score > self.score) | ((score == self.score) & (loss < self.loss))
        self.bank.copy_(bank, where=better)
        self.score = torch.where(better, score.to(self.score), self.score)
        self.loss = torch.where(better, loss.to(self.loss), self.loss)
        self.epoch = torch.where(better, epoch, self.epoch)

    def best_epoch(self) -> int | None:
        """Counted from zero; None before any finite one. Reads the device."""
        epoch = int(self.epoch)
        return epoch if epoch >= 0 else None
