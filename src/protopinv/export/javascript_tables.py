"""Columns of a table in JavaScript: from values as people have them to numbers."""

import re
from typing import Any

from protopinv.export.encode import Encode
from protopinv.export.text import js_floats, js_value
from protopinv.tables import Category, Column, Date
from protopinv.tables.parts import Curve, Filled, Flag, Look, Part, Wave, Week
from protopinv.tables.values import ISO
from protopinv.words import GAPS

# What strptime's directives are, as JavaScript reads them.
FORMS = {
    "%Y": r"(?<Y>\d{4})",
    "%m": r"(?<m>\d\d?)",
    "%b": r"(?<b>[a-z]{3})",
    "%d": r"(?<d>\d\d?)",
    "%H": r"(?<H>\d\d?)",
    "%I": r"(?<I>\d\d?)",
    "%M": r"(?<M>\d\d?)",
    "%S": r"(?<S>\d\d?)",
    "%p": r"(?<p>[ap]m)",
}
ISO_FORM = (
    r"(?<Y>\d{4})-(?<m>\d\d)-(?<d>\d\d)"
    r"(?:[T ](?<H>\d\d)(?::(?<M>\d\d)(?::(?<S>\d\d(?:\.\d+)?))?)?(?:Z|[+-]\d\d:?\d\d)?)?"
)

CODE = r"""
const gaps = new Set(GAPS);
const number = /^[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i;
const months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

// A value of a column as a number: NaN for a gap, -1 for a category that is not known.
function code(value, { kind, places, origin, form }) {
  if (value === null || value === undefined || Number.isNaN(value)) return NaN;
  if (value === Infinity || value === -Infinity) throw new RangeError("Numbers must be finite.");
  const text = String(value).trim();
  if (typeof value === "string" && gaps.has(text.toLowerCase())) return NaN;
  if (kind === "category") return places.has(text) ? places.get(text) : -1;
  if (typeof value === "number") return kind === "date" ? value - origin : value;
  if (kind === "number") {
    if (/^(true|false)$/i.test(text)) return text.toLowerCase() === "true" ? 1 : 0;
    return number.test(text) ? Number(text) : NaN;
  }
  if (value instanceof Date) return value.getTime() / 864e5 - origin;
  const found = new RegExp(`^${form}$`, "i").exec(text);
  if (!found) return NaN;
  const { Y, m, b, d, H, I, p, M = 0, S = 0 } = found.groups;
  const month = b ? months.indexOf(b.toLowerCase()) : m - 1;
  const start = new Date(Date.UTC(Y, month, d));
  if (start.getUTCFullYear() !== +Y || start.getUTCMonth() !== month || month < 0) return NaN;
  const hour = I ? (I % 12) + (/p/i.test(p) ? 12 : 0) : H || 0;
  if (hour > 23 || M > 59 || S >= 60 || I > 12) return NaN;
  return start.getTime() / 864e5 - origin + (+hour + (+M + S / 60) / 60) / 24;
}

const filled = (x, middle) => (Number.isNaN(x) ? middle : x);
const wrapped = (x, n) => x - n * Math.floor(x / n);

const parts = {
  filled: ({ middle, centre, unit }) => (x) => [(filled(x, middle) - centre) / unit],
  flag: () => (x) => [Number.isNaN(x) ? 1 : 0],
  curve: ({ levels, averages, n }) => (x) => {
    const row = (i) => averages.subarray(i * n, (i + 1) * n);
    if (Number.isNaN(x)) return row(levels.length);
    let i = 0;
    while (i < levels.length && levels[i] <= x) i++;
    if (i === 0) return row(0);
    if (i === levels.length) return row(i - 1);
    const share = (x - levels[i - 1]) / (levels[i] - levels[i - 1]);
    const above = row(i);
    return Array.from(row(i - 1), (a, k) => a + share * (above[k] - a));
  },
  look: ({ vectors, n }) => (x) => {
    const known = vectors.length / n - 2;
    const place = Number.isNaN(x) ? known + 1 : x >= 0 && x < known ? x : known;
    return vectors.subarray(place * n, (place + 1) * n);
  },
  wave: ({ middle, period, phase }) => (x) => {
    const angle = 2 * Math.PI * wrapped(phase + filled(x, middle) / period, 1);
    return [Math.sin(angle), Math.cos(angle)];
  },
  week: ({ middle, first }) => (x) => {
    const day = wrapped(Math.floor(filled(x, middle)) + first, 7);
    return Array.from({ length: 7 }, (_, i) => (i === day ? 1 : 0));
  },
};

steps.encode = ({ parts: given }) => {
  const ready = given.map(({ type, column, ...rest }) => [column, parts[type](rest)]);
  return (x) => Float64Array.from(ready.flatMap(([column, part]) => Array.from(part(x[column]))));
};

// Rows are objects with the names of columns, or arrays in the order of `columns`.
function codes(rows) {
  if (!Array.isArray(rows)) throw new TypeError("Rows must be an array. Wrap a single row.");
  return rows.map((row, i) => {
    if (typeof row !== "object" || row === null)
      throw new TypeError(`Rows must be objects or arrays. Row ${i} is ${row}.`);
    if (Array.isArray(row) && row.length !== columns.length)
      throw new RangeError(`Rows must have ${columns.length} values. Row ${i} has ${row.length}.`);
    return columns.map((column, k) => {
      if (Array.isArray(row)) return code(row[k], column);
      if (!Object.hasOwn(row, column.name))
        throw new RangeError(`Rows must have all columns. Row ${i} has no ${column.name}.`);
      return code(row[column.name], column);
    });
  });
}
"""


