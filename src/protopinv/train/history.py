"""What happens during training, epoch by epoch: reports, a display of progress, the history."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor

from protopinv.errors import GuardWarning, InterruptedWarning
from protopinv.train.config import TrainConfig
from protopinv.train.machine import expected, own_number

# One number an epoch each, and one for each bank or fold.
COLUMNS = ("loss", "lr", "validation_score", "validation_loss")
APART = ("member_loss", "fold_loss")

# The display is updated so often in all, and after every epoch that takes long.
LINES_ELSEWHERE, BAR_UPDATES = 10, 100
LONG_EPOCH_SECONDS = 5.0
ROW_UNITS = ("", " k", " M", " G")
BYTE_UNITS = (" B", " kB", " MB", " GB", " TB", " PB")

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


@dataclass(frozen=True)
class EpochReport:
    """What an observer may look at, one number a member; reading one waits for the device.

    ``state`` is what is being trained, a Bank here; the next step changes it in place. ``n_epochs``
    are to be run at most. Where folds are judged by the pass that trains them, scores and losses of
    held-out rows are those of the epoch before, and zero for members that hold none. While several
    candidates are screened ``candidate`` is the number of this one. Every epoch passes over
    ``n_rows``, on all ranks together; ``bytes_read`` is of this rank. ``lr`` is the learning rate
    of the last step.
    """

    epoch: int
    n_epochs: int
    loss: Float[Tensor, " m"]
    validation_score: Float[Tensor, " m"] | None
    validation_loss: Float[Tensor, " m"] | None
    state: Any
    candidate: int | None = None
    n_rows: int = 0
    bytes_read: int = 0
    lr: tuple[float, ...] = ()
    config: TrainConfig | None = None

    def means(self) -> dict[str, float | None]:
        """Losses and score as plain numbers, of validation over members that hold rows out.

        None for what is not known.
        """
        held_loss, held_score = self.validation_loss, self.validation_score
        loss = score = None
        if held_loss is not None and held_score is not None:
            holds = held_loss != 0
            holds = holds if bool(holds.any()) else ~holds  # all of them may be without any loss
            loss, score = float(held_loss[holds].mean()), float(held_score[holds].mean())
        return {"loss": float(self.loss.mean()), "validation_loss": loss, "validation_score": score}


# One that returns True ends the training there.
Observer = Callable[[EpochReport], bool | None]


@contextmanager
def progress(*, enabled: bool, also: Observer | None = None) -> Iterator[Observer | None]:
    """An observer that shows on stderr how far training is and calls ``also``; None for neither.

    In a terminal it draws a bar, elsewhere it prints a few lines.
    """
    if not enabled:
        yield also
        return
    with _display() as show:

        def both(report: EpochReport) -> bool | None:
            show(report)
            return None if also is None else also(report)

        yield both


@contextmanager
def _display() -> Iterator[Callable[[EpochReport], None]]:
    # Rich takes a while to import and most fits show nothing.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal or expected() > 1:
        yield partial(_print_line, Pace(LINES_ELSEWHERE))
        return
    columns = (
        TextColumn("{task.description:12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeRemainingColumn(),
    )
    pace = Pace(BAR_UPDATES)
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("training", total=None, numbers="")

        def show(report: EpochReport) -> None:
            if (numbers := pace.numbers(report)) is not None:
                number, done, total = report.candidate, report.epoch + 1, report.n_epochs
                stage = "training" if number is None else f"screening {number + 1}"
                bar.update(task, description=stage, total=total, completed=done, numbers=numbers)

        yield show


def _print_line(pace: "Pace", report: EpochReport) -> None:
    """Print which epoch numbers are of, and in a job of several ranks whose they are."""
    if (numbers := pace.numbers(report)) is not None:
        rank = f"rank {own_number()}: " if expected() > 1 else ""
        stage = "" if report.candidate is None else f"screening {report.candidate + 1}, "
        place = f"{rank}{stage}epoch {report.epoch + 1}/{report.n_epochs}"
        print(f"{place} {numbers}{pace.left(report)}", file=sys.stderr, flush=True)


class Pace:
    """How fast training is, by the epochs so far; it is shown ``times`` times in all."""

    def __init__(self, times: int) -> None:
        self._times = times
        self._begun = self._last = time.perf_counter()
        self._epochs = 0

    def numbers(self, report: EpochReport) -> str | None:
        """Losses and rows a second, after every long epoch and some others; None after the rest.

        A number that is shown is one that is read from a device.
        """
        now = time.perf_counter()
        latest, self._last = now - self._last, now
        self._epochs += 1
        done, total = report.epoch + 1, report.n_epochs
        is_due = done % max(1, total // self._times) == 0 or done == total
        if not is_due and latest < LONG_EPOCH_SECONDS:
            return None
        means, rows = report.means(), report.n_rows * self._epochs
        held = means["validation_loss"]
        parts = [f"loss {means['loss']:.4f}", "" if held is None else f"validation loss {held:.4f}"]
        parts.append(f"{_scaled(rows / max(now - self._begun, 1e-9), ROW_UNITS)} rows/s")
        text = " ".join(filter(None, parts))
        read = report.bytes_read
        return f"{text}, {_scaled(read, BYTE_UNITS)} read" if read else text

    def left(self, report: EpochReport) -> str:
        """The time until the last epoch, if all are as long as those before; "" at first."""
        seconds = self._last - self._begun
        if seconds < 1:
            return ""
        left = round(seconds / self._epochs * (report.n_epochs - report.epoch - 1))
        return f", {left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"


def _scaled(number: float, units: Sequence[str]) -> str:
    """Three digits, and a unit in which they are few."""
    place = 0
    while number >= 1000 and place < len(units) - 1:
        number, place = number / 1000, place + 1
    return f"{number:.3g}{units[place]}"
