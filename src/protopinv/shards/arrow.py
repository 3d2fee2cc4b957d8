"""Parquet, Arrow and CSV files, read by pyarrow a row group or a stretch of rows at a time."""

import copy
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.optional import require
from protopinv.shards.formats import FileRows, opened, unreadable
from protopinv.shards.source import IN_MEMORY_BYTES, Block, Piece, RowSource, Wanted, placed

# Rows are taken from a file about so many at a time, whatever is asked for.
LEAST_ROWS = 1_024


class ArrowRows(RowSource):
    """The rows of some files, all with the same columns.

    ``targets`` and ``weight`` name columns; ``features`` are all others, unless they are named.
    """

    def __init__(
        self,
        files: Sequence[Path],
        targets: Sequence[str],
        *,
        features: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        weight: str | None = None,
        separator: str | None = None,
        encoding: str | None = None,
        root: Path | None = None,
        memory: int = IN_MEMORY_BYTES,
        cache: str | Path | None = "auto",
    ) -> None:
        require("pyarrow", extra="stream", why="Reading rows that need not fit in memory")
        self._files = {_name(path, root): opened(path, separator, encoding) for path in files}
        # a file without rows may not know its types
        full = [item for item in self._files.items() if any(n for _, n in item[1].blocks())]
        first_name, first = next(iter(full or self._files.items()))
        self._check_columns(first.columns, targets, "The target must be a column", first_name)
        named = [] if weight is None else [weight]
        self._check_columns(first.columns, named, "The weight must be a column", first_name)
        self._check_columns(first.columns, drop, "A column to drop must be there", first_name)
        taken = {*targets, *named, *drop}
        self._features = [name for name in first.columns if name not in taken]
        if features is not None:
            self._features = list(features)
            twice = [name for name in self._features if name in taken]
            if twice:
                raise DataError(
                    f"A feature must be no target, no weight and not dropped. {twice[0]!r} is. "
                    "Leave it out of the features."
                )
            rule = "Every feature must be a column"
            self._check_columns(first.columns, self._features, rule, first_name)
        if not self._features:
            raise DataError(
                f"Rows must have at least one feature. {first_name} has none beside the target. "
                "Check its columns."
            )
        self._targets, self._weight = list(targets), weight
        self.names = tuple(self._features)
        self.n_features = len(self._features)
        self.target_names, self.is_column = tuple(targets), len(targets) == 1
        self.memory, self.cache = memory, cache
        kinds = self._check_types(first_name, first)
        self.blocks = placed(
            [
                Block(name, number, n_rows, start)
                for name, file in self._files.items()
                for number, (start, n_rows) in enumerate(file.blocks())
            ]
        )
        self.n_bytes = sum(file.n_bytes for file in self._files.values())
        self.is_framed = not all(_is_number(kinds[name]) for name in self._features)

    def with_columns(self, names: Sequence[str], *, framed: bool) -> "ArrowRows":
        """These columns alone, in this order, as frames or as numbers."""
        narrowed = copy.copy(self)
        narrowed._features, narrowed.is_framed = list(names), framed
        narrowed.names, narrowed.n_features = tuple(names), len(names)
        return narrowed

    def read(self, block: Block, wanted: Wanted) -> Iterator[Piece]:
        """Some rows of a block at a time, as numbers."""
        for batch, done in self._batches(block, wanted):
            yield self._piece(block, batch, done, wanted)

    def frames(self, block: Block, wanted: Wanted) -> Iterator[Piece]:
        """The same with features as they are: a table of Arrow."""
        import pyarrow as pa

        for batch, done in self._batches(block, wanted):
            piece = self._piece(block, batch, done, replace(wanted, features=False))
            names = self._features if wanted.features else []
            table = pa.Table.from_batches([batch]).select(names)
            yield piece._replace(X=table.cast(pa.schema(map(_of_text, table.schema))))

    def load(self) -> tuple[Any, NDArray[Any], NDArray[np.float64] | None]:
        """All rows at once; those that are not all numbers as a table of Arrow."""
        import pyarrow as pa

        if not self.is_framed:
            return super().load()
        wanted = Wanted(max(block.n_rows for block in self.blocks))
        pieces = [piece for block in self.blocks for piece in self.frames(block, wanted)]
        X, y, weights, _ = zip(*pieces, strict=True)
        weight = None if weights[0] is None else np.concatenate(weights)
        return pa.concat_tables(X), np.concatenate(y), weight

    def _batches(self, block: Block, wanted: Wanted) -> Iterator[tuple[Any, int]]:
        """Record batches of a block, each with the number of rows before it."""
        columns = [*self._targets, *([] if self._weight is None else [self._weight])]
        if wanted.features:
            columns = [*self._features, *columns]
        rows, done = max(LEAST_ROWS, wanted.rows), 0
        try:
            for batch in self._files[block.file].read(block, columns, rows):
                yield batch, done
                done += batch.num_rows
        except (OSError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise unreadable(block.file, error) from error
        if done != block.n_rows:
            raise DataError(
                f"A file must stay as it is while it is read. {block.file} had {block.n_rows} rows "
                f"in part {block.number} and now has {done}. Start again when it is written whole."
            )

    def fingerprint(self) -> dict[str, Any]:
        """Names, lengths and sizes of all files, and what each says of itself."""
        files = {
            name: [sum(n for _, n in file.blocks()), file.n_bytes, file.digest()]
            for name, file in self._files.items()
        }
        return {
            "rows": self.n_rows,
            "features": list(self._features),
            "targets": list(self._targets),
            "weight": self._weight,
            "files": files,
        }

    def _piece(self, block: Block, batch: Any, done: int, wanted: Wanted) -> Piece:
        place = _Place(block, done)
        columns = [self._targets[0]] if self.is_column else self._targets
        parts = [
            _labels(batch.column(name), name, place)
            if self.is_column
            else _numbers(batch.column(name), name, place, "Several targets must be numbers")
            for name in columns
        ]
        y = parts[0] if self.is_column else np.column_stack(parts)
        weight = None
        if self._weight is not None:
            rule = "Weights must be numbers"
            weight = _numbers(batch.column(self._weight), self._weight, place, rule)
            weight = weight.astype(np.float64)
        X = np.empty((batch.num_rows, 0))
        if wanted.features:
            X = self._matrix(batch, place)
        return Piece(X, y, weight, done)

    def _matrix(self, batch: Any, place: "_Place") -> NDArray[Any]:
        columns = [
            _numbers(batch.column(name), name, place, "Features must be numbers")
            for name in self._features
        ]
        dtype = np.result_type(*{column.dtype for column in columns})
        X = np.empty((batch.num_rows, len(columns)), dtype)
        for number, column in enumerate(columns):
            X[:, number] = column
        return X

    def _check_columns(
        self, there: Sequence[str], names: Sequence[str], rule: str, file: str
    ) -> None:
        missing = [name for name in names if name not in there]
        if not missing:
            return
        close = difflib.get_close_matches(missing[0], there, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else "Check the spelling."
        few = ", ".join(map(repr, there[:8])) + (", ..." if len(there) > 8 else "")
        raise DataError(f"{rule}. {file} has no {missing[0]!r}; it has {few}. {hint}")

    def _check_types(self, first_name: str, first: FileRows) -> dict[str, str]:
        """The kinds of all columns; every file must have those of the first, of the same kinds."""
        names = [*self._features, *self._targets, *([self._weight] if self._weight else [])]
        kinds = {name: first.kind(name) for name in names}
        for name, file in self._files.items():
            self._check_columns(file.columns, names, "All files must have the same columns", name)
            has_rows = any(n for _, n in file.blocks())
            for column, kind in kinds.items():
                if has_rows and file.kind(column) != kind:
                    raise DataError(
                        f"All files must have the same columns. {column!r} is {kind} in "
                        f"{first_name} and {file.kind(column)} in {name}. Convert one of them."
                    )
        return kinds


class _Place:
    """Where rows are, for messages; rows are counted from 1, as people count."""

    def __init__(self, block: Block, done: int) -> None:
        self.file = block.file
        self._first = block.first + done

    def row(self, number: int) -> str:
        return f"{self._first + number + 1:,}"


def _of_text(field: Any) -> Any:
    """Text as text, however it is stored."""
    import pyarrow as pa

    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        kind = pa.string()
    return pa.field(field.name, kind)


def _is_number(kind: str) -> bool:
    """Whether a column is one to Arrow; Booleans are."""
    return kind == "bool" or kind.startswith(("int", "uint", "float", "double", "half", "decimal"))


def _labels(column: Any, name: str, place: _Place) -> NDArray[Any]:
    """Targets as numpy has them; text is kept as text."""
    import pyarrow as pa

    if column.null_count:
        row = place.row(column.is_null().to_numpy(zero_copy_only=False).argmax())
        raise DataError(
            f"Every row needs a target. Column {name!r} of {place.file} is empty in row {row}. "
            "Fill it or drop the row."
        )
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    labels: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return labels


def _numbers(column: Any, name: str, place: _Place, rule: str) -> NDArray[Any]:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise DataError(
            f"{rule}. Column {name!r} of {place.file} holds {kind} values such as "
            f"{column[0].as_py()!r}. Encode it as numbers, or leave it out (--drop)."
        )
    if column.null_count:
        row = place.row(column.is_null().to_numpy(zero_copy_only=False).argmax())
        raise DataError(
            f"{rule.removesuffix('numbers')}finite numbers. Column {name!r} of {place.file} is "
            f"empty in row {row}. Fill the gap or drop the row."
        )
    numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers.astype(np.float32) if numbers.dtype == np.float16 else numbers


def _name(path: Path, root: Path | None) -> str:
    return str(path if root is None else path.relative_to(root))