def table_code(encode: Encode) -> str:
    """What reads the rows of a table, for a module that has such a step."""
    columns = ",\n".join(
        f"  {js_column(column, origin)}"
        for column, origin in zip(encode.table.columns, encode.origins.tolist(), strict=True)
    )
    return (
        "\n/** What each column is, and a usual value of it. */\n"
        f"export const columns = [\n{columns},\n];\n"
        "for (const column of columns)\n"
        "  column.places = new Map((column.values || []).map((value, i) => [value, i]));\n"
        + CODE.replace("GAPS", js_value(sorted(GAPS)))
    )


def js_column(column: Column, origin: float) -> str:
    """What a page must know of a column: its kind, its values, and a usual one."""
    told: dict[str, Any] = {"name": column.name, "kind": column.kind, "typical": column.typical}
    if isinstance(column, Category):
        told |= {"values": list(column.values), "typical": column.values[column.common]}
    else:
        told |= {"low": column.low, "high": column.high}
    if isinstance(column, Date):
        told |= {"origin": origin, "form": js_form(column.form)}
    return js_value(told)


def js_form(form: str) -> str:
    """A regular expression for dates of a form, a named group for each part."""
    if form == ISO:
        return ISO_FORM
    parts = re.split(r"(%\w)", form)
    return "".join(FORMS[part] if part in FORMS else re.escape(part) for part in parts)


def table_step(encode: Encode) -> str:
    """The step that makes numbers of codes."""
    each = ",\n      ".join(_part(column, part) for column, part in encode.parts)
    return f'{{ type: "encode", parts: [\n      {each},\n    ] }}'


def _part(column: int, part: Part) -> str:
    kind, given = _written(part)
    inside = "".join(
        f", {name}: {value if isinstance(value, str) else js_value(value)}"
        for name, value in given.items()
    )
    return f'{{ type: "{kind}", column: {column}{inside} }}'


def _written(part: Part) -> tuple[str, dict[str, float | str]]:
    """The name of a part, and its numbers."""
    if isinstance(part, Filled):
        return "filled", {"middle": part.middle, "centre": part.centre, "unit": part.unit}
    if isinstance(part, Flag):
        return "flag", {}
    if isinstance(part, Curve):
        levels, averages = js_floats(part.levels, wide=True), js_floats(part.averages)
        return "curve", {"n": part.n_outputs, "levels": levels, "averages": averages}
    if isinstance(part, Look):
        return "look", {"n": part.n_outputs, "vectors": js_floats(part.vectors)}
    if isinstance(part, Wave):
        return "wave", {"middle": part.middle, "period": part.period, "phase": part.phase}
    if isinstance(part, Week):
        return "week", {"middle": part.middle, "first": part.first}
    raise AssertionError("a part that is not known")
