"""Parquet, Arrow and CSV files, read by pyarrow a row group or a stretch of rows at a time."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.optional import require
from protopinv.rows.columns import Place, is_number, labels_of, listed, numbers_of, of_text
from protopinv.rows.delimited import share_kinds
from protopinv.rows.file_rows import FileRows
from protopinv.rows.formats import opened
from protopinv.rows.source import IN_MEMORY_BYTES, Block, Piece, RowSource, Wanted, placed
from protopinv.rows.targets import Targets, cast_targets, together, without_blanks
from protopinv.rows.text import Written
from protopinv.words import hint

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
        left_out: Sequence[str] = (),
        drop: Sequence[str] = (),
        weight: str | None = None,
        as_text: Sequence[str] = (),
        written: Written | None = None,
        root: Path | None = None,
        memory: int = IN_MEMORY_BYTES,
        cache: str | Path | None = "auto",
    ) -> None:
        require("pyarrow", extra="table", why="Reading a table")
        self._as_text = frozenset(as_text)
        self._files = {
            _name(path, root): opened(
                path,
                _name(path, root),
                written or Written(),
                targets=lambda columns: listed(targets, columns),
                as_text=as_text,
            )
            for path in files
        }
        share_kinds(list(self._files.values()))
        # a file without rows may not know its types
        full = [item for item in self._files.items() if item[1].n_rows]
        first_name, first = next(iter(full or self._files.items()))
        self._targets, self._weight = listed(targets, first.columns), weight
        drop = listed(drop, first.columns)
        self._check_named(first.columns, drop, first_name)
        self._absent = [name for name in left_out if name not in first.columns]
        self._features = self._chosen(first.columns, features, drop, first_name)
        self.names, self.n_features = tuple(self._features), len(self._features)
        self.target_names, self.is_column = tuple(self._targets), len(self._targets) == 1
        self.memory, self.cache = memory, cache
        kinds = self._check_types(first_name, first)
        plain = not self._absent and all(is_number(kinds[name]) for name in self._features)
        # numbers with gaps are no numbers yet
        self.is_framed = not plain or self._has_gaps()
        self._join_files()

    def _join_files(self) -> None:
        """Take together what all files hold: rows, targets, and what should be said of them."""
        blocks = [
            Block(name, number, n_rows, start)
            for name, file in self._files.items()
            for number, (start, n_rows) in enumerate(file.blocks())
        ]
        self.blocks, files = placed(blocks), self._files.values()
        self.n_bytes = sum(file.n_bytes for file in files)
        self.said = tuple(dict.fromkeys(line for file in files for line in file.said))
        labels = {
            name: together(file.labels.get(name, Targets()) for file in files)
            for name in self._targets
        }
        self._labels = {name: each for name, each in labels.items() if each != Targets()}

    def _check_named(self, there: Sequence[str], drop: Sequence[str], file: str) -> None:
        """Raise DataError for a target, a weight or a column to drop that is not there."""
        named = [] if self._weight is None else [self._weight]
        used = [*self._targets, *named]
        rule = "The target must be a column of the table"
        self._check_columns(there, self._targets, rule, file, drop)
        rule = "The weight must be a column of the table"
        self._check_columns(there, named, rule, file, self._targets)
        self._check_columns(there, drop, "A column to drop must be in the table", file, used)
        both = [name for name in drop if name in used]
        if both:
            raise DataError(
                f"A column cannot be used and left out. {both[0]!r} is a target or a weight, and "
                "is to be dropped. Leave it out of one of them."
            )

    def _chosen(
        self,
        there: Sequence[str],
        features: Sequence[str] | None,
        drop: Sequence[str],
        file: str,
    ) -> list[str]:
        """The columns that are features; some may be ``_absent``."""
        used = {*self._targets, *([self._weight] if self._weight else []), *drop}
        chosen = [name for name in there if name not in used]
        if features is not None:
            chosen = list(features)
            present = [name for name in chosen if name not in self._absent]
            self._check_columns(there, present, "Every feature must be a column", file)
        n_rows = sum(each.n_rows for each in self._files.values())
        if not chosen or n_rows == 0:
            raise DataError(
                f"A table must have at least one row and one feature. {file} has {n_rows} rows "
                f"and {len(chosen)} feature columns. Check the file and its first line."
            )
        return chosen

    def _has_gaps(self) -> bool:
        """Whether features are empty in some rows."""
        there = [name for name in self._features if name not in self._absent]
        return any(file.has_gaps(name) for file in self._files.values() for name in there)

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
        """Yield some rows of a block at a time, as a table of Arrow where ``is_framed``."""
        if not self.is_framed:
            yield from self.read(block, wanted)
            return
        import pyarrow as pa

        for batch, done in self._batches(block, wanted):
            piece = self._piece(block, batch, done, replace(wanted, features=False))
            table = pa.Table.from_batches([batch])
            for name in self._absent:
                table = table.append_column(name, pa.nulls(len(table), pa.string()))
            table = table.select(self._features if wanted.features else [])
            yield piece._replace(X=table.cast(pa.schema(map(of_text, table.schema))))

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
            columns = [*(name for name in self._features if name not in self._absent), *columns]
        rows, done = max(LEAST_ROWS, wanted.rows), 0
        # a target may be a feature, too
        for batch in self._files[block.file].read(block, list(dict.fromkeys(columns)), rows):
            yield batch, done
            done += batch.num_rows
        if done != block.n_rows:
            raise DataError(
                f"A file must stay as it is while it is read. {block.file} had {block.n_rows} rows "
                f"in part {block.number} and now has {done}. Start again when it is written whole."
            )

    def fingerprint(self) -> dict[str, Any]:
        """Names, lengths and sizes of all files, and what each says of itself."""
        files = {
            name: [file.n_rows, file.n_bytes, file.digest()] for name, file in self._files.items()
        }
        return {
            "rows": self.n_rows,
            "features": list(self._features),
            "targets": list(self._targets),
            "weight": self._weight,
            "files": files,
        }

    def _piece(self, block: Block, batch: Any, done: int, wanted: Wanted) -> Piece:
        place = Place(block, done)
        columns = [self._targets[0]] if self.is_column else self._targets
        rule = "Several targets must be numbers"
        parts = [
            labels_of(self._target(batch, name), name, place)
            if self.is_column
            else numbers_of(self._target(batch, name), name, place, rule)
            for name in columns
        ]
        nothing = np.empty((batch.num_rows, 0))
        y = parts[0] if self.is_column else np.column_stack([nothing, *parts])
        weight = None
        if self._weight is not None:
            rule = "Weights must be numbers"
            weight = numbers_of(batch.column(self._weight), self._weight, place, rule)
            weight = weight.astype(np.float64)
        return Piece(self._matrix(batch, place) if wanted.features else nothing, y, weight, done)

    def _target(self, batch: Any, name: str) -> Any:
        """A column of targets; text that is numbers or truth in all rows of all files as such."""
        column = batch.column(name)
        if name not in self._labels or name in self._as_text:
            return column
        import pyarrow as pa

        return cast_targets(without_blanks(column.cast(pa.string())), self._labels[name].kind)

    def require_plain_targets(self) -> None:
        """Raise DataError for a target of numbers in text that some rows hold no number of."""
        for name, labels in self._labels.items():
            labels.require_plain(name)

    def _matrix(self, batch: Any, place: "Place") -> NDArray[Any]:
        columns = [
            numbers_of(batch.column(name), name, place, "Features must be numbers")
            for name in self._features
        ]
        dtype = np.result_type(*{column.dtype for column in columns})
        X = np.empty((batch.num_rows, len(columns)), dtype)
        for number, column in enumerate(columns):
            X[:, number] = column
        return X

    def _check_columns(
        self,
        there: Sequence[str],
        names: Sequence[str],
        rule: str,
        file: str,
        used: Sequence[str] = (),
    ) -> None:
        missing = [name for name in names if name not in there]
        if missing:
            few = ", ".join(map(repr, there[:8])) + (", ..." if len(there) > 8 else "")
            free = [name for name in there if name not in used]
            raise DataError(
                f"{rule}. {file} has no {missing[0]!r}; it has {few}. {hint(missing[0], free)}"
            )

    def _check_types(self, first_name: str, first: FileRows) -> dict[str, str]:
        """The kinds of all columns; every file must have those of the first, of the same kinds."""
        features = [name for name in self._features if name not in self._absent]
        names = [*features, *self._targets, *([self._weight] if self._weight else [])]
        kinds = {name: first.kind(name) for name in names}
        for name, file in self._files.items():
            self._check_columns(file.columns, names, "All files must have the same columns", name)
            for column, kind in kinds.items():
                if file.n_rows and file.kind(column) != kind:
                    raise DataError(
                        f"All files must have the same columns. {column!r} is {kind} in "
                        f"{first_name} and {file.kind(column)} in {name}. Convert one of them."
                    )
        return kinds


def _name(path: Path, root: Path | None) -> str:
    return str(path if root is None else path.relative_to(root))
