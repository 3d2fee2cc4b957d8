"""What happened during training, epoch by epoch."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from protopinv.errors import GuardWarning, InterruptedWarning

Ending = Literal["finished", "stopped early", "interrupted"]


@dataclass(frozen=True)
class History:
    """Plain numbers, one a finished epoch; ``events`` says what the guard did."""

    loss: list[float] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    ridge: list[list[float]] = field(default_factory=list)
    validation_score: list[float] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
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
        if self.kept_epoch is None or not self.validation_score:
            return None
        return self.validation_score[self.kept_epoch]

    def warnings(self) -> list[Warning]:
        """What a user should hear of: an interruption, a lower rate, many steps not taken."""
        found: list[Warning] = []
        if self.ending == "interrupted":
            kept = "the start" if self.kept_epoch is None else "the best so far"
            text = f"Training was interrupted after {self.n_epochs} epochs; kept {kept}."
            found.append(InterruptedWarning(text))
        many_skipped = self.skipped_steps > min(self.steps - 1, max(3, 0.05 * self.steps))
        if self.steps and (self.rate_cuts > 0 or many_skipped):
            found.append(
                GuardWarning(
                    f"{self.skipped_steps} of {self.steps} steps were skipped. "
                    + "; ".join(self.events)
                    + ". Scale the features, or lower lr."
                )
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "History":
        """Back from JSON, where a loss that was not finite is null."""
        columns = ("loss", "lr", "validation_score", "validation_loss")
        losses = {
            name: [math.nan if number is None else float(number) for number in values[name]]
            for name in columns
        }
        return cls(**{**values, **losses})


class Recorder:
    """Collects numbers that may still be on the device; ``columns`` reads them all at once."""

    def __init__(self) -> None:
        self._epochs: list[Mapping[str, Tensor]] = []

    def add(self, numbers: Mapping[str, Tensor]) -> None:
        """One more epoch; every epoch has the same names."""
        self._epochs.append({name: number.detach() for name, number in numbers.items()})

    def columns(self) -> dict[str, Any]:
        """For each name a list of Python numbers, one an epoch."""
        names = self._epochs[0] if self._epochs else ()
        return {name: torch.stack([row[name] for row in self._epochs]).tolist() for name in names}
