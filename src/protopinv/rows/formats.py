"""One file of rows, whatever its format, and the formats that pyarrow reads block by block."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

from protopinv.errors import DataError, ProtoPINVError
from protopinv.optional import Later
from protopinv.rows.columns import NOTHING, TEXT, TargetText, plain_type
from protopinv.rows.source import Block, digest

pa, pq = Later("pyarrow"), Later("pyarrow.parquet")
# Rows of a target that are looked at together.
LOOKED_AT = 2**17


class FileRows(ABC):
    """One file: its columns and their types, where its blocks begin, and their record batches.

    ``lengths`` are the rows of each block, ``labels`` what targets of text hold, and ``said`` is
    what a user should hear of how the file is read.
    """

    name: str
    n_bytes: int
    types: dict[str, str]
    lengths: list[int]
    labels: dict[str, TargetText]
    said: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self.types)

    @property
    def n_rows(self) -> int:
        """Rows of all blocks."""
        return sum(self.lengths)

    def blocks(self) -> list[Block]:
        """Return the blocks of the file, in order."""
        starts = enumerate(zip(self.lengths, accumulate(self.lengths, initial=0), strict=False))
        return [Block(self.name, number, n_rows, first) for number, (n_rows, first) in starts]

    @abstractmethod
    def has_gaps(self, column: str) -> bool:
        """Whether the column is empty in some rows, as far as that is known."""

    @abstractmethod
    def read(self, block: Block, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield record batches of a block, each of at most so many rows."""

    @abstractmethod
    def digest(self) -> str:
        """Return a hash of some bytes of the file."""


class TypedFile(FileRows):
    """A file that knows the types of its columns."""

    def __init__(self, path: Path, name: str, targets: Sequence[str]) -> None:
        self.path, self.name, self.n_bytes = path, name, path.stat().st_size
        self.lengths, self.labels = [], {}
        with damage_named(name, Exception):
            schema = self._opened()
        require_names(schema.names, name)
        types = {each.name: str(plain_type(each.type)) for each in schema}
        self.types = {name: TEXT if kind == NOTHING else kind for name, kind in types.items()}
        for target in split_names(targets, self.columns):
            # what is stored as categories are names
            if self.types.get(target) == TEXT and not pa.types.is_dictionary(
                schema.field(target).type
            ):
                self.labels[target] = TargetText.total(self._texts(target))

    def _texts(self, target: str) -> Iterator[TargetText]:
        """Summaries of a target of text."""
        for block in self.blocks():
            for place, batch in enumerate(self.read(block, [target], LOOKED_AT)):
                first = block.first + place * LOOKED_AT
                yield TargetText.of(batch.column(0), self.name, first)

    @abstractmethod
    def _opened(self) -> Any:
        """Learn the lengths of all blocks, and return the schema."""

    def digest(self) -> str:
        """Return a hash of the end of the file, where formats keep their table of contents."""
        with self.path.open("rb") as file:
            file.seek(max(0, self.n_bytes - 2**16))
            return digest(file.read())


class ParquetRows(TypedFile):
    """A Parquet file, a row group at a time."""

    def _opened(self) -> Any:
        with pq.ParquetFile(self.path) as file:
            self._metadata = file.metadata
            numbers = range(self._metadata.num_row_groups)
            self.lengths = [self._metadata.row_group(number).num_rows for number in numbers]
            return file.schema_arrow

    def has_gaps(self, column: str) -> bool:
        """By the statistics of its row groups; without these a gap is found when it is read."""
        place = self.columns.index(column)
        if self._metadata.num_columns != len(self.columns):
            return False  # columns within columns
        with damage_named(self.name, Exception):
            groups = (self._metadata.row_group(n) for n in range(len(self.lengths)))
            each = (group.column(place).statistics for group in groups)
            return any(s is not None and s.has_null_count and s.null_count for s in each)

    def read(self, block: Block, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield record batches of a row group."""
        # opened anew for every block: a thread of its own reads it, and many files stay closed
        with (
            damage_named(self.name, Exception),
            pq.ParquetFile(self.path, pre_buffer=False) as file,
        ):
            yield from file.iter_batches(
                batch_size=rows, row_groups=[block.number], columns=list(columns), use_threads=False
            )


class IpcRows(TypedFile):
    """An Arrow file, a record batch at a time."""

    def _opened(self) -> Any:
        self._gaps = set[str]()
        with self._file() as file:
            for number in range(file.num_record_batches):
                batch = file.get_batch(number)
                self.lengths.append(batch.num_rows)
                columns = zip(batch.schema.names, batch.columns, strict=True)
                self._gaps |= {column for column, values in columns if values.null_count}
            return file.schema

    def has_gaps(self, column: str) -> bool:
        """Whether it is empty in a row of any batch."""
        return column in self._gaps

    def read(self, block: Block, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield slices of a record batch."""
        with damage_named(self.name, Exception), self._file() as file:
            batch = file.get_batch(block.number).select(list(columns))
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)

    @contextmanager
    def _file(self) -> Iterator[Any]:
        with pa.memory_map(str(self.path)) as mapped, pa.ipc.open_file(mapped) as file:
            yield file


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


def unreadable(file: str, error: Exception) -> DataError:
    """Return the error for a file that is damaged."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return DataError(
        f"Every file of rows must be readable. {file} is not ({reason}). Check that it is whole."
    )


def split_names(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return names as they are where a column is called so, and else what lies between commas."""
    each: list[str] = []
    for name in names:
        parts = [part.strip() for part in name.split(",")]
        each += [name] if name in columns else [part for part in parts if part] or [name]
    return each
