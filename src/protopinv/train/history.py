"""What happened during training, epoch by epoch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from protopinv.errors import GuardWarning, InterruptedWarning

# One number an epoch each, and one for each bank or fold.
COLUMNS = ("loss", "lr", "validation_score", "validation_loss")
APART = ("member_loss", "fold_loss")

Ending = Literal["finished", "stopped early", "interrupted"]


@dataclass(frozen=True)
class History:
    """Plain numbers, one a finished epoch; ``events`` says what the guard did.

    ``member_loss`` has the training loss of each bank whose mean is predicted, and ``fold_loss``
    that of each fold on the rows it left out; both are empty for one bank alone.
    """

    loss: list[float] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    ridge: list[list[float]] = field(default_factory=list)
    validation_score: list[float] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
    member_loss: list[list[float]] = field(default_factory=list)
    fold_loss: list[list[float]] = field(default_factory=list)
    seconds: float = 0.0
    ending: Ending = "finished"
    best_epoch: int | None = None
    kept_epoch: int | None = None
    steps: int = 0
    skipped_steps: int = 0
    rate_cuts: int = 0
    events: list[str] = field(default_factory=list)

    @property
    def n_epochs(self) -> int:
        """Epochs that were finished."""
        return len(self.loss)

    @property
    def kept_score(self) -> float | None:
        """The validation score of the bank that was kept; None without validation."""
        if self.kept_epoch is None or self.kept_epoch >= len(self.validation_score):
            return None
        return self.validation_score[self.kept_epoch]

    def warnings(self) -> list[Warning]:
        """What a user should hear of: an interruption, a lower rate, many steps not taken."""
        warnings: list[Warning] = []
        if self.ending == "interrupted":
            state = "the start" if self.kept_epoch is None else "the best so far"
            text = f"Training was interrupted after {self.n_epochs} epochs; kept {state}."
            warnings.append(InterruptedWarning(text))
        many_skipped = self.skipped_steps > min(self.steps - 1, max(3, 0.05 * self.steps))
        if self.steps and (self.rate_cuts > 0 or many_skipped):
            warnings.append(
                GuardWarning(
                    f"{self.skipped_steps} of {self.steps} steps were skipped. "
                    + "; ".join(self.events)
                    + ". Scale the features, or lower lr."
                )
            )
        return warnings

    def to_dict(self) -> dict[str, Any]:
        """For JSON; its lists are the history's own."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "History":
        """Back from JSON, where a loss that was not finite is null; ValueError for other kinds."""
        for name in ("ridge", *APART):
            rows = values.get(name, [])
            if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
                raise ValueError(f"a history whose {name} has no list an epoch")
        losses = {
            name: [math.nan if number is None else float(number) for number in values[name]]
            for name in COLUMNS
        }
        return cls(**{**values, **losses})


def mean_history(histories: Sequence[History]) -> History:
    """What happened on average, to members of one population; epochs are those of the first."""
    first, *others = histories
    if not others:
        return first
    columns = {
        name: np.mean([getattr(history, name) for history in histories], axis=0).tolist()
        for name in COLUMNS
    }
    return replace(
        first,
        **columns,
        ridge=np.mean([history.ridge for history in histories], axis=0).tolist(),
        member_loss=np.transpose([history.loss for history in histories]).tolist(),
        skipped_steps=sum(history.skipped_steps for history in histories),
        steps=sum(history.steps for history in histories),
        rate_cuts=sum(history.rate_cuts for history in histories),
    )
