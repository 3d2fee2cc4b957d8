"""The bytes of a table in text, packed or not and in any encoding, cut between rows and fields."""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import ConfigError, DataError
from protopinv.rows import source

# Tried in turn, unless one is named; the last reads anything.
ENCODINGS = ("utf-8", "cp1252", "latin-1")
# What a file may begin with, and the encoding that this says.
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
PACKED = b"\x1f\x8b"
# A row of more bytes than this is no row: a quote was opened and never closed.
LONGEST_ROW = 2**26
# Bytes of a file that hold the names of its columns.
HEAD = 2**16
ADVICE = "Say separator=SIGN and encoding=NAME, or correct the file."
# What may stand between fields, unless a user names another.
SEPARATORS = ",;\t|"
LINE_END = re.compile(rb"\r\n|\r|\n")
BLANK_LINES = re.compile(rb"\A(?: *(?:\r\n|\r|\n))*")


class Stretch(NamedTuple):
    """Some rows: where they begin and end in the unpacked file, and their bytes in UTF-8."""

    start: int
    end: int
    raw: bytes


class WrongEncodingError(Exception):
    """The bytes of a file are not in the encoding they were read in, from ``offset`` on."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class TextFile:
    """A file of text, or what came from another program: its bytes in UTF-8, unpacked.

    ``encodings`` are those to try, one where a user or a mark in the file says it; ``encoding`` is
    the one in use, and ``first`` where the text begins behind a mark.
    """

    def __init__(self, name: str, place: Path | bytes, encoding: str | None = None) -> None:
        self.name, self._place = name, place
        with self._opened() as file:
            head = file.read(4)
        mark = next((mark for mark in MARKS if head.startswith(mark)), b"")
        marked, named = MARKS.get(mark), None if encoding is None else _checked(encoding)
        # the general names of both say nothing of the order of bytes, which the mark does
        if named in ("utf-16", "utf-32"):
            named = marked if marked and marked.startswith(named) else f"{named}-le"
        self.encodings: Sequence[str] = [each for each in (named, marked) if each][:1] or ENCODINGS
        self.encoding = self.encodings[0]
        self.first = len(mark) if self.encoding == marked else 0

    def header(self, separator: str | None) -> Stretch | None:
        """Return the first row that is not empty; None if there is none."""
        head = b""
        for more in self._in_utf8(self.first, HEAD):
            head += more
            skipped = len(head) - len(BLANK_LINES.sub(b"", head))
            ends = row_ends(head[skipped:], separator) + skipped
            # what ends where a piece does may be half of a line end
            if more and not (len(ends) and ends[0] < len(head)):
                self._require_end(head, self.first)
                continue
            end = int(ends[0]) if len(ends) else len(head)
            if not head[skipped:end].strip(b" \r\n"):
                return None
            length = self._length(head[:end], self.first)
            return Stretch(self.first, self.first + length, head[skipped:end])
        raise AssertionError("the last piece is empty")

    def stretches(self, start: int, size: int, separator: str) -> Iterator[Stretch]:
        """Yield whole rows, about ``size`` bytes of them at a time, from ``start`` on.

        A stretch does not end with empty lines, so none is left where a file ends with some.
        """
        rest, position = b"", start
        for more in self._in_utf8(start, size):
            rest += more
            cut = last_end(rest, separator, is_last=not more)
            if not cut:
                self._require_end(rest, position)
            if not more:
                self._require_closed(rest, position, separator)
            if cut:
                raw, rest = rest[:cut], rest[cut:]
                end = position + self._length(raw, position)
                yield Stretch(position, end, raw)
                position = end

    def read(self, start: int, end: int) -> Stretch:
        """Read a stretch once more."""
        with self._opened() as file:
            file.seek(start)
            raw = file.read(end - start)
        raw = raw if self.encoding == "utf-8" else raw.decode(self.encoding).encode()
        return Stretch(start, end, raw)

    def line_at(self, offset: int, then: bytes = b"") -> int:
        """Return the number of the line in which a byte lies, counted from 1.

        It is the one at an offset in the file, or behind the text that comes ``then``.
        """
        decoder = codecs.getincrementaldecoder(self.encoding)("replace")
        with_feeds = io.IncrementalNewlineDecoder(decoder, translate=True)
        lines = 1 + len(LINE_END.findall(then))
        with self._opened() as file:
            file.seek(self.first)
            while raw := file.read(min(2**24, offset - file.tell())):
                lines += with_feeds.decode(raw).count("\n")
        return lines + with_feeds.decode(b"", final=True).count("\n")

    def _in_utf8(self, start: int, size: int) -> Iterator[bytes]:
        """Pieces of the file, and nothing at its end."""
        decoder = codecs.getincrementaldecoder(self.encoding)()
        done, more = start, b"x"
        with self._opened() as file:
            file.seek(start)
            while more:
                more = file.read(max(8, size))
                done += len(more)
                if done > source.IN_MEMORY_BYTES and isinstance(file, gzip.GzipFile):
                    raise DataError(
                        "A packed table must have at most "
                        f"{source.IN_MEMORY_BYTES / 2**20:,.0f} MB unpacked. {self.name} has more. "
                        "Unpack it first, for example with gunzip; then it is read a piece at a "
                        "time."
                    )
                if self.encoding == "utf-8":
                    yield more
                    continue
                try:
                    yield decoder.decode(more, final=not more).encode()
                except UnicodeError as error:
                    offset = done - len(more) + int(getattr(error, "start", 0))
                    raise WrongEncodingError(offset) from error

    def _length(self, raw: bytes, position: int) -> int:
        """Of a stretch in the file; raises where it is no text, or not in the encoding."""
        if b"\0" in raw:
            line = self.line_at(position, raw[: raw.index(b"\0")])
            raise DataError(
                f"A CSV table is text. {self.name} holds other bytes, a zero in line {line:,}. "
                f"{ADVICE}"
            )
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise WrongEncodingError(position + error.start) from error
        return len(raw) if self.encoding == "utf-8" else len(text.encode(self.encoding))

    def _require_closed(self, raw: bytes, position: int, separator: str) -> None:
        places = quotes(raw, separator)
        if len(places) % 2:
            line = self.line_at(position, raw[: places[-1]])
            raise DataError(
                f"A quote that opens a field must be closed. The one in line {line:,} of "
                f"{self.name} is not. Close it, or write it twice within quotes."
            )

    def _require_end(self, raw: bytes, position: int) -> None:
        if len(raw) > LONGEST_ROW:
            raise DataError(
                f"A row of a table must end. The one in line {self.line_at(position):,} of "
                f"{self.name} goes on for {LONGEST_ROW / 2**20:,.0f} MB. Check whether a quote is "
                "not closed."
            )

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO | gzip.GzipFile]:
        """The file, unpacked while it is read."""
        place = self._place
        with io.BytesIO(place) if isinstance(place, bytes) else place.open("rb") as file:
            start = file.read(2)
            file.seek(0)
            if start != PACKED:
                yield file
                return
            try:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield unpacked
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise DataError(
                    f"A packed table must be whole. {self.name} is not ({error}). Copy it again."
                ) from error


def check_separator(separator: str | None) -> None:
    """Raise ConfigError for what cannot stand between fields; None is found out."""
    if separator is None:
        return
    if len(separator) != 1 or not separator.isascii() or separator in '"\r\n':
        raise ConfigError(
            f"A separator is one character, or tab, of ASCII, and no quote. Got {separator!r}. "
            "Change it, for example to ;"
        )


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


def last_end(raw: bytes, separator: str, *, is_last: bool) -> int:
    """Where the last row that is there whole ends; 0 if none does.

    Empty lines behind it are left for later, as it depends on what follows whether they are rows.
    """
    if is_last:
        end = len(raw)
    elif b'"' not in raw:
        # a carriage return at the very end may be half of a line end
        end = max(raw.rfind(b"\n"), raw.rfind(b"\r", 0, len(raw) - 1)) + 1
    else:
        ends = row_ends(raw, separator)
        ends = ends[(ends < len(raw)) | (raw[-1:] == b"\n")]
        end = int(ends[-1]) if len(ends) else 0
    body = len(raw[:end].rstrip(b"\r\n"))
    step = LINE_END.match(raw, body)
    return body if body == 0 or step is None else step.end()


def row_ends(raw: bytes, separator: str | None) -> NDArray[np.int64]:
    """Behind each line end that is not inside quotes."""
    units = np.frombuffer(raw, np.uint8)
    after_return = np.concatenate([[False], units[:-1] == ord("\r")])
    line_feed = units == ord("\n")
    ends = np.flatnonzero(line_feed | (units == ord("\r")))
    # "\r\n" is one end, behind its second half
    halves = np.flatnonzero(line_feed & after_return) - 1
    ends = np.setdiff1d(ends, halves, assume_unique=True)
    outside = np.searchsorted(quotes(raw, separator), ends) % 2 == 0
    return np.asarray(ends[outside] + 1)


def quotes(raw: bytes, separator: str | None) -> NDArray[np.int64]:
    """Where quotes open and close, in turn; a quote opens at the start of a field alone."""
    units = np.frombuffer(raw, np.uint8)
    there = np.flatnonzero(units == ord('"'))
    before = ((separator or SEPARATORS) + "\r\n").encode()
    begins = (there == 0) | np.isin(units[there - 1], np.frombuffer(before, np.uint8))
    doubled = np.concatenate([[False], np.diff(there) == 1])
    if (begins | doubled)[0::2].all():
        return np.asarray(there)
    # others stand within a field, as in 5" pipe; two in a row within quotes stand for one
    quoted = rb'(?:\A|(?<=[%b]))"[^"]*(?:""[^"]*)*("?)' % re.escape(before)
    pairs = [(each.start(), each.end() - 1, each[1]) for each in re.finditer(quoted, raw)]
    places = [place for opens, closes, end in pairs for place in [opens, closes][: 1 + len(end)]]
    return np.array(places, dtype=np.int64)


def fields_of(record: str, separator: str) -> list[str]:
    """The fields of a row, without their quotes."""
    end = re.escape(separator)
    each = rf'(?:"([^"]*(?:""[^"]*)*)"?)?([^{end}]*){end}'
    fields = re.findall(each, record + separator)
    return [quoted.replace('""', '"') + rest for quoted, rest in fields]
