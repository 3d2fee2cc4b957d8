"""Files of one kind each: columns, where blocks begin, and record batches of a block."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from protopinv.errors import DataError
from protopinv.shards.arrays import digest
from protopinv.shards.source import Block

SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
}
# A CSV file has no row groups: it is cut where so many bytes have been read.
CSV_BLOCK_BYTES = 2**24


def opened(path: Path, separator: str | None = None, encoding: str | None = None) -> "FileRows":
    """A file by the kind that its name says; raises DataError for what cannot be read."""
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise DataError(
            f"Rows must be in {', '.join(SUFFIXES)} files. Got {path.name}. Convert or rename it."
        )
    if path.stat().st_size == 0:
        raise DataError(
            f"A file of rows must not be empty. {path} has no bytes. Remove it, or write it again."
        )
    if kind != "csv" and (separator or encoding):
        raise DataError(
            f"A separator and an encoding are of CSV files. {path.name} is {kind}. Leave them out."
        )
    try:
        if kind == "csv":
            return _Csv(path, separator or ",", encoding or "utf-8")
        return (_Parquet if kind == "parquet" else _Arrow)(path)
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise unreadable(str(path), error) from error


def unreadable(file: str, error: Exception) -> DataError:
    """The error for a file that is damaged."""
    reason = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
    return DataError(
        f"Every file of rows must be readable. {file} is not ({reason}). Check that it is whole."
    )


class FileRows(ABC):
    """One file: its columns, where its blocks begin, and record batches of a block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_bytes = path.stat().st_size
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

    def blocks(self) -> list[tuple[int, int]]:
        """First row and length of each."""
        starts = accumulate(self._lengths, initial=0)
        return list(zip(starts, self._lengths, strict=False))

    @abstractmethod
    def read(self, block: Block, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Record batches of a block."""

    def digest(self) -> str:
        """What the file says of itself: its end, where formats keep their table of contents."""
        with self.path.open("rb") as file:
            file.seek(max(0, self.n_bytes - 2**16))
            return digest(file.read())


class _Parquet(FileRows):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            self._schema = file.schema_arrow
            groups = file.metadata
            numbers = range(groups.num_row_groups)
            self._lengths = [groups.row_group(number).num_rows for number in numbers]

    def read(self, block: Block, columns: Sequence[str], rows: int) -> Iterator[Any]:
        import pyarrow.parquet as pq

        # opened anew for every block: a thread of its own reads it, and many files stay closed
        with pq.ParquetFile(self.path, pre_buffer=False) as file:
            yield from file.iter_batches(
                batch_size=rows, row_groups=[block.number], columns=list(columns), use_threads=False
            )


class _Arrow(FileRows):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        import pyarrow as pa

        with pa.memory_map(str(path)) as mapped, pa.ipc.open_file(mapped) as file:
            self._schema = file.schema
            numbers = range(file.num_record_batches)
            self._lengths = [file.get_batch(number).num_rows for number in numbers]

    def read(self, block: Block, columns: Sequence[str], rows: int) -> Iterator[Any]:
        import pyarrow as pa

        with pa.memory_map(str(self.path)) as mapped, pa.ipc.open_file(mapped) as file:
            batch = file.get_batch(block.number).select(list(columns))
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)


class _Csv(FileRows):
    """Cut into stretches of bytes that begin and end between lines; types are those of all rows.

    One pass finds the lines and the types. A line break inside quotes must not lie on a cut.
    """

    def __init__(self, path: Path, separator: str, encoding: str) -> None:
        super().__init__(path)
        import pyarrow as pa

        self._separator, self._encoding = separator, encoding
        _require_lines(encoding)
        self._cuts = _stretches(path)
        with path.open("rb") as file:
            self._header = file.readline()
        kinds: dict[str, Any] = {}
        for start, end in self._cuts or [(0, 0)]:  # the header alone has names
            table = self._table(start, end)
            self._lengths.append(table.num_rows)
            for field in table.schema:
                before = kinds.get(field.name, field.type)
                kinds[field.name] = _common(before, field.type)
        self._schema = pa.schema(list(kinds.items()))

    def read(self, block: Block, columns: Sequence[str], rows: int) -> Iterator[Any]:
        from pyarrow import csv

        table = self._table(
            *self._cuts[block.number],
            read_options=csv.ReadOptions(use_threads=False),
            convert_options=csv.ConvertOptions(
                include_columns=list(columns), column_types=self._schema
            ),
        )
        yield from table.combine_chunks().to_batches(max_chunksize=rows)

    def _table(self, start: int, end: int, **options: Any) -> Any:
        """A stretch of lines below the header."""
        import pyarrow as pa
        from pyarrow import csv

        raw = self._header + _bytes(self.path, start, end)
        if self._encoding != "utf-8":
            raw = raw.decode(self._encoding).encode()
        parse = csv.ParseOptions(delimiter=self._separator)
        return csv.read_csv(pa.py_buffer(raw), parse_options=parse, **options)

    def digest(self) -> str:
        return digest(
            *(_bytes(self.path, start, min(end, start + 4096)) for start, end in self._cuts),
            f"{self._separator} {self._encoding}".encode(),
        )


def _require_lines(encoding: str) -> None:
    """Raise DataError unless lines end in it as they do in ASCII, so that a file can be cut."""
    try:
        ends_alike = "\n\n".encode(encoding).endswith(b"\n\n")
    except LookupError:
        raise DataError(
            f"An encoding must be known to Python. Got {encoding!r}. Use for example utf-8 or "
            "cp1252."
        ) from None
    if not ends_alike:
        raise DataError(
            f"A CSV file that is read a piece at a time must end its lines as ASCII does. "
            f"{encoding} does not. Convert it to utf-8."
        )


def _common(one: Any, other: Any) -> Any:
    """The type that holds both: numbers in one stretch and gaps or fractions in another."""
    import pyarrow as pa

    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    numbers = (pa.types.is_integer, pa.types.is_floating)
    if any(is_(one) for is_ in numbers) and any(is_(other) for is_ in numbers):
        return pa.float64()
    return pa.string()


def _stretches(path: Path) -> list[tuple[int, int]]:
    """Of whole lines behind the header."""
    cuts: list[tuple[int, int]] = []
    size = path.stat().st_size
    with path.open("rb") as file:
        file.readline()
        start = file.tell()
        while start < size:
            file.seek(min(size, start + CSV_BLOCK_BYTES))
            file.readline()
            cuts.append((start, file.tell()))
            start = file.tell()
    return cuts


def _bytes(path: Path, start: int, end: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(end - start)
