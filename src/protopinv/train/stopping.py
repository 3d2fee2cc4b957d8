"""The best state so far, and an average of states, kept on the device."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Best:
    """Copies of the tensors of every member at its best: higher score wins, then lower loss.

    A score of NaN never wins.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        m = len(tensors[0])
        nothing_yet = tensors[0].new_full((m,), torch.inf)  # in the precision of what is offered
        never = torch.full((m,), -1, device=tensors[0].device)
        self._kept = (copied(tensors), -nothing_yet, nothing_yet, never)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The best that was offered, or the first before anything was."""
        return self._kept[0]

    @torch.no_grad()
    def offer(
        self,
        tensors: Sequence[Tensor],
        score: Float[Tensor, " m"],
        loss: Float[Tensor, " m"],
        epoch: int,
    ) -> None:
        """Keep a copy of the tensors of members that are better, without asking a GPU's host.

        What is kept changes in one assignment, so Ctrl-C never finds half of it.
        """
        kept, kept_score, kept_loss, kept_epoch = self._kept
        better = (score > kept_score) | ((score == kept_score) & (loss < kept_loss))
        if not better.is_cuda and not bool(better.any()):
            return
        self._kept = (
            chosen(better, tensors, kept),
            torch.where(better, score.to(kept_score), kept_score),
            torch.where(better, loss.to(kept_loss), kept_loss),
            torch.where(better, epoch, kept_epoch),
        )

    def dump(self) -> dict[str, Any]:
        """All of it, under names."""
        tensors, score, loss, epoch = self._kept
        return {"tensors": list(tensors), "score": score, "loss": loss, "epoch": epoch}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        kept = tuple(state["tensors"]), state["score"], state["loss"], state["epoch"]
        self._kept = kept

    def epochs_on_host(self) -> list[int | None]:
        """When each member was best, counted from zero; None before any. Reads the device."""
        return [epoch if epoch >= 0 else None for epoch in self._kept[3].tolist()]


def chosen(
    better: Bool[Tensor, " m"], new: Sequence[Tensor], old: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """New tensors for the members that are better, the old ones for the others."""
    return tuple(
        torch.where(better.view(-1, *[1] * (a.ndim - 1)), a, b)
        for a, b in zip(new, old, strict=True)
    )


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

    def dump(self) -> dict[str, Any]:
        """The average, and how many steps it is over."""
        return {"tensors": list(self.tensors), "steps": self._steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there, in place."""
        put_back((*self.tensors, self._steps), (*state["tensors"], state["steps"]))


def copied(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Copies that share nothing with the tensors."""
    return tuple(tensor.detach().clone() for tensor in tensors)


@torch.no_grad()
def put_back(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Give the tensors these values, in place."""
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
