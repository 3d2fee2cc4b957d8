"""The best bank so far, kept on the device."""

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.bank import Bank


class BestBank:
    """Higher score wins; equal scores, lower loss. A score of NaN never wins."""

    def __init__(self, bank: Bank) -> None:
        nothing_yet = bank.inputs.new_full((), torch.inf)  # in the precision of what is offered
        never = torch.full((), -1, device=bank.inputs.device)
        self._kept = (bank.snapshot(), -nothing_yet, nothing_yet, never)

    @property
    def bank(self) -> Bank:
        """A copy of the best bank, or of the first one before any was offered."""
        return self._kept[0].snapshot()

    @torch.no_grad()
    def offer(
        self, bank: Bank, score: Float[Tensor, ""], loss: Float[Tensor, ""], epoch: int
    ) -> None:
        """Keep a copy of the bank if it is better, without asking the host.

        What is kept changes in one assignment, so Ctrl-C never finds half of it.
        """
        kept_bank, kept_score, kept_loss, kept_epoch = self._kept
        better = (score > kept_score) | ((score == kept_score) & (loss < kept_loss))
        self._kept = (
            kept_bank.replaced(bank, where=better),
            torch.where(better, score.to(kept_score), kept_score),
            torch.where(better, loss.to(kept_loss), kept_loss),
            torch.where(better, epoch, kept_epoch),
        )

    def epoch_on_host(self) -> int | None:
        """When the best bank was found, counted from zero; None before any. Reads the device."""
        epoch = int(self._kept[3])
        return epoch if epoch >= 0 else None
