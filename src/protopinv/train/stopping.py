"""The best state so far, and an average of states, kept on the device."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


class Best:
    """Copies of the tensors at their best: higher score wins; of equal scores, lower loss.

    A score of NaN never wins.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        nothing_yet = tensors[0].new_full((), torch.inf)  # in the precision of what is offered
        never = torch.full((), -1, device=tensors[0].device)
        self._kept = (copied(tensors), -nothing_yet, nothing_yet, never)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The best that was offered, or the first before anything was."""
        return self._kept[0]

    @torch.no_grad()
    def offer(
        self,
        tensors: Sequence[Tensor],
        score: Float[Tensor, ""],
        loss: Float[Tensor, ""],
        epoch: int,
    ) -> None:
        """Keep a copy of the tensors if they are better, without asking the host.

        What is kept changes in one assignment, so Ctrl-C never finds half of it.
        """
        kept, kept_score, kept_loss, kept_epoch = self._kept
        better = (score > kept_score) | ((score == kept_score) & (loss < kept_loss))
        self._kept = (
            tuple(torch.where(better, new, old) for new, old in zip(tensors, kept, strict=True)),
            torch.where(better, score.to(kept_score), kept_score),
            torch.where(better, loss.to(kept_loss), kept_loss),
            torch.where(better, epoch, kept_epoch),
        )

    def epoch_on_host(self) -> int | None:
        """When the best was found, counted from zero; None before any. Reads the device."""
        epoch = int(self._kept[3])
        return epoch if epoch >= 0 else None


class Average:
    """An exponential average of tensors over steps, quicker at first so as to forget the start."""

    def __init__(self, tensors: Sequence[Tensor], decay: float) -> None:
        self.tensors = copied(tensors)
        self._decay = decay
        self._steps = tensors[0].new_zeros(())

    @torch.no_grad()
    def update(self, tensors: Sequence[Tensor]) -> None:
        """average += (1 - decay) (tensors - average), with decay at most (1 + n) / (10 + n)."""
        self._steps += 1
        rate = 1 - ((1 + self._steps) / (10 + self._steps)).clamp_max(self._decay)
        for average, tensor in zip(self.tensors, tensors, strict=True):
            average.lerp_(tensor, rate)


def copied(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Copies that share nothing with the tensors."""
    return tuple(tensor.detach().clone() for tensor in tensors)


@torch.no_grad()
def put_back(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Give the tensors these values, in place."""
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
