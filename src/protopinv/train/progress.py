"""A progress display on stderr: a bar in a terminal, a few lines elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from protopinv.train.loop import EpochReport, Observer

LINES_ELSEWHERE = 10


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
    if not console.is_terminal:
        yield _print_line
        return
    columns = (
        TextColumn("{task.description:11}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("training", total=None, numbers="")

        def show(report: EpochReport) -> None:
            if _is_due(report, 100):
                looks = "training" if report.look is None else f"look {report.look + 1}"
                bar.update(
                    task,
                    description=looks,
                    total=report.n_epochs,
                    completed=report.epoch + 1,
                    numbers=_numbers(report),
                )

        yield show


def _print_line(report: EpochReport) -> None:
    """A line says which epoch its numbers are of."""
    if _is_due(report, LINES_ELSEWHERE):
        look = "" if report.look is None else f"look {report.look + 1}, "
        line = f"{look}epoch {report.epoch + 1}/{report.n_epochs} {_numbers(report)}"
        print(line, file=sys.stderr, flush=True)


def _is_due(report: EpochReport, times: int) -> bool:
    """So many times in all: a number shown is a number read from the device."""
    done = report.epoch + 1
    return done % max(1, report.n_epochs // times) == 0 or done == report.n_epochs


def _numbers(report: EpochReport) -> str:
    """Means, where several are trained side by side; of validation over those that have it."""
    text = f"loss {float(report.loss.mean()):.4f}"
    if report.validation_loss is not None:
        held = report.validation_loss[report.validation_loss > 0]
        text += f" validation loss {float(held.mean()):.4f}"
    return text
