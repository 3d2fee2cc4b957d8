"""CSV files and others like them: how they are written, what their columns hold, and their rows."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from protopinv.errors import DataError
from protopinv.optional import Later
from protopinv.rows import columns as of_columns
from protopinv.rows.columns import FLOAT, NOTHING, TEXT, WHOLE, TargetText, joined
from protopinv.rows.formats import FileRows, damage_named, split_names, unreadable
from protopinv.rows.source import Block, digest, require_names
from protopinv.rows.text import (
    ADVICE,
    SEPARATORS,
    Stretch,
    TextFile,
    WrongEncodingError,
    fields_of,
    row_ends,
)

pa, pc, csv = Later("pyarrow"), Later("pyarrow.compute"), Later("pyarrow.csv")
# A CSV file has no row groups: it is cut where so many bytes have been read.
BLOCK_BYTES = 2**24


class DelimitedRows(FileRows):
    """A file cut into stretches of whole rows; the types of its columns are those of all rows.

    One pass finds the rows and the types, and a second one what decimals have commas, if any have.
    Columns ``targets`` are read as targets are, and ``as_text`` stay what is written.
    """

    def __init__(
        self,
        name: str,
        place: Path | bytes,
        targets: Sequence[str],
        as_text: Sequence[str],
        separator: str | None,
        encoding: str | None,
    ) -> None:
        super().__init__(name)
        self._named_separator, self._as_text = separator, frozenset(as_text)
        self._text = TextFile(name, place, encoding)
        for tried in self._text.encodings:
            self._text.encoding = tried
            try:
                self._scan(targets)
            except WrongEncodingError as error:
                if tried == self._text.encodings[-1]:
                    line = self._text.line_at(error.offset)
                    raise DataError(
                        f"A table must be written in its encoding. Line {line:,} of {name} is not "
                        f"in {encoding or tried}. Say which it is: encoding=NAME."
                    ) from None
            else:
                break
        if not (encoding or tried == "utf-8"):
            said = tried.removesuffix("-le").removesuffix("-be")
            self.said = (f"read {name} as {said}", *self.said)

    @property
    def has_decimal_commas(self) -> bool:
        """Whether a comma in a number begins its decimals: where it does not separate fields."""
        return self._separator != ","

    def read(self, block: Block, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield record batches of a stretch."""
        as_text = {*self.labels, *self._as_text, *self._commas}
        types = {name: TEXT if name in as_text else self.types[name] for name in columns}
        with damage_named(self.name):
            table = self._parsed(self._text.read(*self._cuts[block.number]), columns, types)
        parts = [self._finished(table[name], name) for name in columns]
        one = pa.table(parts, names=list(columns)).combine_chunks()
        yield from one.to_batches(max_chunksize=rows)

    def digest(self) -> str:
        """Return a hash of the first bytes of every stretch, and of how they are read."""
        return digest(*self._starts, f"{self._separator} {self._text.encoding}".encode())

    def _scan(self, targets: Sequence[str]) -> None:
        """One pass over all rows, and one more where decimals may have commas."""
        start = self._read_header()
        names = list(self.types)
        self.labels = {name: TargetText() for name in split_names(targets, names) if name in names}
        self.lengths, self.gaps, self._commas = [], set(), frozenset[str]()
        self._cuts: list[tuple[int, int]] = []
        self._starts: list[bytes] = []
        maybe = set[str]()
        for stretch in self._text.stretches(start, BLOCK_BYTES, self._separator):
            self._look(stretch, maybe)
            self._cuts.append((stretch.start, stretch.end))
            self._starts.append(digest(stretch.raw[:4096]).encode())
            self.n_bytes = stretch.end
        if maybe:
            self._decide_commas([name for name in names if name in maybe])
        self.types |= {name: text.kind for name, text in self.labels.items()}

    def _read_header(self) -> int:
        """Take the names of columns from the first row; return where the second one begins."""
        self.n_bytes = 0
        first = self._text.header(self._named_separator)
        if first is None:
            raise DataError(
                "A table must have a line of column names and some rows. "
                f"{self.name} is empty. Check the file."
            )
        line = first.raw.decode().rstrip("\r\n")
        bare = re.sub(r'"[^"]*"', "", line)
        # what stands most often between the names; a comma where nothing does
        self._separator = self._named_separator or max(SEPARATORS, key=bare.count)
        names = fields_of(line, self._separator)
        nameless = [place for place, name in enumerate(names, 1) if not name.strip()]
        for place in nameless:
            names[place - 1] = f"column {place}"
        self.said = tuple(
            f"column {place} of {self.name} has no name; it is called 'column {place}'"
            for place in nameless
        )
        require_names(names, f"the first line of {self.name}")
        self.types = dict.fromkeys(names, NOTHING)
        return first.end

    def _look(self, stretch: Stretch, maybe: set[str]) -> None:
        """What some rows hold; columns whose decimals may have commas are added to ``maybe``."""
        text = {*self.labels, *self._as_text}
        table = self._parsed(stretch, self.types, {n: TEXT for n in self.types if n in text})
        zeros = self._with_leading_zeros(stretch, table)
        for name, so_far in self.types.items():
            column = table[name]
            if column.null_count:
                self.gaps.add(name)
            is_text = name in zeros or name in self._as_text
            self.types[name] = joined([so_far, TEXT if is_text else of_columns.type_of(column)])
            may = self._separator != "," and str(column.type) == TEXT and name not in maybe
            if may and of_columns.decimals(column)[0]:
                maybe.add(name)
        for name in self.labels:
            texts, commas = pc.cast(table[name], TEXT), self.has_decimal_commas
            self.labels[name] += TargetText.of(texts, self.name, self.n_rows, commas=commas)
        self.lengths.append(len(table))

    def _with_leading_zeros(self, stretch: Stretch, table: Any) -> set[str]:
        """Columns of numbers with something like 007, which is a name."""
        field = rf'(?:^|[\x{ord(self._separator):02x}\r\n"])' + of_columns.LEADING_ZERO
        if not pc.match_substring_regex(pa.array([stretch.raw], pa.binary()), field)[0].as_py():
            return set()
        names = [name for name in self.types if str(table[name].type) in (WHOLE, FLOAT)]
        texts = self._parsed(stretch, names, dict.fromkeys(names, TEXT)) if names else table
        return {name for name in names if of_columns.has_leading_zero(texts[name])}

    def _decide_commas(self, names: Sequence[str]) -> None:
        """Find the columns that have more decimals with a comma than with a point."""
        counts = {name: np.zeros(2, dtype=np.int64) for name in names}
        types, others = dict.fromkeys(names, NOTHING), set[str]()
        for cut in self._cuts:
            table = self._parsed(self._text.read(*cut), names, dict.fromkeys(names, TEXT))
            for name in names:
                counts[name] += of_columns.decimals(table[name])
                texts = of_columns.with_points(table[name])
                # beside names, and where commas group digits, text stays as it is written
                if not all(map(of_columns.is_number_or_gap, pc.unique(texts).to_pylist())):
                    others.add(name)
                if texts.null_count < len(texts):
                    kind = TEXT if of_columns.as_floats(texts) is None else FLOAT
                    types[name] = joined([types[name], kind])
        most = {name for name in names if counts[name][0] > counts[name][1]}
        self._commas = frozenset(most - others - self._as_text)
        self.types |= {name: types[name] for name in self._commas}
        if self._commas:
            self.said = (*self.said, f"read {self.name} with commas in its decimals")

    def _parsed(self, stretch: Stretch, names: Iterable[str], types: Mapping[str, str]) -> Any:
        """Some columns of a stretch; those without a type have what Arrow finds."""
        raw, columns = stretch.raw, list(self.types)
        options = {
            "read_options": csv.ReadOptions(column_names=columns, block_size=len(raw) + 1),
            "parse_options": csv.ParseOptions(
                delimiter=self._separator,
                newlines_in_values=True,
                # with one column an empty line is a gap
                ignore_empty_lines=len(columns) > 1,
            ),
            "convert_options": csv.ConvertOptions(
                include_columns=list(names),
                column_types=dict(types),
                null_values=[""],
                strings_can_be_null=True,
                true_values=of_columns.TRUTH[0],
                false_values=of_columns.TRUTH[1],
                check_utf8=False,
            ),
        }
        # bytes of Arrow's own: a thread of its may let go of them when Python is gone already
        owned = pa.BufferOutputStream()
        owned.write(raw)
        try:
            return csv.read_csv(owned.getvalue(), **options)
        except pa.ArrowInvalid as error:
            raise self._unreadable(stretch, error) from error

    def _unreadable(self, stretch: Stretch, error: Exception) -> DataError:
        """Name the first line that has more or fewer fields, if that is what is wrong."""
        raw, begin, n = stretch.raw, 0, len(self.types)
        for end in [*row_ends(raw, self._separator).tolist(), len(raw)]:
            row = raw[begin:end].decode().rstrip("\r\n")
            fields = len(fields_of(row, self._separator)) if row else n
            if fields != n:
                line = self._text.line_at(stretch.start, raw[:begin])
                return DataError(
                    f"Every line of a table must have as many fields as the first. Line {line:,} "
                    f"of {self.name} has {fields} between {self._separator!r}, the first has {n}. "
                    f"{ADVICE}"
                )
            begin = end
        return unreadable(self.name, error)

    def _finished(self, column: Any, name: str) -> Any:
        """A column that pyarrow read, as its type says; targets are text as it is written."""
        if name in self.labels:
            return pc.cast(column, TEXT)
        if name not in self._commas:
            return column
        texts = of_columns.with_points(pc.cast(column, TEXT))
        return of_columns.as_floats(texts) if self.types[name] == FLOAT else texts


def share_types(files: Sequence[FileRows]) -> None:
    """Let files of text have the types that hold the values of all of them.

    A column without any value is text.
    """
    texts = [file for file in files if isinstance(file, DelimitedRows)]
    for name in {name: None for file in texts for name in file.types}:
        there = [file for file in texts if name in file.types]
        labels = [file.labels[name] for file in there if name in file.labels]
        kind = TargetText.total(labels).kind if labels else joined(f.types[name] for f in there)
        for file in there:
            file.types[name] = TEXT if kind == NOTHING else kind
