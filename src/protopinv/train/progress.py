"""A progress display on stderr: a bar in a terminal, a few lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from protopinv.train.loop import EpochReport, Observer
from protopinv.train.ranks import expected, own_number

LINES_ELSEWHERE = 10
# Epochs that take longer than this are shown each.
LONG_EPOCH_SECONDS = 5.0
UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@contextmanager
def progress(*, enabled: bool, also: Observer | None = None) -> Iterator[Observer | None]:
    """An observer that shows how far training is and calls ``also``; None for neither."""
    if not enabled:
        yield also
        return
    with _display() as show:

        def both(report: EpochReport) -> bool | None:
            show(report)
            return None if also is None else also(report)

        yield both


@contextmanager
def _display() -> Iterator[Observer]:
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
    pace = Pace(time.perf_counter)
    if not console.is_terminal or expected() > 1:
        yield _lines(pace)
        return
    columns = (
        TextColumn("{task.description:12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("training", total=None, numbers="")

        def show(report: EpochReport) -> None:
            pace.count()
            if pace.is_due(report, 100):
                stage = "training"
                if report.candidate is not None:
                    stage = f"screening {report.candidate + 1}"
                bar.update(
                    task,
                    description=stage,
                    total=report.n_epochs,
                    completed=report.epoch + 1,
                    numbers=f"{_numbers(report)} {pace.rows(report)}",
                )

        yield show


def _lines(pace: "Pace") -> Observer:
    """A line says which epoch its numbers are of, and in a job of several ranks whose it is."""
    rank = f"rank {own_number()}: " if expected() > 1 else ""

    def show(report: EpochReport) -> None:
        pace.count()
        if pace.is_due(report, LINES_ELSEWHERE):
            number = report.candidate
            stage = "" if number is None else f"screening {number + 1}, "
            place = f"{rank}{stage}epoch {report.epoch + 1}/{report.n_epochs}"
            left = f", {pace.left(report)} left" if pace.seconds >= 1 else ""
            line = f"{place} {_numbers(report)} {pace.rows(report)}{left}"
            print(line, file=sys.stderr, flush=True)

    return show


class Pace:
    """How fast training is, from the epochs there were."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun = self._last = clock()
        self._epochs = 0
        self._latest = 0.0

    @property
    def seconds(self) -> float:
        """Since the first epoch began."""
        return self._last - self._begun

    def count(self) -> None:
        """One more epoch is over."""
        now = self._clock()
        self._latest, self._last = now - self._last, now
        self._epochs += 1

    def is_due(self, report: EpochReport, times: int) -> bool:
        """So many times in all, and every long epoch: a number shown is one read from a device."""
        done = report.epoch + 1
        few = done % max(1, report.n_epochs // times) == 0 or done == report.n_epochs
        return few or self._latest >= LONG_EPOCH_SECONDS

    def rows(self, report: EpochReport) -> str:
        """Rows a second, and what was read for them."""
        a_second = report.n_rows * self._epochs / max(self.seconds, 1e-9)
        text = f"{_short(a_second)} rows/s"
        return f"{text}, {_bytes(report.bytes_read)} read" if report.bytes_read else text

    def left(self, report: EpochReport) -> str:
        """The time until the last epoch, if all are as long as those before."""
        each = self.seconds / max(1, self._epochs)
        left = round(each * (report.n_epochs - report.epoch - 1))
        return f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02}"


def _short(number: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def _bytes(number: float) -> str:
    place = 0
    while number >= 1000 and place < len(UNITS) - 1:
        number, place = number / 1000, place + 1
    return f"{number:.3g} {UNITS[place]}"


def _numbers(report: EpochReport) -> str:
    """Means, where several are trained side by side."""
    means = report.means()
    text = f"loss {means['loss']:.4f}"
    held = means["validation_loss"]
    return text if held is None else f"{text} validation loss {held:.4f}"
