"""A frame as it is to rows of numbers: understood once, and then the same for every frame."""

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import ConfigError, DataError, UnreadableWarning
from protopinv.plain import (
    BOOL,
    COUNT,
    NUMBER,
    OBJECT,
    TEXT,
    TEXTS,
    check,
    list_of,
    strict_json,
)
from protopinv.tables.category import Category
from protopinv.tables.columns import Date, LeftOut, Number
from protopinv.tables.text import Text
from protopinv.tables.values import Numbers, Seen, Texts, Values, values_of
from protopinv.words import PLAIN, hint, is_gap, said_of

Column = Number | Category | Date | Text
# The kinds of columns by their names, in the order in which they are tried.
KINDS: dict[str, type[Column]] = {kind.kind: kind for kind in (Number, Date, Text, Category)}
# What a user may say of a column.
CHOICES = ("number", "category", "date", "drop")

Arrays = dict[str, NDArray[Any]]
# Texts of categories may be long and many, so they are bytes of JSON beside the arrays.
VALUES = "values"
# What fields of columns must be, by their types.
RULES = {str: TEXT, float: NUMBER, bool: BOOL, int: COUNT, tuple[str, ...]: TEXTS}
OBJECTS = list_of(OBJECT, "objects")


@dataclass(frozen=True, eq=False)
class Table:
    """The columns that a network sees something of, and those it does not.

    ``notes`` are sentences about values that could not be taken as they are, ``names`` those of all
    columns in training, in their order.
    """

    columns: tuple[Column, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Of the numbers that a row becomes."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def is_plain(self) -> bool:
        """Whether every column is a number that the network sees as it is, and written plainly."""
        return all(
            isinstance(column, Number) and len(column.names) == 1 and column.form == PLAIN
            for column in self.columns
        )

    @property
    def are_ngrams(self) -> tuple[bool, ...]:
        """For each number that a row becomes, whether it stands for n-grams of text."""
        marks: list[bool] = []
        for column in self.columns:
            n = len(column.names) if isinstance(column, Text) else 0
            n = column.n_ngrams if isinstance(column, Category) else n
            marks += [place < n for place in range(len(column.names))]
        return tuple(marks)

    @property
    def has_ngrams(self) -> bool:
        """Whether any column is seen by the n-grams of its text."""
        return any(self.are_ngrams)

    @property
    def n_features(self) -> int:
        """Numbers that a row becomes."""
        return len(self.feature_names)

    def codes(self, columns: Mapping[str, Any], *, warn: bool = False) -> Numbers:
        """One number for each column and row; ``columns.py`` says what it stands for.

        With ``warn`` text that cannot be read is told of, once a column.
        """
        missing = [column.source for column in self.columns if column.source not in columns]
        if missing:
            raise DataError(
                f"Rows must have the columns of training. There is no {missing[0]!r}. "
                f"{hint(missing[0], columns)}"
            )
        codes = []
        read: dict[str, Values] = {}
        for column in self.columns:
            # columns that are made of one text share its n-grams
            if column.source not in read:
                read = {column.source: values_of(columns[column.source], column.source)}
            values = read[column.source]
            codes.append(column.code(values))
            if warn and values.texts is not None and not isinstance(column, Category | Text):
                _warn(column, values.texts, codes[-1])
        return np.column_stack(codes)

    def parts(self, codes: Numbers) -> list[Numbers]:
        """What each column gives for rows that were coded."""
        return [
            np.concatenate([part(code) for part in column.made_of()], axis=1)
            for column, code in zip(self.columns, codes.T, strict=True)
        ]

    def features(self, codes: Numbers) -> Numbers:
        """What the network sees of rows that were coded."""
        return np.concatenate(self.parts(codes), axis=1, dtype=np.float64)

    def with_columns(self, changed: Mapping[int, Column]) -> "Table":
        """The table with other columns under some numbers."""
        columns = (changed.get(number, column) for number, column in enumerate(self.columns))
        return replace(self, columns=tuple(columns))

    def grown(self, columns: Mapping[str, Any]) -> "Table":
        """With values that are there as often as a fit asks of them; without any, the same table.

        Codes of known values stay what they were, and so does all that a row of them becomes.
        """
        grown = {
            number: column.grown(values_of(columns[column.name], column.name))
            for number, column in enumerate(self.columns)
            if isinstance(column, Category)
        }
        same = all(column is self.columns[number] for number, column in grown.items())
        return self if same else self.with_columns(grown)

    def __str__(self) -> str:
        """A line for each column."""
        stories = {column.source: column.story for column in self.columns}
        stories |= {column.name: f"left out: {column.why}" for column in self.left_out}
        width = max(map(len, stories))
        lines = [f"{name:{width}}  {story}" for name, story in stories.items()]
        return "\n".join([*lines, *self.notes])


def _warn(column: Number | Date, texts: Texts, code: Numbers) -> None:
    gaps = np.flatnonzero(np.isnan(code)).tolist()
    bad = [texts[row] for row in gaps if not is_gap(texts[row])]
    kind = "dates" if isinstance(column, Date) else f"numbers{said_of(column.form)}"
    if bad:
        warnings.warn(
            UnreadableWarning(
                f"Column {column.name!r} must hold {kind}. {len(bad)} values such as "
                f"{bad[0]!r:.40} are none and count as gaps. Correct them, or leave them empty."
            ),
            stacklevel=6,
        )


def understood(
    pieces: Iterable[Mapping[str, Any]], names: Sequence[str], columns: Mapping[str, str] | None
) -> Table:
    """What each column is, from pieces of a frame that together are all of it.

    What is to be known of the targets is still missing: ``TargetEncoding`` adds it.
    """
    kinds = checked_kinds(columns, names)
    seen = {name: Seen(name, kinds.get(name)) for name in names}
    for piece in pieces:
        for name in names:
            if kinds.get(name) != "drop":
                seen[name].add(values_of(piece[name], name))
    recognised = [column for each in seen.values() for column in _recognised(each)]
    left_out = tuple(column for column in recognised if isinstance(column, LeftOut))
    used = tuple(column for column in recognised if not isinstance(column, LeftOut))
    if not used:
        why = "; ".join(f"{column.name!r}: {column.why}" for column in left_out[:5])
        raise DataError(
            f"Rows must have a column that says something. None of {len(names)} does ({why}). "
            "Check the table."
        )
    _refuse_doubles(used, left_out)
    notes = tuple(note for each in seen.values() for note in each.notes)
    return Table(used, left_out, notes, tuple(names))


def _refuse_doubles(used: Sequence[Column], left_out: Sequence[LeftOut]) -> None:
    """Raise DataError for a column that is called like one of those that a text becomes."""
    others = {column.name for column in (*used, *left_out) if not isinstance(column, Text)}
    for column in used:
        if isinstance(column, Text) and column.name in others:
            raise DataError(
                f"Columns must have names of their own. The text {column.of!r} becomes columns of "
                f"n-grams, and {column.name!r} is there already. Rename it."
            )


def _recognised(seen: Seen) -> Sequence[Column | LeftOut]:
    """What a column becomes; raises ConfigError where it is not what a user says."""
    if seen.asked == "drop":
        return [LeftOut(seen.name, "as you say")]
    if seen.gaps == seen.rows:
        return [LeftOut(seen.name, "it is empty")]
    for name, kind in KINDS.items():
        if seen.asked in (None, name):
            recognised = kind.recognised(seen)
            if recognised is not None:
                if kind is Category and seen.unread:
                    warnings.warn(UnreadableWarning(seen.unread), stacklevel=8)
                return recognised if isinstance(recognised, tuple) else [recognised]
    holds = f"text such as {next(iter(seen.counts))!r:.40}" if seen.counts else f"{seen.held}s"
    raise ConfigError(
        f"A column must hold what you say it does. columns says that {seen.name!r} is a "
        f"{seen.asked}, and it holds {holds}. Convert it, or leave it to be understood."
    )


def checked_kinds(columns: Mapping[str, str] | None, names: Sequence[str]) -> dict[str, str]:
    """What a user says of columns; raises ConfigError for what cannot be."""
    if columns is not None and not isinstance(columns, Mapping):
        raise ConfigError(
            f"columns says what each column is, by name. Got {columns!r:.40}. Give a dict, such as "
            '{"zip": "category"}.'
        )
    kinds = {str(name): kind for name, kind in (columns or {}).items()}
    for name, kind in kinds.items():
        if kind not in CHOICES:
            raise ConfigError(
                f"A column can be taken as {', '.join(CHOICES)}. columns says {kind!r:.40} of "
                f"{name!r}. Choose one of these."
            )
        if name not in names:
            raise ConfigError(
                f"columns must name columns that are there. There is no {name!r}. "
                f"{hint(name, names)}"
            )
    return kinds


def described(table: Table) -> dict[str, Any]:
    """All of a table but its arrays, as plain JSON values."""
    return {
        "columns": [
            {"kind": column.kind, **{name: getattr(column, name) for name in _plain(type(column))}}
            for column in table.columns
        ],
        "names": list(table.names),
        "left_out": [{"name": column.name, "why": column.why} for column in table.left_out],
        "notes": list(table.notes),
    }


def arrays(table: Table) -> Arrays:
    """Its arrays, by the number of the column and what they are, and all values of categories."""
    texts = [list(column.values) for column in table.columns if isinstance(column, Category)]
    return {VALUES: np.frombuffer(json.dumps(texts).encode(), dtype=np.uint8).copy()} | {
        f"{number}.{name}": np.asarray(array, dtype=np.float64)
        for number, column in enumerate(table.columns)
        for name in column.ARRAYS
        if (array := getattr(column, name)) is not None
    }


def _plain(kind: type[Column]) -> dict[str, Any]:
    """The fields of a kind of column that are plain values, and their types."""
    return {f.name: f.type for f in fields(kind) if f.name not in (*kind.ARRAYS, VALUES)}


def restored(description: Mapping[str, Any], stored: Mapping[str, NDArray[Any]]) -> Table:
    """What both came from; raises ValueError, KeyError or TypeError for what cannot be."""
    check(
        "", description, {"columns": OBJECTS, "left_out": OBJECTS, "names": TEXTS, "notes": TEXTS}
    )
    texts, unused = _values(stored[VALUES]), {**stored}
    del unused[VALUES]
    columns: list[Column] = []
    for number, each in enumerate(description["columns"]):
        kind = KINDS[each["kind"]]
        plain = {
            name: type_
            for name, type_ in _plain(kind).items()
            if name in each or name not in kind.NEWER
        }
        check(f"column {number}.", each, {name: RULES[type_] for name, type_ in plain.items()})
        parts: dict[str, Any] = {name: each[name] for name in plain}
        parts |= {name: tuple(value) for name, value in parts.items() if isinstance(value, list)}
        for name in kind.ARRAYS:
            array = unused.pop(f"{number}.{name}", None)
            if array is None:
                continue
            if array.dtype != np.float64 or not np.isfinite(array).all():
                raise ValueError("numbers of a table that are not finite")
            parts[name] = array
        if kind is Category:
            parts[VALUES] = next(texts, ())
        columns.append(kind(**parts))
        columns[-1].check()
    if not columns or unused or next(texts, None) is not None:
        raise ValueError("arrays or values of columns that are not there")
    for each in description["left_out"]:
        check("left_out.", each, {"name": TEXT, "why": TEXT})
    left_out = tuple(LeftOut(each["name"], each["why"]) for each in description["left_out"])
    names = [column.name for column in (*columns, *left_out)]
    sources = {column.source for column in columns}.union(column.name for column in left_out)
    if len(set(names)) != len(names) or sorted(description["names"]) != sorted(sources):
        raise ValueError("names of other columns, or a column that is there twice")
    return Table(tuple(columns), left_out, tuple(description["notes"]), tuple(description["names"]))


def _values(raw: NDArray[Any]) -> Iterator[tuple[str, ...]]:
    """The values of each category, in turn."""
    if raw.dtype != np.uint8 or raw.ndim != 1:
        raise ValueError("values of categories that are no texts")
    try:
        values = strict_json(raw.tobytes())
    except RecursionError as error:
        raise ValueError("values of categories that are no JSON") from error
    check("", {VALUES: values}, {VALUES: list_of(TEXTS, "lists of texts")})
    return map(tuple, values)
