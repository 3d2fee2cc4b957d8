"""The file of a search: entries that are added whole or not at all."""

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from protopinv.errors import CheckpointWarning, DataFileError, OutputError
from protopinv.files import HAS_LOCKS, require_file

if HAS_LOCKS:
    import fcntl


class Journal:
    """What Optuna keeps of a search, a line of JSON for each entry.

    One process at a time reads or writes. The system locks the file itself, so that nothing is
    left of a lock whose holder was killed.
    """

    def __init__(self, path: Path) -> None:
        require_file(path)
        self.path = path
        self.error: OutputError | None = None
        # entries that were read, and where the next one begins
        self._read = (0, 0)
        try:
            with self._alone() as file:
                self._require_entries(file)
        except PermissionError as error:
            raise no_study(path, f"it cannot be read: {error.strerror}") from error

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Entries from this number on."""
        number, place = self._read if self._read[0] <= log_number_from else (0, 0)
        with self._alone() as file:
            file.seek(place)
            content = file.read()
        lines = content.splitlines()
        self._read = (number + len(lines), place + len(content))
        return [json.loads(line) for line in lines[log_number_from - number :]]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add entries; raises OutputError, and leaves the file as it was, if they do not fit."""
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        try:
            with self._alone() as file:
                end = file.seek(0, os.SEEK_END)
                try:
                    while text:
                        text = text[file.write(text) :]
                    os.fsync(file)
                except BaseException as error:
                    # entries that are there stay, if it is interrupted while it waits for the disk
                    if text or isinstance(error, OSError):
                        file.truncate(end)
                    raise
        except OSError as error:
            self.error = OutputError(
                f"A study must be writable while trials run. {self.path} was not "
                f"({error.strerror}). Make room for it; the same call goes on where it stopped."
            )
            raise self.error from error

    @contextmanager
    def _alone(self) -> Iterator[FileIO]:
        """The file, which is made if it is not there, for nobody else."""
        with FileIO(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+") as file:
            if HAS_LOCKS:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    def _require_entries(self, file: FileIO) -> None:
        """Raise DataFileError unless all are entries; one that a killed process left half goes."""
        place = 0
        for number, line in enumerate(file.read().splitlines(keepends=True), start=1):
            if place > 0 and not line.endswith(b"\n"):
                file.truncate(place)
                warnings.warn(
                    CheckpointWarning(
                        f"The last line of {self.path} was cut off when a search was ended. It "
                        "was dropped; the search goes on from the line before."
                    ),
                    stacklevel=5,
                )
                return
            if not (line.endswith(b"\n") and _is_entry(line)):
                raise no_study(self.path, f"line {number} is no entry of a journal")
            place += len(line)


def _is_entry(line: bytes) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and "op_code" in entry


def no_study(file: str | Path, reason: str) -> DataFileError:
    """That a file cannot be gone on with."""
    return DataFileError(
        f"A study must be a file that an earlier search wrote, or a new one. {file} is neither "
        f"({reason}). Name another file, or delete this one."
    )
