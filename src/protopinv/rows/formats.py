"""One file of rows, whatever its format, and the formats that pyarrow reads block by block."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from protopinv.errors import DataError, ProtoPINVError
from protopinv.optional import Later
from protopinv.rows.columns import NOTHING, TEXT, TargetText, plain_type
from protopinv.rows.source import Block, digest, require_names

pa, pq = Later("pyarrow"), Later("pyarrow.parquet")
# How names of files end, by their formats.
ENDINGS = {
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather"),
    "csv": (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz"),
}
# A table that comes from another program.
STDIN = Path("-")
# Rows of a target that are looked at together.
LOOKED_AT = 2**17


class FileRows(ABC):
    """One file: its columns and their types, where its blocks begin, and their record batches.

    ``lengths`` are the rows of each block, ``gaps`` the columns that are known to be empty in some
    rows, ``labels`` what targets of text hold, and ``said`` is what a user should hear of how the
    file is read.
    """

    def __init__(self, name: str, n_bytes: int = 0) -> None:
        self.name, self.n_bytes = name, n_bytes
        self.types: dict[str, str] = {}
        self.lengths: list[int] = []
        self.gaps: set[str] = set()
        self.labels: dict[str, TargetText] = {}
        self.said: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        """Rows of all blocks."""
        return sum(self.lengths)

    @property
    def has_decimal_commas(self) -> bool:
        """Whether a comma in a number of text begins its decimals."""
        return False

    def blocks(self) -> list[Block]:
        """Return the blocks of the file, in order."""
        starts = enumerate(zip(self.lengths, accumulate(self.lengths, initial=0), strict=False))
        return [Block(self.name, number, n_rows, first) for number, (n_rows, first) in starts]

    @abstractmethod
    def read(self, block: Block, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield record batches of a block, each of at most so many rows."""

    @abstractmethod
    def digest(self) -> str:
        """Return a hash of some bytes of the file."""


class TypedFile(FileRows):
    """A file that knows the types of its columns."""

    def __init__(self, path: Path, name: str, targets: Sequence[str]) -> None:
        super().__init__(name, path.stat().st_size)
        self.path = path
        with damage_named(name, Exception):
            schema = self._opened()
        require_names(schema.names, name)
        types = {each.name: str(plain_type(each.type)) for each in schema}
        self.types = {column: TEXT if kind == NOTHING else kind for column, kind in types.items()}
        for target in split_names(targets, schema.names):
            # what is stored as categories are names
            if types.get(target) != TEXT or pa.types.is_dictionary(schema.field(target).type):
                continue
            self.labels[target] = TargetText.total(
                TargetText.of(batch.column(0), name, block.first + place * LOOKED_AT)
                for block in self.blocks()
                for place, batch in enumerate(self.read(block, [target], LOOKED_AT))
            )

    @abstractmethod
    def _opened(self) -> Any:
        """Learn the lengths of all blocks and what has gaps, and return the schema."""

    def digest(self) -> str:
        """Return a hash of the end of the file, where formats keep their table of contents."""
        with self.path.open("rb") as file:
            file.seek(max(0, self.n_bytes - 2**16))
            return digest(file.read())


class ParquetRows(TypedFile):
    """A Parquet file, a row group at a time."""

    def _opened(self) -> Any:
        with pq.ParquetFile(self.path) as file:
            schema, metadata = file.schema_arrow, file.metadata
        is_flat = metadata.num_columns == len(schema)  # no columns within columns
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            self.lengths.append(group.num_rows)
            for place, name in enumerate(schema.names if is_flat else ()):
                # without statistics a gap is found when it is read
                statistics = group.column(place).statistics
                if statistics is not None and statistics.has_null_count and statistics.null_count:
                    self.gaps.add(name)
        return schema

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
        with pa.memory_map(str(self.path)) as mapped, pa.ipc.open_file(mapped) as file:
            for batch in map(file.get_batch, range(file.num_record_batches)):
                self.lengths.append(batch.num_rows)
                columns = zip(batch.schema.names, batch.columns, strict=True)
                self.gaps |= {name for name, values in columns if values.null_count}
            return file.schema

    def read(self, block: Block, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield slices of a record batch."""
        with (
            damage_named(self.name, Exception),
            pa.memory_map(str(self.path)) as mapped,
            pa.ipc.open_file(mapped) as file,
        ):
            batch = file.get_batch(block.number).select(list(columns))
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)


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


def format_of(path: Path) -> str | None:
    """Return the format of a file by the ending of its name: parquet, arrow or csv."""
    name = path.name.lower()
    return next((kind for kind, endings in ENDINGS.items() if name.endswith(endings)), None)


def files_of(path: Path) -> list[Path]:
    """Return the file at a path, or the files of the folder there."""
    if path == STDIN or path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(
            f"Rows must be in a file or a folder of files. There is no {path}. Check the path."
        )
    files = sorted(file for file in path.rglob("*") if format_of(file) and file.is_file())
    # names that begin with a dot or an underscore are what tools leave in folders of data
    parts = {file: file.relative_to(path).parts for file in files}
    files = [file for file in files if not any(part[0] in "._" for part in parts[file])]
    # beside other files of data a .txt file says what they are
    files = [file for file in files if not file.name.lower().endswith((".txt", ".txt.gz"))] or files
    if not files:
        raise DataError(
            f"A folder of rows must hold {', '.join(chain(*ENDINGS.values()))} files. {path} holds "
            "none. Check the path."
        )
    kinds = {str(format_of(file)) for file in files}
    if len(kinds) > 1:
        raise DataError(
            f"A folder of rows must hold files of one kind. {path} holds "
            f"{' and '.join(sorted(kinds))} files. Name one of them, or move the others."
        )
    return files
