"""Text between its rows and its fields: a quote opens at the start of a field alone."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# What may stand between fields, unless a user names another.
SEPARATORS = ",;\t|"
LINE_END = re.compile(rb"\r\n|\r|\n")


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
    if body == 0:
        return 0
    step = LINE_END.match(raw, body)
    return body if step is None else step.end()


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
    starts = np.frombuffer(((separator or SEPARATORS) + "\r\n").encode(), np.uint8)
    begins = (there == 0) | np.isin(units[there - 1], starts)
    doubled = np.concatenate([[False], np.diff(there) == 1])
    if (begins | doubled)[0::2].all():
        return np.asarray(there)
    return np.array(_in_turn(there.tolist(), begins.tolist()), dtype=np.int64)


def _in_turn(there: Sequence[int], begins: Sequence[bool]) -> list[int]:
    """Those that open and close, where others stand within a field, as in 5" pipe."""
    pairs: list[int] = []
    i = 0
    while i < len(there):
        if begins[i]:
            close = i + 1
            while close + 1 < len(there) and there[close + 1] == there[close] + 1:
                close += 2  # two in a row stand for one
            pairs += [there[i], *there[close : close + 1]]
            i = close
        i += 1
    return pairs


def fields_of(record: str, separator: str) -> list[str]:
    """The fields of a row, without their quotes."""
    between = re.escape(separator)
    each = re.compile(rf'(?:"([^"]*(?:""[^"]*)*)"?)?([^{between}]*)({between}|\Z)')
    fields, place = [], 0
    while True:
        match = each.match(record, place)
        if match is None:
            raise AssertionError("any text is fields")
        fields.append((match[1] or "").replace('""', '"') + match[2])
        if not match[3]:
            return fields
        place = match.end()
