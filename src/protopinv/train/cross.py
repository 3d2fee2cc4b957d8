"""Epochs chosen by cross-validation: folds and the bank of all rows train side by side.

A fold is a member of the population whose held-out rows have weight zero. What its network says of
these rows falls out of the same pass, and the epoch at which the folds are best on average is read
off the others' track. Nothing is trained twice.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from protopinv.train.rows import AnyRows, Rows
from protopinv.train.step import Step, StepReport
from protopinv.train.stopping import chosen, put_back

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
GPU_LOOKS = 10

# Rows to score and loss of every member.
Evaluate = Callable[[AnyRows], tuple[Tensor, Tensor]]


def deal_folds(groups: NDArray[np.integer], n_folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of each row: every group is dealt out like cards, in a random order.

    Groups of fewer rows than folds are in none, -1: a fold could not learn what it is judged by.
    """
    shuffled = np.random.default_rng(seed).permutation(len(groups))
    dealt = shuffled[np.argsort(groups[shuffled], kind="stable")]
    common = np.bincount(groups) >= n_folds
    dealt = dealt[common[groups[dealt]]]
    folds = np.full(len(groups), -1)
    folds[dealt] = np.arange(len(dealt)) % n_folds
    return folds


def crossed(rows: Rows, fold: Int[Tensor, " n"], n_full: int, n_judged: int) -> Rows:
    """The rows for a population: so many members that see all of them, then one for each fold.

    ``fold`` says which rows each fold leaves out. Of these only the first ``n_judged`` rows count
    when it is judged: distorted copies of images come behind.
    """
    n_folds = int(fold.max()) + 1
    weight = rows.X.new_ones(1, len(rows)) if rows.weight is None else rows.weight
    weight = weight.to(
        torch.get_default_dtype() if rows.X.dtype == torch.bfloat16 else rows.X.dtype
    )
    left_out = fold == torch.arange(n_folds, device=fold.device)[:, None]
    seen = weight * ~left_out
    seen = seen * (len(rows) / seen.sum(1, keepdim=True))
    held = weight * left_out
    held[:, n_judged:] = 0
    held = held / held.sum(1, keepdim=True)
    return Rows(
        rows.X,
        rows.y,
        torch.cat([weight.expand(n_full, -1), seen]),
        torch.cat([torch.zeros_like(held[:1]).expand(n_full, -1), held]),
        fold,
    )


class EpochChoice:
    """Keeps the state of all members at the epoch where the loss on held-out rows is lowest.

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
        known = (loss for loss in map(float, self._losses) if not math.isnan(loss))
        return min(known, default=math.inf)

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
            known = [loss for loss in folds.tolist() if not math.isnan(loss)]
            self._losses.append(sum(known) / len(known) if known else math.inf)
        if len(self._losses) > self._half:
            self._decide(len(self._losses) - 1 - self._half)

    def finish(self) -> None:
        """Decide on the last few states too."""
        for epoch in range(max(0, len(self._losses) - self._half), len(self._losses)):
            self._decide(epoch)

    def stalled(self) -> bool:
        """Whether the lowest loss is long past; on a GPU asked only now and then."""
        n = len(self._losses)
        if n == 0 or (self._on_gpu and n % GPU_LOOKS):
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
        for mine, given in zip(self._recent, state["recent"], strict=False):
            put_back(mine, given)
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


class Folds:
    """Members that hold rows out, and the epoch that is chosen by what they say of these.

    ``free`` says that the pass which trains shows the state as it is before the update: then what
    is known after an epoch is what the one before it has led to.
    """

    def __init__(self, choice: EpochChoice, rows: AnyRows, step: Step[Any]) -> None:
        self.choice = choice
        self.free = step.judges_for_free
        self._holds = step.ranks.agree(*rows.holds)
        self._rows = rows.by_holders()

    def before(self, epoch: int, step: Step[Any]) -> None:
        """Remember the state that the next pass will judge."""
        if self.free and epoch > 0:
            self.choice.remember(step.kept)

    def after(
        self, epoch: int, step: Step[Any], report: StepReport, evaluate: Evaluate
    ) -> tuple[Tensor, Tensor] | None:
        """Score and loss on the rows that members hold out, where they are known by now."""
        if not self.free:
            return self._look(step, evaluate)
        if epoch == 0 or report.held_score is None or report.held_loss is None:
            return None
        self.choice.judge(report.held_loss)
        return report.held_score, report.held_loss

    def finish(self, step: Step[Any], evaluate: Evaluate) -> tuple[Tensor, Tensor] | None:
        """Judge the last state, if no pass has, and decide."""
        seen = self._look(step, evaluate) if self.free else None
        self.choice.finish()
        return seen

    def apart(self, rows: Sequence[Sequence[float]]) -> list[list[float]]:
        """What each member that holds rows out says, by epoch."""
        return [
            [number for number, holds in zip(row, self._holds, strict=True) if holds]
            for row in rows
        ]

    def means(self, rows: Sequence[Sequence[float]]) -> list[list[float]]:
        """What they say on average, for every member, by epoch."""
        return [
            [sum(said) / len(said)] * len(row)
            for row, said in zip(rows, self.apart(rows), strict=True)
        ]

    def _look(self, step: Step[Any], evaluate: Evaluate) -> tuple[Tensor, Tensor]:
        """Judge the state as it stands."""
        self.choice.remember(step.kept)
        score, loss = evaluate(self._rows)
        self.choice.judge(loss)
        return score, loss
