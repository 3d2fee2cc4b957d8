"""The state to keep: the best so far, an average over steps, or that of the epoch folds choose.

All of it stays on the device.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

# The loss on held-out rows is averaged over so many epochs to either side, so that one lucky epoch
# does not win; over fewer where an epoch has many steps.
HALF = 4
# Training ends when the lowest loss is this share of all epochs ago, and so many steps at least:
# the smoothed loss falls and then rises. On 127 public tables 25 of 250 full-batch epochs chose
# as well as 75, or all of them. With batches it often falls again as the rate does.
PATIENCE = 0.12
BATCH_PATIENCE = 0.25
LEAST_PATIENCE = 25
LEAST_PATIENT_EPOCHS = 6
GPU_EPOCHS = 10


class Best:
    """Copies of the tensors of every member at its best: higher score wins, then lower loss.

    A score of NaN never wins.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        m = len(tensors[0])
        nothing_yet = tensors[0].new_full((m,), torch.inf)  # in the precision of what is offered
        never = torch.full((m,), -1, device=tensors[0].device)
        self._state = (copied(tensors), -nothing_yet, nothing_yet, never)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The best that was offered, or the first before anything was."""
        return self._state[0]

    @torch.no_grad()
    def offer(
        self,
        tensors: Sequence[Tensor],
        score: Float[Tensor, " m"],
        loss: Float[Tensor, " m"],
        epoch: int,
    ) -> None:
        """Keep a copy of the tensors of members that are better, without asking a GPU's host.

        The state changes in one assignment, so Ctrl-C never finds half of it.
        """
        best, best_score, best_loss, best_epoch = self._state
        better = (score > best_score) | ((score == best_score) & (loss < best_loss))
        if not better.is_cuda and not bool(better.any()):
            return
        self._state = (
            chosen(better, tensors, best),
            torch.where(better, score.to(best_score), best_score),
            torch.where(better, loss.to(best_loss), best_loss),
            torch.where(better, epoch, best_epoch),
        )

    def dump(self) -> dict[str, Any]:
        """All of it, under names."""
        tensors, score, loss, epoch = self._state
        return {"tensors": list(tensors), "score": score, "loss": loss, "epoch": epoch}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._state = tuple(state["tensors"]), state["score"], state["loss"], state["epoch"]

    def epochs_on_host(self) -> list[int | None]:
        """When each member was best, counted from zero; None before any. Reads the device."""
        return [epoch if epoch >= 0 else None for epoch in self._state[3].tolist()]


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


class EpochChoice:
    """Keeps the state of all members at the epoch where the loss on out-of-fold rows is lowest.

    A fold is a member whose held-out rows have weight zero: what its network predicts for them
    falls out of the pass that trains all members, and nothing is trained twice.

    ``remember`` is given the state after an epoch, then ``judge`` the mean loss of the folds. The
    loss is smoothed over the epochs around, so the last few states are kept until theirs is known.
    """

    def __init__(
        self, tensors: Sequence[Tensor], n_full: int, max_epochs: int, steps_an_epoch: int = 1
    ) -> None:
        self._n_full = n_full
        self._half = max(1, HALF // steps_an_epoch)
        least = max(LEAST_PATIENT_EPOCHS, math.ceil(LEAST_PATIENCE / steps_an_epoch))
        share = PATIENCE if steps_an_epoch == 1 else BATCH_PATIENCE
        self._patience = max(least, round(share * max_epochs))
        self._recent = [[torch.empty_like(t) for t in tensors] for _ in range(self._half + 1)]
        self._best = [tensor.detach().clone() for tensor in tensors]
        # Numbers of the host on a CPU; on a GPU they stay there, so that nobody waits.
        self._on_gpu = tensors[0].is_cuda
        self._losses: list[Any] = []
        self._lowest: Any = math.inf
        self._at: Any = 0

    @property
    def tensors(self) -> list[Tensor]:
        """The state that was chosen."""
        return self._best

    def length_on_host(self) -> int:
        """Epochs that led to it. Reads the device."""
        return int(self._at)

    def lowest_on_host(self) -> float:
        """The lowest loss of any epoch so far; Inf without. Reads the device."""
        return min((x for x in map(float, self._losses) if not math.isnan(x)), default=math.inf)

    @torch.no_grad()
    def remember(self, tensors: Sequence[Tensor]) -> None:
        """The state after one more epoch."""
        torch._foreach_copy_(self._recent[len(self._losses) % len(self._recent)], list(tensors))

    def judge(self, held_loss: Float[Tensor, " m"]) -> None:
        """The loss of each member on the rows it left out, in the state remembered last.

        A fold that was given up has none, and the others decide.
        """
        folds = held_loss[self._n_full :]
        if self._on_gpu:
            self._losses.append(folds.nanmean())
        else:
            losses = [loss for loss in folds.tolist() if not math.isnan(loss)]
            self._losses.append(sum(losses) / len(losses) if losses else math.inf)
        if len(self._losses) > self._half:
            self._decide(len(self._losses) - 1 - self._half)

    def finish(self) -> None:
        """Decide on the last few states too."""
        for epoch in range(max(0, len(self._losses) - self._half), len(self._losses)):
            self._decide(epoch)

    def stalled(self) -> bool:
        """Whether the lowest loss is long past; on a GPU asked only now and then."""
        n = len(self._losses)
        if n == 0 or (self._on_gpu and n % GPU_EPOCHS):
            return False
        return n - self.length_on_host() >= self._patience

    def dump(self) -> dict[str, Any]:
        """All that lives through a run, under names."""
        n = min(len(self._recent), len(self._losses) + 1)
        return {
            "recent": [list(tensors) for tensors in self._recent[:n]],
            "best": list(self._best),
            "losses": list(map(float, self._losses)),
            "lowest": float(self._lowest),
            "at": int(self._at),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        for mine, stored in zip(self._recent, state["recent"], strict=False):
            put_back(mine, stored)
        put_back(self._best, state["best"])
        losses, device = state["losses"], self._best[0].device
        self._losses = [torch.tensor(x, device=device) for x in losses] if self._on_gpu else losses
        self._lowest, self._at = state["lowest"], state["at"]

    def _decide(self, epoch: int) -> None:
        """Whether this epoch is the best so far, by the mean loss of those around it.

        At either end the outermost loss counts for those that are not there.
        """
        last, half = len(self._losses) - 1, self._half
        window = [self._losses[min(max(e, 0), last)] for e in range(epoch - half, epoch + half + 1)]
        place = epoch % len(self._recent)
        if not self._on_gpu:
            loss = sum(window) / len(window)
            if loss < self._lowest:
                self._best, self._recent[place] = self._recent[place], self._best
                self._lowest, self._at = loss, epoch + 1
            return
        mean = torch.stack(window).mean()
        better = mean < self._lowest
        everyone = better.expand(len(self._best[0]))
        self._best = list(chosen(everyone, self._recent[place], self._best))
        self._lowest = torch.where(better, mean, self._lowest)
        self._at = torch.where(better, epoch + 1, self._at)
