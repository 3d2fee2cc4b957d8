"""Rows in Parquet, Arrow and CSV files, read by pyarrow a row group or a stretch at a time."""

import copy
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.optional import Later, require
from protopinv.rows.columns import (
    TargetText,
    are_there,
    is_numeric,
    label_column,
    number_column,
    plain_type,
    typed_targets,
    written_targets,
)
from protopinv.rows.delimited import DelimitedRows, share_types
from protopinv.rows.formats import (
    ENDINGS,
    LOOKED_AT,
    STDIN,
    FileRows,
    IpcRows,
    ParquetRows,
    damage_named,
    files_of,
    format_of,
    split_names,
)
from protopinv.rows.source import IN_MEMORY_BYTES, Block, Piece, RowSource, placed
from protopinv.rows.text import check_separator
from protopinv.words import NEARLY_ALL, PLAIN, hint, said_of

pa = Later("pyarrow")
# Rows are taken from a file about so many at a time, whatever is asked for.
LEAST_ROWS = 1_024


def open_rows(
    path: str | Path,
    target: str | Sequence[str],
    *,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    as_text: Sequence[str] = (),
    separator: str | None = None,
    encoding: str | None = None,
    memory: int = IN_MEMORY_BYTES,
    cache: str | Path | None = "auto",
) -> "ArrowRows":
    """The rows of a Parquet, Arrow or CSV file, or of all such files in a folder and below it.

    ``target`` and ``weight`` name columns; features are all others but those in ``drop``, unless
    ``features`` names them. CSV files may be packed by gzip; how they are written is found out,
    unless ``separator`` and ``encoding`` say it, and columns ``as_text`` stay what is written.
    Rows of up to ``memory`` bytes are read once and kept in memory; more are read again for every
    pass over them, a few at a time. ``cache`` is a folder where rows are kept as plain numbers
    meanwhile, which are read several times faster than files are decoded: "auto" is the system's
    folder for temporary files, if these would take at most half of its free space; None decodes the
    files anew for every pass.
    """
    require("pyarrow", extra="table", why="Reading a table")
    check_separator(separator)
    path, targets = Path(path), [target] if isinstance(target, str) else list(target)
    root = path if path.is_dir() else path.parent
    opened = [
        _opened(file, str(file.relative_to(root)), targets, as_text, separator, encoding)
        for file in files_of(path)
    ]
    share_types(opened)
    rows = ArrowRows(opened, targets, features, drop, weight, as_text)
    rows.memory, rows.cache = memory, cache
    return rows


