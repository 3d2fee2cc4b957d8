"""Files: written completely or not at all, and found without an exception."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from protopinv.errors import OutputError, ProtoPINVError

try:
    import fcntl
except ImportError:  # Windows has no such locks
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

LONGEST_NAME = 255
TEMPORARY = ".protopinv-"
# How names end of the files that are written, by what these are.
_ENDINGS = {
    "a model file": (".safetensors",),
    "an export": (".onnx", ".c", ".mjs", ".js", ".safetensors"),
    "a file of predictions": (".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".pq"),
    "a report": (".html", ".htm"),
}


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``; on a clean exit it is synced to disk and renamed over it.

    After an error the temporary file is removed and whatever stood at ``path`` is untouched. What
    the system refuses in between is an OutputError about ``path``. Permissions of a file that is
    replaced stay. Temporary files that killed processes have left in the folder are removed.
    """
    require_file(path)
    advice = "Free some space, or choose another place."
    with _refused(f"An output must be written whole. {path} was not", advice):
        target = path.resolve()  # through a link to the file it names
        _remove_abandoned(target.parent)
        with _temporary_beside(target) as temporary:
            yield temporary
            _sync(temporary)
            temporary.replace(target)
            _sync(target.parent)


def require_file(path: Path) -> None:
    """Raise OutputError unless a file can be put at ``path``; worth asking before long work.

    A temporary file is made beside it and removed: permissions alone do not tell of a file system
    that is read-only or full, and root has them all.
    """
    rule = f"An output needs a folder that can be written. {path.parent} cannot"
    with _refused(rule, "Choose another."):
        target = _resolved(path)
        if len(os.fsencode(path.name)) > LONGEST_NAME:
            raise OutputError(
                f"The name of an output must have at most {LONGEST_NAME} bytes. "
                f"{path.name[:20]}... has more. Shorten it."
            )
        exists = target.exists()
        if exists and not target.is_file():
            kind = "a folder" if target.is_dir() else "a device or a pipe"
            raise OutputError(f"An output must be a file. {path} is {kind}. Name an ordinary file.")
        if not target.parent.is_dir():
            missing = path.parent if not path.is_symlink() else target.parent
            raise OutputError(
                f"An output needs an existing folder. There is no {missing}. Create it first."
            )
        # anybody must be allowed to write there: root always is
        if exists and not (os.access(target, os.W_OK) and target.stat().st_mode & 0o222):
            raise OutputError(
                f"An output that exists must be writable. {path} is read-only. Choose another "
                "name, or change its permissions."
            )
        with _temporary_beside(target):
            pass


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError as error:
        raise OSError(errno.ELOOP, "its links go in circles") from error


@contextmanager
def _refused(rule: str, advice: str) -> Iterator[None]:
    """What the system refuses in here is an OutputError, without the name of a temporary file."""
    try:
        yield
    except ProtoPINVError:
        raise
    except OSError as error:
        raise OutputError(f"{rule} ({error.strerror or error}). {advice}") from error


@contextmanager
def _temporary_beside(target: Path) -> Iterator[Path]:
    """A new file that may be read by whom the target may, gone at the end unless it was renamed.

    While it is in use it is locked. The system gives the lock back however the process ends, so
    that a file without one is abandoned, whichever host or container its process ran in.
    """
    temporary, descriptor = _created(target)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
        if descriptor is not None:
            os.close(descriptor)


def _created(target: Path) -> tuple[Path, int | None]:
    """A new file, and the descriptor that holds its lock."""
    mode = target.stat().st_mode & 0o777 if target.exists() else None
    while True:
        path = target.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        descriptor = os.open(path, flags, 0o666 if mode is None else mode)
        if mode is not None:
            path.chmod(mode)  # the mask of the process took some of it
        if not HAS_LOCKS:
            os.close(descriptor)  # Windows renames no file that is open
            return path, None
        with suppress(OSError):  # file systems without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:  # otherwise it was seen without its lock, and removed
            return path, descriptor
        os.close(descriptor)


def _remove_abandoned(folder: Path) -> None:
    """Remove temporary files of processes that are gone, as far as the system lets us."""
    if not HAS_LOCKS:
        return
    for path in folder.glob(f"{TEMPORARY}*"):
        with suppress(OSError):  # locked, of somebody else, or gone meanwhile
            if not stat.S_ISREG(path.lstat().st_mode):
                continue
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


def require_ending(path: Path, what: str) -> None:
    """Raise OutputError unless the name of ``path`` ends as those of such files do."""
    if path.suffix not in _ENDINGS[what]:
        *most, last = _ENDINGS[what]
        endings = f"{', '.join(most)} or {last}" if most else last
        raise OutputError(
            f"The name of {what} must end in {endings}. Got {path.name!r}. Rename it."
        )


def is_file(path: Path) -> bool:
    """Whether there is a file, as far as the system lets us look."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Whether there is a folder, as far as the system lets us look."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder for syncing
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
