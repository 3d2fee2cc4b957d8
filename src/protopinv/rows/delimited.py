"""CSV files and others like them: how they are written, what their columns hold, and their rows."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from protopinv.errors import DataError
from protopinv.rows import kinds as of_kind
from protopinv.rows.arrays import digest
from protopinv.rows.cutting import LINE_END, SEPARATORS, fields_of, row_ends
from protopinv.rows.file_rows import FileRows, damage_named, require_names, unreadable
from protopinv.rows.kinds import FLOAT, NOTHING, TEXT, joined
from protopinv.rows.source import Block
from protopinv.rows.targets import Targets, targets_of, together, without_blanks
from protopinv.rows.text import (
    ADVICE,
    ENCODINGS,
    Stretch,
    TextFile,
    Written,
    WrongEncodingError,
)


class DelimitedRows(FileRows):
    """A file cut into stretches of whole rows; the types of its columns are those of all rows.

    One pass finds the rows and the types, and a second one what decimals have commas, if any have.
    Columns ``targets`` are read as targets are, and ``as_text`` stay what is written.
    """

    def __init__(
        self,
        name: str,
        place: Path | bytes,
        written: Written,
        *,
        targets: Callable[[Sequence[str]], Sequence[str]],
        as_text: Sequence[str],
        block_bytes: int,
    ) -> None:
        super().__init__(place if isinstance(place, Path) else Path(name), name, 0)
        self._place, self._written = place, written
        self._block_bytes, self._as_text = block_bytes, frozenset(as_text)
        self._scan_in_any_encoding(targets)

    @property
    def columns(self) -> list[str]:
        """Their names, in order."""
        return self._names

    def kind(self, column: str) -> str:
        """The type of a column, of all its rows."""
        kind = self.kinds[column]
        return TEXT if kind == NOTHING else kind

    def has_gaps(self, column: str) -> bool:
        """Whether a row is empty there."""
        return column in self._gaps

    def read(self, block: Block, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Record batches of a stretch."""
        import pyarrow as pa

        start, end = self._cuts[block.number]
        types = {name: self._written_type(name) for name in columns}
        with damage_named(self.name):
            stretch = Stretch(start, end, self._text.read(start, end))
            table = self._parsed(stretch, columns, types)
        parts = [self._finished(table[name], name) for name in columns]
        one = pa.table(parts, names=list(columns)).combine_chunks()
        yield from one.to_batches(max_chunksize=rows)

    def digest(self) -> str:
        """The first bytes of every stretch, and how they are read."""
        starts = (self._text.raw(start, min(end, start + 4096)) for start, end in self._cuts)
        return digest(*starts, f"{self._separator} {self._text.encoding}".encode())

    def _scan_in_any_encoding(self, targets: Callable[[Sequence[str]], Sequence[str]]) -> None:
        """Find what there is to know of the file, in the first encoding that fits all of it."""
        self._text = TextFile(self.name, self._place, self._written.encoding)
        certain = self._text.is_certain
        for encoding in [self._text.encoding] if certain else ENCODINGS:
            self._text.encoding = encoding
            try:
                self._scan(targets)
            except WrongEncodingError as error:
                if certain:
                    line = self._text.line_at(error.offset)
                    raise DataError(
                        f"A table must be written in its encoding. Line {line:,} of {self.name} "
                        f"is not in {self._written.encoding or encoding}. Say which it "
                        "is: encoding=NAME."
                    ) from None
            else:
                break
        if not (self._written.encoding or encoding == "utf-8"):
            said = encoding.removesuffix("-le").removesuffix("-be")
            self.said = (f"read {self.name} as {said}", *self.said)

    def _scan(self, targets: Callable[[Sequence[str]], Sequence[str]]) -> None:
        """One pass over all rows, and one more where decimals may have commas."""
        start = self._read_header()
        self.labels = {name: Targets() for name in targets(self._names) if name in self._names}
        self.kinds, self._gaps = dict.fromkeys(self._names, NOTHING), set[str]()
        self._commas: frozenset[str] = frozenset()
        self._cuts, self._lengths, maybe = [], [], set[str]()
        for stretch in self._text.stretches(start, self._block_bytes, self._separator):
            self._look(stretch, maybe)
            self._cuts.append((stretch.start, stretch.end))
            self.n_bytes = stretch.end
        if maybe:
            self._settle_commas([name for name in self._names if name in maybe])
        for name in self.labels:
            self.kinds[name] = self.labels[name].kind

    def _read_header(self) -> int:
        """Take the names of columns from the first row; gives where the second one begins."""
        first = self._text.header(self._written.separator)
        if first is None:
            raise DataError(
                "A table must have a line of column names and some rows. "
                f"{self.name} is empty. Check the file."
            )
        line = first.raw.decode().rstrip("\r\n")
        self._separator = self._written.separator or _separator(line)
        names = fields_of(line, self._separator)
        self._names = [name if name.strip() else f"column {n}" for n, name in enumerate(names, 1)]
        self.said = tuple(
            f"column {place} of {self.name} has no name; it is called 'column {place}'"
            for place, name in enumerate(names, 1)
            if not name.strip()
        )
        require_names(self._names, self.name, " in its first line")
        return first.end

    def _look(self, stretch: Stretch, maybe: set[str]) -> None:
        """What some rows hold; columns whose decimals may have commas are added to ``maybe``."""
        texts = {name: TEXT for name in (*self.labels, *self._as_text) if name in self.kinds}
        table = self._parsed(stretch, self._names, texts)
        zeros = self._with_leading_zeros(stretch, table)
        for name in self._names:
            column = table[name]
            if column.null_count:
                self._gaps.add(name)
            if self.kinds[name] != TEXT:
                kind = TEXT if name in {*zeros, *self._as_text} else of_kind.kind_of(column)
                self.kinds[name] = joined(self.kinds[name], kind)
            may = self._separator != "," and str(column.type) == TEXT and name not in maybe
            if may and of_kind.decimals(column)[0]:
                maybe.add(name)
        for name, targets in self.labels.items():
            seen = targets_of(self._target(table[name]), self.name, sum(self._lengths))
            self.labels[name] = targets + seen
        self._lengths.append(len(table))

    def _with_leading_zeros(self, stretch: Stretch, table: Any) -> set[str]:
        """Columns of numbers with something like 007, which is a name."""
        import pyarrow as pa
        import pyarrow.compute as pc

        pattern = of_kind.leading_zero(self._separator)
        raw = pa.array([stretch.raw], pa.binary())
        if not pc.match_substring_regex(raw, pattern)[0].as_py():
            return set()
        names = [name for name in self._names if of_kind.is_number(table[name])]
        texts = self._parsed(stretch, names, dict.fromkeys(names, TEXT)) if names else table
        return {name for name in names if of_kind.has_leading_zero(texts[name])}

    def _settle_commas(self, names: Sequence[str]) -> None:
        """Find the columns that have more decimals with a comma than with a point."""
        counts = {name: np.zeros(2, dtype=np.int64) for name in names}
        kinds = dict.fromkeys(names, NOTHING)
        for start, end in self._cuts:
            stretch = Stretch(start, end, self._text.read(start, end))
            table = self._parsed(stretch, names, dict.fromkeys(names, TEXT))
            for name in names:
                counts[name] += of_kind.decimals(table[name])
                kind = of_kind.kind_of_text(of_kind.with_points(table[name]))
                kinds[name] = joined(kinds[name], kind)
        self._commas = frozenset(name for name in names if counts[name][0] > counts[name][1])
        for name in self._commas - self._as_text:
            self.kinds[name] = kinds[name]
        if self._commas:
            self.said = (*self.said, f"read {self.name} with commas in its decimals")

    def _parsed(self, stretch: Stretch, names: Sequence[str], types: Mapping[str, str]) -> Any:
        """Some columns of a stretch; those without a type have what Arrow finds."""
        from pyarrow import ArrowInvalid, csv, py_buffer

        raw = stretch.raw
        options = {
            "read_options": csv.ReadOptions(column_names=self._names, block_size=len(raw) + 1),
            "parse_options": csv.ParseOptions(
                delimiter=self._separator,
                newlines_in_values=True,
                # with one column an empty line is a gap
                ignore_empty_lines=len(self._names) > 1,
            ),
            "convert_options": csv.ConvertOptions(
                include_columns=list(names),
                column_types=dict(types),
                null_values=[""],
                strings_can_be_null=True,
                true_values=of_kind.TRUTH[0],
                false_values=of_kind.TRUTH[1],
                check_utf8=False,
            ),
        }
        try:
            return csv.read_csv(py_buffer(raw), **options)
        except ArrowInvalid as error:
            raise self._unreadable(stretch, error) from error

    def _unreadable(self, stretch: Stretch, error: Exception) -> DataError:
        """Names the first line that has more or fewer fields, if that is what is wrong."""
        raw, begin, n = stretch.raw, 0, len(self._names)
        for end in [*row_ends(raw, self._separator).tolist(), len(raw)]:
            row = raw[begin:end].decode().rstrip("\r\n")
            fields = len(fields_of(row, self._separator)) if row else n
            if fields != n:
                line = self._text.line_at(stretch.start) + len(LINE_END.findall(raw[:begin]))
                return DataError(
                    f"Every line of a table must have as many fields as the first. Line {line:,} "
                    f"of {self.name} has {fields} between {self._separator!r}, the first has {n}. "
                    f"{ADVICE}"
                )
            begin = end
        return unreadable(self.name, error)

    def _written_type(self, name: str) -> str:
        """What pyarrow makes of a column, before the last touch is put on it."""
        is_text = name in self.labels or name in self._as_text or name in self._commas
        return TEXT if is_text else self.kind(name)

    def _finished(self, column: Any, name: str) -> Any:
        """A column that pyarrow read, as its kind says."""
        if name in self.labels:
            return self._target(column)
        if name not in self._commas:
            return column
        texts = of_kind.with_points(column)
        return of_kind.as_floats(texts) if self.kinds[name] == FLOAT else texts

    def _target(self, column: Any) -> Any:
        """Targets as text without blanks around it; nothing where none is left."""
        import pyarrow.compute as pc

        column = column if self._separator == "," else of_kind.with_points(column)
        return without_blanks(pc.cast(column, TEXT))


def share_kinds(files: Sequence[FileRows]) -> None:
    """Let files of text have the types that hold the values of all of them."""
    texts = [file for file in files if isinstance(file, DelimitedRows)]
    for name in {name: None for file in texts for name in file.kinds}:
        there = [file for file in texts if name in file.kinds]
        labels = [file.labels[name] for file in there if name in file.labels]
        kind = reduce(joined, [file.kinds[name] for file in there])
        for file in there:
            file.kinds[name] = together(labels).kind if labels else kind


def _separator(line: str) -> str:
    """What stands most often between the names of the columns."""
    bare = re.sub(r'"[^"]*"', "", line)
    return max(SEPARATORS, key=bare.count) if any(s in bare for s in SEPARATORS) else ","