class ArrowRows(RowSource):
    """The rows of a file, or of all files in a folder, which have the same columns.

    ``said`` is what a user should hear of how they are read.

    ``targets`` and ``weight`` name columns; ``features`` are all others, unless they are named.
    These come as tables of Arrow where they are not all numbers (``is_framed``).
    """

    names: tuple[str, ...]
    target_names: tuple[str, ...]
    # whether rows without a target are left out
    _leaves_out: bool = False

    def __init__(
        self,
        opened: Sequence[FileRows],
        targets: Sequence[str],
        features: Sequence[str] | None,
        drop: Sequence[str],
        weight: str | None,
        as_text: Sequence[str],
    ) -> None:
        self._as_text = frozenset(as_text)
        self._files = {file.name: file for file in opened}
        # a file without rows may not know its types
        first = next((file for file in opened if file.n_rows), opened[0])
        self._weights = [] if weight is None else [weight]
        self.target_names = tuple(split_names(targets, list(first.types)))
        self.is_column = len(self.target_names) == 1
        self.names = self._features_of(first, features, split_names(drop, list(first.types)))
        self.n_features = len(self.names)
        self.blocks = placed([block for file in opened for block in file.blocks()])
        self.n_bytes = sum(file.n_bytes for file in opened)
        self.said = tuple(dict.fromkeys(chain.from_iterable(file.said for file in opened)))
        self._require_alike(first, [*self.names, *self.target_names, *self._weights])
        # numbers with gaps are no numbers yet
        self.is_framed = not all(is_numeric(first.types[name]) for name in self.names) or any(
            name in file.gaps for file in opened for name in self.names
        )
        self._labels = {
            name: TargetText.total(file.labels.get(name, TargetText()) for file in opened)
            for name in self.target_names
            if any(name in file.labels for file in opened)
        }
        # targets that people wrote as numbers with a unit, by their forms
        self.forms: dict[str, str] = {}

    def _features_of(
        self, file: FileRows, features: Sequence[str] | None, drop: Sequence[str]
    ) -> tuple[str, ...]:
        """The columns that are features; raises DataError for a column that is not there."""
        used = [*self.target_names, *self._weights]
        for names, rule, others in (
            (self.target_names, "The target must be a column of the table", drop),
            (self._weights, "The weight must be a column of the table", self.target_names),
            (drop, "A column to drop must be in the table", used),
            (features or (), "Every feature must be a column", ()),
        ):
            _require_columns(file, names, rule, others)
        both = [name for name in drop if name in used]
        if both:
            raise DataError(
                f"A column cannot be used and left out. {both[0]!r} is a target or a weight, and "
                "is to be dropped. Leave it out of one of them."
            )
        twice = [name for name in features or () if name in {*used, *drop}]
        if twice:
            raise DataError(
                f"A feature must be no target, no weight and not dropped. {twice[0]!r} is. Leave "
                "it out of the features."
            )
        if features is None:
            features = [name for name in file.types if name not in {*used, *drop}]
        n_rows = sum(each.n_rows for each in self._files.values())
        if not features or n_rows == 0:
            raise DataError(
                f"A table must have at least one row and one feature. {file.name} has {n_rows} "
                f"rows and {len(features)} feature columns. Check the file and its first line."
            )
        return tuple(features)

    def _require_alike(self, first: FileRows, names: Sequence[str]) -> None:
        """Raise DataError where a file has other columns than the first, or of other types."""
        for file in self._files.values():
            _require_columns(file, names, "All files must have the same columns")
            for column in names:
                kind, other = first.types[column], file.types[column]
                if file.n_rows and kind != other:
                    raise DataError(
                        f"All files must have the same columns. {column!r} is {kind} in "
                        f"{first.name} and {other} in {file.name}. Convert one of them."
                    )

    def with_columns(self, names: Sequence[str], *, framed: bool) -> "ArrowRows":
        """Return these columns alone, in this order, as frames or as numbers."""
        narrowed = copy.copy(self)
        narrowed.names, narrowed.n_features = tuple(names), len(names)
        narrowed.is_framed = framed
        return narrowed

    def with_number_targets(self, *, few_too: bool) -> "ArrowRows":
        """Return targets of text as numbers where these are written in one form, and say so.

        Few whole numbers are classes, unless they are asked for too.
        """
        typed = copy.copy(self)
        forms = {
            name: labels.form(few_too=few_too)
            for name, labels in self._labels.items()
            if name not in {*self._as_text, *self.forms} and labels.names
        }
        typed.forms = self.forms | {name: form for name, form in forms.items() if form != PLAIN}
        said = [
            f"the target {name!r} looks like numbers, such as {labels.unread}, and no form reads "
            f"{NEARLY_ALL:.0%} of them; its values are names"
            for name, labels in self._labels.items()
            if name not in {*self._as_text, *typed.forms} and labels.unread
        ] + [
            f"the target {name!r} is a number{said_of(form)}; predictions are such numbers"
            for name, form in typed.forms.items()
            if name not in self.forms
        ]
        typed.said = (*self.said, *said)
        return typed

    def without_missing(self) -> "ArrowRows":
        """Return the rows that have a target, and say how many have none."""
        source = copy.copy(self)
        source._leaves_out = True
        source._labels = {name: labels.without_gaps() for name, labels in self._labels.items()}
        if all(map(self._is_complete, self._files.values())):
            return source
        blocks = [replace(block, n_rows=source._count(block)) for block in self.blocks]
        n = self.n_rows - sum(block.n_rows for block in blocks)
        if n == self.n_rows:
            raise DataError(
                f"Some rows must have a target. {', '.join(map(repr, self.target_names))} is empty "
                f"in all {n:,} rows. Name another column."
            )
        source.blocks = placed(blocks)
        if n:
            rows = "1 row has" if n == 1 else f"{n:,} rows have"
            were = "was" if n == 1 else "were"
            source.said = (*self.said, f"{rows} no target and {were} left out")
        return source

    def _is_complete(self, file: FileRows) -> bool:
        """Whether a file says of itself that no target is missing; NaN in a Parquet file is."""
        texts = [file.labels.get(name) for name in self.target_names]
        return all(text and not text.has_blanks and text.gap is None for text in texts)

    def _count(self, block: Block) -> int:
        """Count the rows of a block that have a target."""
        names = list(dict.fromkeys(self.target_names))
        batches = self._files[block.file].read(block, names, LOOKED_AT)
        first, n = block.first, 0
        for batch in batches:
            n += int(self._complete(self._targets(batch, (block.file, first))).sum())
            first += batch.num_rows
        return n

    def require_plain_targets(self) -> None:
        """Raise DataError for a target of numbers in text that some rows hold no number of."""
        for name, labels in self._labels.items():
            if name not in self.forms:
                labels.require_plain(name)

    def read(self, block: Block, n_rows: int, *, features: bool = True) -> Iterator[Piece]:
        """Yield some rows of a block at a time, as numbers or as tables of Arrow."""
        columns = [*self.names * features, *self.target_names, *self._weights]
        columns, first, done = list(dict.fromkeys(columns)), block.first, 0
        for batch in self._files[block.file].read(block, columns, max(LEAST_ROWS, n_rows)):
            place, weight = (block.file, first), None
            targets = self._targets(batch, place)
            for name in self._weights:
                column = number_column(batch.column(name), name, *place, "Weights must be numbers")
                weight = column.astype(np.float64)
            X = self._features(batch, place) if features else np.empty((batch.num_rows, 0))
            first += batch.num_rows
            chosen = self._complete(targets) if self._leaves_out else None
            if chosen is not None and not chosen.all():
                targets = [column.filter(pa.array(chosen)) for column in targets]
                X = X[chosen] if isinstance(X, np.ndarray) else X.filter(pa.array(chosen))
                weight = None if weight is None else weight[chosen]
            if targets and not len(targets[0]):
                continue
            yield Piece(X, self._labels_of(targets, place, batch.num_rows), weight, done)
            done += len(X)
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
            "features": list(self.names),
            "targets": list(self.target_names),
            "weight": next(iter(self._weights), None),
            "files": files,
        }

    def _targets(self, batch: Any, place: tuple[str, int]) -> list[Any]:
        """The columns of targets; text that is numbers or truth in all rows of all files is that.

        Text in a form of numbers is that too.
        """
        commas, columns = self._files[place[0]].has_decimal_commas, []
        for name in self.target_names:
            column = batch.column(name)
            if pa.types.is_dictionary(column.type) and self._leaves_out:
                column = column.dictionary_decode()
            if name in self.forms:
                column = written_targets(column, self.forms[name], name, *place)
            elif name in self._labels and name not in self._as_text:
                column = typed_targets(column, self._labels[name].kind, commas=commas)
            columns.append(column)
        return columns

    def _complete(self, targets: Sequence[Any]) -> NDArray[np.bool_]:
        """Which rows have all targets."""
        return reduce(np.logical_and, map(are_there, targets))

    def _labels_of(
        self, targets: Sequence[Any], place: tuple[str, int], n_rows: int
    ) -> NDArray[Any]:
        """Labels in a list where there is one target, and otherwise columns of numbers."""
        if self.is_column:
            return label_column(targets[0], self.target_names[0], *place)
        parts = [
            number_column(column, name, *place, "Several targets must be numbers")
            for name, column in zip(self.target_names, targets, strict=True)
        ]
        return np.column_stack([np.empty((len(parts[0]) if parts else n_rows, 0)), *parts])

    def _features(self, batch: Any, place: tuple[str, int]) -> Any:
        """A table of Arrow, or a matrix of the type that holds all columns."""
        if self.is_framed:
            table = pa.Table.from_batches([batch]).select(list(self.names))
            return table.cast(pa.schema([(f.name, plain_type(f.type)) for f in table.schema]))
        columns = [
            number_column(batch.column(name), name, *place, "Features must be numbers")
            for name in self.names
        ]
        X = np.empty((len(batch), len(columns)), np.result_type(*{c.dtype for c in columns}))
        for number, column in enumerate(columns):
            X[:, number] = column
        return X


