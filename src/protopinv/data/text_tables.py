"""Tables in text as people have them: commas, semicolons or tabs, any encoding, packed or not."""

import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from protopinv.errors import DataError

SEPARATORS = ",;\t|"
# Tried in turn, unless one is named; the last reads anything.
ENCODINGS = ("utf-8-sig", "cp1252", "latin-1")
# Lines that tell how a table is written.
LINES = 100
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
DECIMAL_POINT = re.compile(r"[+-]?\d+\.\d+")
LEADING_ZERO = re.compile(r"0\d+")
ADVICE = "Name them with --separator and --encoding, or correct the file."


@dataclass(frozen=True)
class Written:
    """How a table in text is written, as far as a user says; None is found out."""

    separator: str | None = None
    encoding: str | None = None


def read_text_table(
    raw: bytes, name: str, polars: Any, written: Written, as_text: Iterable[str] = ()
) -> tuple[Any, list[str]]:
    """A table, and what should be said of it aloud; columns ``as_text`` stay as they are."""
    text, encoding = _decoded(_unpacked(raw, name), name, written.encoding)
    said = [] if encoding in ("utf-8-sig", written.encoding) else [f"read {name} as {encoding}"]
    head = list(io.StringIO(text[: 2**20], newline=""))[:LINES]
    if not head or not text.strip():
        raise DataError(
            f"A table must have a line of column names and some rows. {name} is empty. Check the "
            "file."
        )
    separator = written.separator or _separator(head[0])
    comma = separator != "," and _has_decimal_commas(head[1:], separator)
    names = next(csv.reader([head[0]], delimiter=separator))
    _require_names(names, name)
    of_text = {*as_text, *_with_leading_zeros(head[1:], names, separator)}
    options: dict[str, Any] = {
        "separator": separator,
        "infer_schema_length": None,
        "decimal_comma": comma,
        "schema_overrides": {name: polars.String for name in names if name in of_text},
    }
    try:
        table = polars.read_csv(io.BytesIO(text.encode()), **options)
    except (polars.exceptions.PolarsError, ValueError) as error:
        raise _unreadable(text, name, separator, error) from error
    if comma:
        said.append(f"read {name} with commas in its decimals")
        column = polars.col(polars.String)
        is_number = column.str.contains(rf"^\s*{DECIMAL_COMMA.pattern}\s*$")
        point = column.str.replace(",", ".", literal=True)
        table = table.with_columns(polars.when(is_number).then(point).otherwise(column).name.keep())
    return table, said


def _unpacked(raw: bytes, name: str) -> bytes:
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"A packed table must be whole. {name} is not ({error}). Copy it again."
        ) from error


def _decoded(raw: bytes, name: str, encoding: str | None) -> tuple[str, str]:
    if b"\x00" in raw[:4096] and encoding is None:
        encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else None
        if encoding is None:
            raise DataError(f"A CSV table is text. {name} holds other bytes. {ADVICE}")
    for each in ENCODINGS if encoding is None else (encoding,):
        try:
            return raw.decode(each), each
        except LookupError:
            raise DataError(
                f"An encoding must be known to Python. Got --encoding {each}. Use for example "
                "utf-8, cp1252 or utf-16."
            ) from None
        except UnicodeDecodeError as error:
            if encoding is not None:
                line = raw[: error.start].count(b"\n") + 1
                raise DataError(
                    f"A table must be written in its encoding. Line {line} of {name} is not in "
                    f"{encoding}. Name another with --encoding."
                ) from None
    raise AssertionError("latin-1 reads anything")


def _separator(line: str) -> str:
    """What stands most often between the names of the columns."""
    bare = re.sub(r'"[^"]*"', "", line)
    return max(SEPARATORS, key=bare.count) if any(s in bare for s in SEPARATORS) else ","


def _has_decimal_commas(lines: Iterable[str], separator: str) -> bool:
    fields = [field.strip() for line in lines for field in line.strip().split(separator)]
    commas = sum(bool(DECIMAL_COMMA.fullmatch(field)) for field in fields)
    return commas > sum(bool(DECIMAL_POINT.fullmatch(field)) for field in fields)


def _with_leading_zeros(lines: Iterable[str], names: list[str], separator: str) -> set[str]:
    """Columns with something like 007, which is a name and no number."""
    rows = csv.reader(lines, delimiter=separator)
    return {
        name
        for row in rows
        for name, field in zip(names, row, strict=False)
        if LEADING_ZERO.fullmatch(field.strip())
    }


def _require_names(names: list[str], name: str) -> None:
    twice = [column for column, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"Every column needs a name of its own. {name} has {twice[0]!r} twice in its first "
            "line. Rename one of them."
        )


def _unreadable(text: str, name: str, separator: str, error: Exception) -> DataError:
    """Names the first line that has too many fields, if that is what is wrong."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        wanted = len(next(rows))
        for row in rows:
            if len(row) > wanted:
                return DataError(
                    f"Every line of a table must have as many fields as the first. Line "
                    f"{rows.line_num} of {name} has {len(row)} between {separator!r}, the first "
                    f"has {wanted}. {ADVICE}"
                )
    except csv.Error as other:
        error = other
    reason = str(error).strip().splitlines()[0]
    return DataError(
        f"A table in text must have lines of fields. {name} cannot be read so, with {separator!r} "
        f"between them ({reason}). {ADVICE}"
    )
