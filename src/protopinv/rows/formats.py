"""Files of one kind each: by the ending of its name, the reader of a file."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from protopinv.errors import DataError
from protopinv.rows.delimited import DelimitedRows
from protopinv.rows.file_rows import FileRows, damage_named, require_names
from protopinv.rows.source import Block
from protopinv.rows.text import Written

SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".csv.gz": "csv",
    ".tsv.gz": "csv",
    ".txt.gz": "csv",
}
# A CSV file has no row groups: it is cut where so many bytes have been read.
CSV_BLOCK_BYTES = 2**24
# A table that comes from another program.
STDIN = Path("-")


def format_of(path: Path) -> str | None:
    """The kind of a file by the ending of its name: parquet, arrow or csv."""
    name = path.name.lower()
    return next((kind for ending, kind in SUFFIXES.items() if name.endswith(ending)), None)


def opened(
    path: Path,
    name: str,
    written: Written,
    *,
    targets: Callable[[Sequence[str]], Sequence[str]],
    as_text: Sequence[str] = (),
) -> FileRows:
    """A file by the kind that its name says; raises DataError for what cannot be read.

    Of text, ``targets`` says which columns are targets, and ``as_text`` stay what is written.
    """
    kind = "csv" if path == STDIN else format_of(path)
    if kind is None:
        raise DataError(
            "A table must be a .csv or .parquet file, or one of "
            f"{', '.join(name for name in SUFFIXES if name not in ('.csv', '.parquet'))}. Got "
            f"{path.name}. Convert or rename it."
        )
    if path != STDIN and path.stat().st_size == 0:
        raise DataError(
            f"A file of rows must not be empty. {name} has no bytes. Remove it, or write it again."
        )
    if kind == "csv":
        place = sys.stdin.buffer.read() if path == STDIN else path
        with damage_named(name):
            return DelimitedRows(
                "stdin" if path == STDIN else name,
                place,
                written,
                targets=targets,
                as_text=as_text,
                block_bytes=CSV_BLOCK_BYTES,
            )
    if written.separator or written.encoding:
        raise DataError(
            f"A separator and an encoding are of CSV files. {path.name} is {kind}. Leave them out."
        )
    rows = (_Parquet if kind == "parquet" else _Arrow)(path, name)
    rows.look_at_targets(targets(rows.columns))
    return rows


class _Parquet(FileRows):
    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name, path.stat().st_size)
        import pyarrow.parquet as pq

        with damage_named(name, Exception), pq.ParquetFile(path) as file:
            self._schema = file.schema_arrow
            require_names(self._schema.names, name)
            self._metadata = file.metadata
            numbers = range(self._metadata.num_row_groups)
            self._lengths = [self._metadata.row_group(number).num_rows for number in numbers]

    def has_gaps(self, column: str) -> bool:
        """By the statistics of its row groups; without these a gap is found when it is read."""
        place = self.columns.index(column)
        if self._metadata.num_columns != len(self.columns):
            return False  # columns within columns
        with damage_named(self.name, Exception):
            groups = (self._metadata.row_group(n) for n in range(len(self._lengths)))
            each = (group.column(place).statistics for group in groups)
            return any(s is not None and s.has_null_count and s.null_count for s in each)

    def read(self, block: Block, columns: Sequence[str], rows: int) -> Iterator[Any]:
        import pyarrow.parquet as pq

        # opened anew for every block: a thread of its own reads it, and many files stay closed
        with (
            damage_named(self.name, Exception),
            pq.ParquetFile(self.path, pre_buffer=False) as file,
        ):
            yield from file.iter_batches(
                batch_size=rows, row_groups=[block.number], columns=list(columns), use_threads=False
            )


class _Arrow(FileRows):
    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name, path.stat().st_size)
        import pyarrow as pa

        gaps = set[str]()
        with (
            damage_named(name, Exception),
            pa.memory_map(str(path)) as mapped,
            pa.ipc.open_file(mapped) as file,
        ):
            self._schema = file.schema
            require_names(self._schema.names, name)
            for number in range(file.num_record_batches):
                batch = file.get_batch(number)
                self._lengths.append(batch.num_rows)
                columns = zip(batch.schema.names, batch.columns, strict=True)
                gaps |= {column for column, values in columns if values.null_count}
        self._gaps = gaps

    def has_gaps(self, column: str) -> bool:
        """By all of its batches."""
        return column in self._gaps

    def read(self, block: Block, columns: Sequence[str], rows: int) -> Iterator[Any]:
        import pyarrow as pa

        with (
            damage_named(self.name, Exception),
            pa.memory_map(str(self.path)) as mapped,
            pa.ipc.open_file(mapped) as file,
        ):
            batch = file.get_batch(block.number).select(list(columns))
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)