def _opened(
    path: Path,
    name: str,
    targets: Sequence[str],
    as_text: Sequence[str],
    separator: str | None,
    encoding: str | None,
) -> FileRows:
    """A file in the format that its name says; raises DataError for what cannot be read.

    Of text, columns ``as_text`` stay what is written.
    """
    kind = "csv" if path == STDIN else format_of(path)
    if kind is None:
        others = [each for each in chain(*ENDINGS.values()) if each not in (".csv", ".parquet")]
        raise DataError(
            f"A table must be a .csv or .parquet file, or one of {', '.join(others)}. Got "
            f"{path.name}. Convert or rename it."
        )
    if path != STDIN and path.stat().st_size == 0:
        raise DataError(
            f"A file of rows must not be empty. {name} has no bytes. Remove it, or write it again."
        )
    if kind == "csv":
        place = sys.stdin.buffer.read() if path == STDIN else path
        name = "stdin" if path == STDIN else name
        with damage_named(name):
            return DelimitedRows(name, place, targets, as_text, separator, encoding)
    if separator or encoding:
        raise DataError(
            f"A separator and an encoding are of CSV files. {path.name} is {kind}. Leave them out."
        )
    return (ParquetRows if kind == "parquet" else IpcRows)(path, name, targets)


def _require_columns(
    file: FileRows, names: Sequence[str], rule: str, used: Sequence[str] = ()
) -> None:
    """Raise DataError for a name that is no column; none of those ``used`` is meant."""
    there = list(file.types)
    missing = [name for name in names if name not in there]
    if missing:
        few = ", ".join(map(repr, there[:8])) + (", ..." if len(there) > 8 else "")
        free = [name for name in there if name not in used]
        raise DataError(
            f"{rule}. {file.name} has no {missing[0]!r}; it has {few}. {hint(missing[0], free)}"
        )
