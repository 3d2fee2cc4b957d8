"""The state of a training between its steps: what a checkpoint holds, and which epoch is kept.

All of it stays on the device.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

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


class Resumable:
    """What goes on from a checkpoint: the attributes that ``state_names`` lists make its state."""

    state_names: ClassVar[tuple[str, ...]] = ()

    def dump(self) -> dict[str, Any]:
        """All that lives through a run, under names: tensors and plain values."""
        return {name.strip("_"): _dumped(getattr(self, name)) for name in self.state_names}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from there; tensors change in place, as a graph may hold them."""
        for name in self.state_names:
            setattr(self, name, _restored(getattr(self, name), state[name.strip("_")]))


def _dumped(value: Any) -> Any:
    if isinstance(value, Resumable):
        return value.dump()
    if isinstance(value, Generator):
        return value.get_state()
    if isinstance(value, Mapping):
        return {str(key): _dumped(each) for key, each in value.items()}
    return [_dumped(each) for each in value] if isinstance(value, list | tuple) else value


def _restored(mine: Any, stored: Any) -> Any:
    """What an attribute becomes; values that cannot change in place are replaced."""
    if isinstance(mine, Resumable):
        mine.restore(stored)
    elif isinstance(mine, Generator):
        mine.set_state(stored.cpu())
    elif isinstance(mine, Tensor):
        mine.copy_(stored)
    elif isinstance(mine, Mapping):
        return {key: _restored(each, stored[str(key)]) for key, each in mine.items()}
    elif isinstance(mine, list | tuple) and len(mine) == len(stored):
        return type(mine)(map(_restored, mine, stored))
    else:
        return stored
    return mine


def copied(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Copies that share nothing with the tensors."""
    return tuple(tensor.detach().clone() for tensor in tensors)


class Best(Resumable):
    """Copies of the tensors of every member at its best: higher score wins, then lower loss.

    ``tensors`` are those that came first before any were offered. A score of NaN never wins.
    """

    state_names = ("tensors", "_score", "_loss", "_epoch")

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        m = len(tensors[0])
        self.tensors = copied(tensors)
        self._loss = tensors[0].new_full((m,), torch.inf)  # in the precision of what is offered
        self._score = -self._loss
        self._epoch = torch.full((m,), -1, device=tensors[0].device)

    @torch.no_grad()
    def offer(
        self,
        tensors: Sequence[Tensor],
        score: Float[Tensor, " m"],
        loss: Float[Tensor, " m"],
        epoch: int,
    ) -> None:
        """Keep a copy of the tensors of members that are better, without asking a GPU's host."""
        better = (score > self._score) | ((score == self._score) & (loss < self._loss))
        if not better.is_cuda and not bool(better.any()):
            return
        vars(self).update(  # all at once, so that Ctrl-C never finds half of it
            tensors=chosen(better, tensors, self.tensors),
            _score=torch.where(better, score.to(self._score), self._score),
            _loss=torch.where(better, loss.to(self._loss), self._loss),
            _epoch=torch.where(better, epoch, self._epoch),
        )

    def epochs_on_host(self) -> list[int | None]:
        """When each member was best, counted from zero; None before any. Reads the device."""
        return [epoch if epoch >= 0 else None for epoch in self._epoch.tolist()]


def chosen(
    better: Bool[Tensor, " m"], new: Sequence[Tensor], old: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """New tensors for the members that are better, the old ones for the others."""
    return tuple(
        torch.where(better.view(-1, *[1] * (a.ndim - 1)), a, b)
        for a, b in zip(new, old, strict=True)
    )


class Average(Resumable):
    """An exponential average of tensors over steps, quicker at first so as to forget the start."""

    state_names = ("tensors", "_steps")

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


class EpochChoice(Resumable):
    """Keeps the state of all members at the epoch where the loss on out-of-fold rows is lowest.

    A fold is a member whose held-out rows have weight zero: what its network predicts for them
    falls out of the pass that trains all members, and nothing is trained twice.

    ``remember`` is given the state after an epoch, then ``judge`` the mean loss of the folds. The
    loss is smoothed over the epochs around, so the last few states are kept until theirs is known.
    ``best`` is the state that was chosen.
    """

    state_names = ("_recent", "best", "_losses", "_lowest", "_at")

    def __init__(
        self, tensors: Sequence[Tensor], n_full: int, max_epochs: int, steps_an_epoch: int = 1
    ) -> None:
        self.n_full = n_full
        self._half = max(1, HALF // steps_an_epoch)
        least = max(LEAST_PATIENT_EPOCHS, math.ceil(LEAST_PATIENCE / steps_an_epoch))
        share = PATIENCE if steps_an_epoch == 1 else BATCH_PATIENCE
        self._patience = max(least, round(share * max_epochs))
        self._recent = [[torch.zeros_like(t) for t in tensors] for _ in range(self._half + 1)]
        self.best = list(copied(tensors))
        # Numbers of the host on a CPU; on a GPU they stay there, so that nobody waits.
        self._on_gpu = tensors[0].is_cuda
        self._losses: list[Any] = []
        self._lowest: Any = math.inf
        self._at: Any = 0

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
        folds = held_loss[self.n_full :]
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
                self.best, self._recent[place] = self._recent[place], self.best
                self._lowest, self._at = loss, epoch + 1
            return
        mean = torch.stack(window).mean()
        better = mean < self._lowest
        everyone = better.expand(len(self.best[0]))
        self.best = list(chosen(everyone, self._recent[place], self.best))
        self._lowest = torch.where(better, mean, self._lowest)
        self._at = torch.where(better, epoch + 1, self._at)
