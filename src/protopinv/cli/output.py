"""What leaves the program: answers, error lines, exit codes."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import typer

from protopinv import errors
from protopinv.plain import plain


class ExitCode(IntEnum):
    """2 and 130 are also what the parser gives, for a wrong option and for Ctrl-C.

    A defect of ours is a traceback and Python's own code, 1.
    """

    OK = 0
    DEFECT = 1
    USAGE = 2
    DATA = 3
    MODEL_FILE = 4
    TRAINING = 5
    MISSING_EXTRA = 6
    OUTPUT = 7
    CHECKPOINT = 8
    RANKS = 9
    EXPORT = 10
    INTERRUPTED = 130


_CODES: dict[type[errors.ProtoPINVError], ExitCode] = {
    errors.ConfigError: ExitCode.USAGE,
    errors.DataError: ExitCode.DATA,
    errors.DataFileError: ExitCode.DATA,
    errors.ModelFileError: ExitCode.MODEL_FILE,
    errors.TrainingError: ExitCode.TRAINING,
    errors.CheckpointError: ExitCode.CHECKPOINT,
    errors.RankError: ExitCode.RANKS,
    errors.ExportError: ExitCode.EXPORT,
    errors.MissingExtraError: ExitCode.MISSING_EXTRA,
    errors.OutputError: ExitCode.OUTPUT,
}


def exit_code(error: BaseException) -> ExitCode | None:
    """The code of an error that is the user's to mend; None for a defect of ours."""
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)


def one_line(error: BaseException | str) -> str:
    """The message on a single line."""
    return " ".join(str(error).split())


def say(text: str) -> None:
    """Talk, on stderr."""
    print(text, file=sys.stderr)


def leave(*, interrupted: bool) -> None:
    """The end of a command that trains: after Ctrl-C it did all the rest, and the code says so."""
    if interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)


@contextmanager
def on_stdout() -> Iterator[None]:
    """What is printed in here arrives, or is an OutputError; a closed pipe is the parser's."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # Python would try to write the same bytes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise errors.OutputError(
            f"Answers must reach stdout whole. They did not ({error.strerror}). Free some space, "
            "or send them elsewhere."
        ) from error


def answer(values: Mapping[str, Any], *, as_json: bool) -> None:
    """Named values on stdout: a JSON object, or a line for each that is there."""
    if as_json:
        print(json.dumps(plain(values), indent=2))
        return
    width = max(map(len, values))
    for name, value in values.items():
        if value is None:
            continue
        print(f"{name.replace('_', ' '):<{width}}  {_text(value)}")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e-2 or abs(value) >= 1e4 else f"{value:.4f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        shown = ", ".join(f"{x:.4g}" if isinstance(x, float) else str(x) for x in value[:20])
        return (shown or "none") + (f", ... ({len(value)} in all)" if len(value) > 20 else "")
    return str(value)
