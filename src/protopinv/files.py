"""Write a file whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from protopinv.errors import OutputError

LONGEST_NAME = 255


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``; on a clean exit it is synced to disk and renamed over it.

    After an error the temporary file is removed and whatever stood at ``path`` is untouched.
    """
    require_file(path)
    path = path.resolve()  # through a link to the file it names
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".protopinv-")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes private files; ours are ordinary ones
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def require_file(path: Path) -> None:
    """Raise OutputError unless a file can be put at ``path``; worth asking before long work."""
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise OutputError(
            f"The name of an output must have at most {LONGEST_NAME} bytes. "
            f"{path.name[:20]}... has more. Shorten it."
        )
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a device or a pipe"
        raise OutputError(f"An output must be a file. {path} is {kind}. Name an ordinary file.")
    if not path.parent.is_dir():
        raise OutputError(
            f"An output needs an existing folder. There is no {path.parent}. Create it first."
        )
    if not os.access(path.parent, os.W_OK):
        raise OutputError(
            f"An output needs a folder that can be written. {path.parent} cannot. Choose another."
        )


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
