"""What every file of rows says of itself, whatever its format."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

from protopinv.errors import DataError, ProtoPINVError
from protopinv.rows.arrays import digest
from protopinv.rows.source import Block
from protopinv.rows.targets import Targets, targets_of, without_blanks

# Rows of a target that are looked at together.
LOOKED_AT = 2**17


class FileRows(ABC):
    """One file: its columns, where its blocks begin, and record batches of a block.

    ``said`` is what a user should hear of how it is read, ``labels`` what targets of text hold.
    """

    said: tuple[str, ...] = ()

    def __init__(self, path: Path, name: str, n_bytes: int) -> None:
        self.path, self.name = path, name
        self.n_bytes = n_bytes
        self.labels: dict[str, Targets] = {}
        self._schema: Any = None
        self._lengths: list[int] = []

    @property
    def columns(self) -> list[str]:
        """Their names, in order."""
        names: list[str] = self._schema.names
        return names

    def kind(self, column: str) -> str:
        """The type of a column; text is text, however it is stored."""
        import pyarrow as pa

        kind = self._schema.field(column).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return "string"
        return str(kind)

    @property
    def n_rows(self) -> int:
        """Of all blocks."""
        return sum(self._lengths)

    @abstractmethod
    def has_gaps(self, column: str) -> bool:
        """Whether the column is empty in some rows, as far as that is known."""

    def blocks(self) -> list[tuple[int, int]]:
        """First row and length of each."""
        starts = accumulate(self._lengths, initial=0)
        return list(zip(starts, self._lengths, strict=False))

    def look_at_targets(self, names: Sequence[str]) -> None:
        """Find what columns of text hold, if they are targets."""
        import pyarrow as pa

        for name in names:
            there = name in self.columns and self.kind(name) == "string"
            if not there or pa.types.is_dictionary(self._schema.field(name).type):
                continue  # what is stored as categories are names
            self.labels[name] = Targets()
            for number, (row, n_rows) in enumerate(self.blocks()):
                block = Block(self.name, number, n_rows)
                for place, batch in enumerate(self.read(block, [name], LOOKED_AT)):
                    texts = without_blanks(batch.column(0).cast(pa.string()))
                    first = row + place * LOOKED_AT
                    self.labels[name] += targets_of(texts, self.name, first)

    @abstractmethod
    def read(self, block: Block, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Record batches of a block."""

    def digest(self) -> str:
        """What the file says of itself: its end, where formats keep their table of contents."""
        with self.path.open("rb") as file:
            file.seek(max(0, self.n_bytes - 2**16))
            return digest(file.read())


def unreadable(file: str, error: Exception) -> DataError:
    """The error for a file that is damaged."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return DataError(
        f"Every file of rows must be readable. {file} is not ({reason}). Check that it is whole."
    )


def require_names(names: Sequence[str], file: str, where: str = "") -> None:
    """Raise DataError for a name that two columns have."""
    twice = [column for column, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"Every column needs a name of its own. {file} has {twice[0]!r} twice{where}. Rename "
            "one of them."
        )


@contextmanager
def damage_named(file: str, errors: Any = (OSError, ValueError)) -> Iterator[None]:
    """Say that a file cannot be read, where reading it fails; damage may show as any error."""
    try:
        yield
    except ProtoPINVError:
        raise
    except errors as error:
        raise unreadable(file, error) from error
