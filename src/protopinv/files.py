"""Files: written whole or not at all, and looked for without an exception."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from protopinv.errors import OutputError, ProtoPINVError

LONGEST_NAME = 255


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``; on a clean exit it is synced to disk and renamed over it.

    After an error the temporary file is removed and whatever stood at ``path`` is untouched. What
    the system refuses in between is an OutputError about ``path``.
    """
    require_file(path)
    try:
        target = path.resolve()  # through a link to the file it names
        temporary = _temporary_beside(target)
        try:
            yield temporary
            temporary.chmod(0o666 & ~_umask())  # mkstemp makes private files; ours are ordinary
            _sync(temporary)
            temporary.replace(target)
            _sync(target.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except ProtoPINVError:
        raise
    except OSError as error:
        raise OutputError(
            f"An output must be written whole. {path} was not ({_reason(error)}). Free some space, "
            "or choose another place."
        ) from error


def require_file(path: Path) -> None:
    """Raise OutputError unless a file can be put at ``path``; worth asking before long work.

    A temporary file is made beside it and removed: permissions alone do not tell of a file system
    that is read-only or full, and root has them all.
    """
    try:
        _require_file(path, path.resolve())
    except ProtoPINVError:
        raise
    except (OSError, RuntimeError) as error:  # the latter is what a loop of links gives
        raise OutputError(
            f"An output needs a folder that can be written. {path.parent} cannot "
            f"({_reason(error)}). Choose another."
        ) from error


def _require_file(path: Path, target: Path) -> None:
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise OutputError(
            f"The name of an output must have at most {LONGEST_NAME} bytes. "
            f"{path.name[:20]}... has more. Shorten it."
        )
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "a device or a pipe"
        raise OutputError(f"An output must be a file. {path} is {kind}. Name an ordinary file.")
    if not target.parent.is_dir():
        missing = path.parent if not path.is_symlink() else target.parent
        raise OutputError(
            f"An output needs an existing folder. There is no {missing}. Create it first."
        )
    if target.exists() and not _may_be_written(target):
        raise OutputError(
            f"An output that exists must be writable. {path} is read-only. Choose another name, "
            "or change its permissions."
        )
    _temporary_beside(target).unlink()


def _may_be_written(path: Path) -> bool:
    """Whether we may, and anybody may: root is always let."""
    return os.access(path, os.W_OK) and bool(path.stat().st_mode & 0o222)


def _temporary_beside(path: Path) -> Path:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".protopinv-")
    os.close(handle)
    return Path(name)


def _reason(error: Exception) -> str:
    """Why, without the name of a file that the user never gave."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "its links go in circles"


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


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder for syncing
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
