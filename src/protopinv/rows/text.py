"""The bytes of a table in text, packed or not and in any encoding, cut between its rows."""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from protopinv.errors import ConfigError, DataError
from protopinv.rows import source
from protopinv.rows.cutting import LINE_END, last_end, quotes, row_ends

# Tried in turn, unless one is named; the last reads anything.
ENCODINGS = ("utf-8", "cp1252", "latin-1")
# What a file may begin with, and the encoding that this says.
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
PACKED = b"\x1f\x8b"
# A row of more bytes than this is no row: a quote was opened and never closed.
LONGEST_ROW = 2**26
# Bytes of a file that hold the names of its columns.
HEAD = 2**16
ADVICE = "Say separator=SIGN and encoding=NAME, or correct the file."
BLANK_LINES = re.compile(rb"(?: *(?:\r\n|\r|\n))*")


@dataclass(frozen=True)
class Written:
    """How a table in text is written, as far as a user says; None is found out."""

    separator: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        each = self.separator
        if each is not None and (len(each) != 1 or not each.isascii() or each in '"\r\n'):
            raise ConfigError(
                f"A separator is one character, or tab, of ASCII, and no quote. Got {each!r}. "
                "Change it, for example to ;"
            )


class Stretch(NamedTuple):
    """Some rows: where they begin and end in the unpacked file, and their bytes in UTF-8."""

    start: int
    end: int
    raw: bytes


