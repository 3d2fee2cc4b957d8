"""What happened during training, epoch by epoch."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

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
    steps: int = 0
    skipped_steps: int = 0
    events: list[str] = field(default_factory=list)

    @property
    def n_epochs(self) -> int:
        """Epochs that were finished."""
        return len(self.loss)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Recorder:
    """Collects numbers that may still be on the device; ``floats`` reads them all at once."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Tensor]] = {}

    def add(self, **numbers: Tensor) -> None:
        """One more epoch."""
        for name, number in numbers.items():
            self._rows.setdefault(name, []).append(number.detach())

    def floats(self, name: str) -> list[Any]:
        """The column as Python numbers, or an empty list."""
        rows = self._rows.get(name)
        return torch.stack(rows).tolist() if rows else []
