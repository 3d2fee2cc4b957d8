"""What leaves the program: results on stdout, progress and errors on stderr, exit codes.

Messages of the library name parameters of Python; here they become options.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from enum import IntEnum
from typing import Any, TextIO

import typer

from protopinv import errors
from protopinv.plain import plain, visible
from protopinv.train.config import FIELDS, TrainConfig

# What a validation score is, by task.
_MEASURES = {"classification": "accuracy", "multi-label": "label_accuracy", "regression": "r2"}


class ExitCode(IntEnum):
    """2 and 130 are also what the parser gives, for a wrong option and for Ctrl-C."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> "ExitCode":
        """A code with a sentence about it."""
        code = int.__new__(cls, value)
        code._value_, code.meaning = value, meaning
        return code

    OK = 0, "All went well."
    DEFECT = 1, "A defect of protopinv, with a traceback that should be reported."
    USAGE = 2, "An option or a hyperparameter is unknown or outside its range."
    DATA = 3, "Rows, targets or a data file are missing, damaged or cannot be used as they are."
    MODEL_FILE = 4, "A model file is missing, damaged, foreign or from a newer version."
    TRAINING = 5, "Training could not be kept finite."
    MISSING_EXTRA = 6, "An optional package is needed; the message says how to install it."
    OUTPUT = 7, "A file, or stdout, cannot be written."
    CHECKPOINT = 8, "A checkpoint is missing, damaged, or of another training."
    RANKS = 9, "A process of a job was lost, or the processes disagree."
    EXPORT = 10, "The model cannot be written in the format that was asked for."
    INTERRUPTED = 130, "Ctrl-C; what a training or a search had reached is in NAME.unfinished."


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
    return visible(" ".join(str(error).split()))


def say(text: str) -> None:
    """A line on stderr."""
    print(visible(text), file=sys.stderr)


def show(line: str) -> None:
    """A line of an answer, on stdout; names from a stranger's file may hold anything."""
    print(visible(line))


class Terminal:
    """What is written to a terminal line by line, with what it would obey in sight."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Lines, or parts of them."""
        self._stream.write("\n".join(map(visible, text.split("\n"))))


def for_people(stream: TextIO) -> "TextIO | Terminal":
    """The stream, guarded if it is a terminal; files and pipes get every character as it is."""
    return Terminal(stream) if stream.isatty() else stream


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
        print(json.dumps(plain(values), indent=2).replace("\x7f", "\\u007f"))
        return
    width = max(map(len, values))
    for name, value in values.items():
        if value is None:
            continue
        show(f"{name.replace('_', ' '):<{width}}  {_text(value)}")


def validation(task: str, score: float | None) -> dict[str, float | None]:
    """A validation score under the name of what it is."""
    return {f"validation_{_MEASURES[task]}": score}


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e-2 or abs(value) >= 1e4 else f"{value:.4f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        shown = ", ".join(f"{x:.4g}" if isinstance(x, float) else str(x) for x in value[:20])
        return (shown or "none") + (f", ... ({len(value)} in all)" if len(value) > 20 else "")
    return str(value)


# Parameters that options are called after, and those that have other names on the command line.
_SAME = ("checkpoint", "checkpoint_every", "device", "drop", "encoding", "resume", "separator")
_NAMES = (*FIELDS, *_SAME, "target", "weight")
_OPTIONS = {name: f"--{name.replace('_', '-')}" for name in _NAMES} | {
    "calibration": "--calibrate",
    "columns": "--categorical",
    "examples": "--with-examples",
    "features": "--drop",
    "n_trials": "--trials",
    "random_state": "--seed",
    "sample_weight": "--weight",
    "study_file": "--study",
}
_ESTIMATORS = {
    "ProtoPINVRegressor": "--task regression",
    "ProtoPINVClassifier": "--task classification",
}
# Options without a value; those of the second kind can be taken back, as in --no-copy-mirror.
_FLAGS = {"examples", "resume"}
_SWITCHES = {item.name for item in fields(TrainConfig) if item.type is bool}

# In this order: a parameter with its value; what is quoted, which is the user's own and stays as
# it is; the name of a parameter where no plain word and no part of a path is meant; a word of
# Python that is a value.
_ALONE, _ENDS = r"(?<![\w/.-])", r"(?![\w/-]|\.\w)"
_VALUE = r"(?P<value>'[^']*'|\([^()]*\)|\[[^\[\]]*\]|[\w+-]+(?:\.\d+)?)"
_ASSIGNED = rf"{_ALONE}(?P<name>[a-z]\w*)={_VALUE}"
_QUOTED = r"(?<!\w)(?P<quoted>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
_NAMED = rf"(?P<word>{_ALONE}[a-z]+(?:_[a-z]+)+{_ENDS}|^[a-z]+(?= must be)|\bProtoPINV\w+)"
_LITERAL = r"(?<=[a-z,] )(?P<literal>None|True|False)\b"
_PARTS = re.compile(f"{_ASSIGNED}|{_QUOTED}|{_NAMED}|{_LITERAL}")


def as_options(message: str) -> str:
    """``n_prototypes=0`` as ``--n-prototypes 0``; what stands in quotes stays as it is."""
    return _PARTS.sub(_rewritten, message)


def _rewritten(part: re.Match[str]) -> str:
    if part["quoted"] is not None:
        return part[0]
    if part["literal"] is not None:
        return part[0].lower()
    if part["word"] is not None:
        return _ESTIMATORS.get(part[0]) or _OPTIONS.get(part[0], part[0])
    name, value = part["name"], _typed(part["value"])
    if name not in _OPTIONS:
        return part[0]
    option = _OPTIONS[name]
    if name in _FLAGS | _SWITCHES and value == "true":
        return option
    if name in _FLAGS and value == "false":
        return f"without {option}"
    if name in _SWITCHES and value == "false":
        return f"--no-{option[2:]}"
    return f"{option} {value}"


def _typed(value: str) -> str:
    """As it is typed behind an option: no quotes, several with commas."""
    if value[0] == "'":
        return value.strip("'")
    if value[0] in "([":
        return value.strip("()[]").replace(" ", "").rstrip(",")
    return value.lower() if value in ("None", "True", "False") else value