class WrongEncodingError(Exception):
    """The bytes of a file are not in the encoding they were read in."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class TextFile:
    """A file of text, or what came from another program: its bytes in UTF-8, unpacked."""

    def __init__(self, name: str, place: Path | bytes, encoding: str | None = None) -> None:
        self.name, self._place = name, place
        self._require_room()
        with self._bytes() as file:
            head = file.read(4)
        mark, marked = next(((m, e) for m, e in MARKS if head.startswith(m)), (b"", None))
        named = None if encoding is None else _checked(encoding)
        # the general names of both say nothing of the order of bytes, which the mark does
        if named in ("utf-16", "utf-32"):
            self.encoding = marked if marked and marked.startswith(named) else f"{named}-le"
        else:
            self.encoding = named or marked or ENCODINGS[0]
        self.first = len(mark) if self.encoding == marked else 0
        self.is_certain = named is not None or marked is not None

    def header(self, separator: str | None) -> Stretch | None:
        """The first row that is not empty; None if there is none."""
        head = b""
        for more in self._in_utf8(self.first, HEAD):
            head += more
            blank = BLANK_LINES.match(head)
            skipped = 0 if blank is None else blank.end()
            ends = row_ends(head[skipped:], separator) + skipped
            ends = ends[ends < len(head)]  # what ends here may be half of a line end
            if not len(ends) and more:
                if len(head) > LONGEST_ROW:
                    raise self._too_long(self.first)
                continue
            end = int(ends[0]) if len(ends) else len(head)
            if not head[skipped:end].strip(b" \r\n"):
                return None
            length = self._length(head[:end], self.first)
            return Stretch(self.first, self.first + length, head[skipped:end])
        raise AssertionError("the last piece is empty")

    def stretches(self, start: int, size: int, separator: str) -> Iterator[Stretch]:
        """Whole rows, about ``size`` bytes of them at a time, from ``start`` on.

        A stretch does not end with empty lines, so none is left where a file ends with some.
        """
        rest, position = b"", start
        for more in self._in_utf8(start, size):
            rest += more
            cut = last_end(rest, separator, is_last=not more)
            if not cut and len(rest) > LONGEST_ROW:
                raise self._too_long(position)
            if not more:
                self._require_closed(rest, position, separator)
            if cut:
                raw, rest = rest[:cut], rest[cut:]
                end = position + self._length(raw, position)
                yield Stretch(position, end, raw)
                position = end

    def read(self, start: int, end: int) -> bytes:
        """A stretch once more."""
        raw = self.raw(start, end)
        return raw if self.encoding == "utf-8" else raw.decode(self.encoding).encode()

    def raw(self, start: int, end: int) -> bytes:
        """Bytes of the unpacked file as they are."""
        with self._bytes() as file:
            file.seek(start)
            return file.read(end - start)

    def line_at(self, offset: int) -> int:
        """The number of the line in which a byte lies, counted from 1."""
        feed, back = ("\n".encode(self.encoding), "\r".encode(self.encoding))
        lines, last = 1, b""
        with self._bytes() as file:
            file.seek(self.first)
            while file.tell() < offset:
                raw = last + file.read(min(2**24, offset - file.tell()))
                lines += raw.count(feed) + raw.count(back) - raw.count(back + feed)
                last = back if raw.endswith(back) else b""
                lines -= bool(last)  # until it is seen what follows
        return lines + bool(last)

    def _in_utf8(self, start: int, size: int) -> Iterator[bytes]:
        """Pieces of the file, and nothing at its end."""
        decoder = codecs.getincrementaldecoder(self.encoding)()
        is_utf8, done = self.encoding == "utf-8", start
        with self._bytes() as file:
            file.seek(start)
            more = b"x"
            while more:
                more = file.read(max(8, size))
                done += len(more)
                if is_utf8:
                    yield more
                    continue
                try:
                    yield decoder.decode(more, final=not more).encode()
                except UnicodeError as error:
                    offset = done - len(more) + int(getattr(error, "start", 0))
                    raise WrongEncodingError(offset) from error

    def _length(self, raw: bytes, position: int) -> int:
        """Of a stretch in the file; raises where it is not in the encoding."""
        if b"\0" in raw:
            line = self.line_at(position) + len(LINE_END.findall(raw[: raw.index(b"\0")]))
            raise DataError(
                f"A CSV table is text. {self.name} holds other bytes, a zero in line {line:,}. "
                f"{ADVICE}"
            )
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise WrongEncodingError(position + error.start) from error
        return len(raw) if self.encoding == "utf-8" else len(text.encode(self.encoding))

    def _require_room(self) -> None:
        """Raise DataError where a packed file holds more than is unpacked into memory."""
        with self._open() as file:
            if file.read(2) != PACKED:
                return
        most, done = source.IN_MEMORY_BYTES, 0
        with self._bytes() as file:
            while more := file.read(2**20):
                done += len(more)
                if done > most:
                    raise DataError(
                        f"A packed table must have at most {most / 2**20:,.0f} MB unpacked. "
                        f"{self.name} has more. Unpack it first, for example with gunzip; then it "
                        "is read a piece at a time."
                    )

    def _require_closed(self, raw: bytes, position: int, separator: str) -> None:
        places = quotes(raw, separator)
        if len(places) % 2:
            line = self.line_at(position) + len(LINE_END.findall(raw[: places[-1]]))
            raise DataError(
                f"A quote that opens a field must be closed. The one in line {line:,} of "
                f"{self.name} is not. Close it, or write it twice within quotes."
            )

    def _too_long(self, position: int) -> DataError:
        return DataError(
            f"A row of a table must end. The one in line {self.line_at(position):,} of {self.name} "
            f"goes on for {LONGEST_ROW / 2**20:,.0f} MB. Check whether a quote is not closed."
        )

    def _open(self) -> BinaryIO:
        return io.BytesIO(self._place) if isinstance(self._place, bytes) else open_file(self._place)

    @contextmanager
    def _bytes(self) -> Iterator[BinaryIO]:
        """The file, unpacked while it is read."""
        with self._open() as file:
            start = file.read(2)
            file.seek(0)
            if start != PACKED:
                yield file
                return
            try:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield unpacked  # type: ignore[misc]
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise DataError(
                    f"A packed table must be whole. {self.name} is not ({error}). Copy it again."
                ) from error


def open_file(path: Path) -> BinaryIO:
    """The bytes of a file."""
    return path.open("rb")


def _checked(encoding: str) -> str:
    """The name of an encoding that a file can be cut in; raises DataError for any other."""
    try:
        name = codecs.lookup(encoding).name
        is_plain = len("\n".encode(name)) - len("".encode(name)) in (1, 2, 4)
    except (LookupError, UnicodeError):
        is_plain = False
    # a file in one of the others cannot be read from its middle
    if not is_plain or name in ("utf-7", "hz") or name.startswith("iso2022"):
        raise DataError(
            f"An encoding must be known to Python. Got encoding={encoding!r}. Use for example "
            "utf-8, cp1252 or utf-16."
        )
    return {"utf-8-sig": "utf-8"}.get(name, name)
