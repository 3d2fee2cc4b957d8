"""A progress display on stderr: a bar in a terminal, a few lines elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from protopinv.train.loop import EpochReport, Observer

LINES_ELSEWHERE = 10


@contextmanager
def progress(
    total: int, *, enabled: bool, also: Observer | None = None
) -> Iterator[Observer | None]:
    """An observer that shows how far training is and calls ``also``; None for neither.

    Folds are shown but no concern of ``also``.
    """

    def call_also(report: EpochReport) -> bool | None:
        return also(report) if also is not None and not report.fold else None

    if not enabled:
        yield None if also is None else call_also
        return
    with _display(total) as show:

        def both(report: EpochReport) -> bool | None:
            show(report)
            return call_also(report)

        yield both


@contextmanager
def _display(total: int) -> Iterator[Observer]:
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
        yield _line_printer(total)
        return
    columns = (
        TextColumn("{task.description:11}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("training", total=total, numbers="")
        every = max(1, total // 100)  # a number shown is a number read from the device

        def show(report: EpochReport) -> None:
            if report.epoch % every == 0 or report.epoch + 1 == total:
                bar.update(
                    task,
                    description=report.fold or "training",
                    completed=report.epoch + 1,
                    numbers=_numbers(report),
                )

        yield show


def _line_printer(total: int) -> Observer:
    every = max(1, total // LINES_ELSEWHERE)

    def show(report: EpochReport) -> None:
        done = report.epoch + 1
        if done == total or (done % every == 0 and not report.fold):
            stage = f"{report.fold}, " if report.fold else ""
            print(f"{stage}epoch {done}/{total} {_numbers(report)}", file=sys.stderr, flush=True)

    return show


def _numbers(report: EpochReport) -> str:
    text = f"loss {float(report.loss):.4f}"
    if report.validation_score is not None:
        text += f" validation {float(report.validation_score):.4f}"
    return text
