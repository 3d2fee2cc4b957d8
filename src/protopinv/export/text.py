"""Text for generated files: templates, numbers, and escaping of names that users gave."""

import base64
import html
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protopinv.plain import visible

if TYPE_CHECKING:
    import jinja2


def rendered(package: str, file: str, **values: Any) -> str:
    """The template of this name, in the assets of a package, with values in it."""
    return _templates(package).get_template(file).render(**values)


@cache
def _templates(package: str) -> "jinja2.Environment":
    """Templates of a package; what they are given is escaped in HTML, and nowhere else."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "assets"),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = (c_string, c_numbers, comment, markdown_text)
    environment.filters |= {function.__name__: function for function in filters}
    return environment


def c_string(text: str) -> str:
    """A C string literal of the UTF-8 bytes of a text; every byte that is not plain is octal."""
    plain = {*range(0x20, 0x7F)} - {ord(c) for c in '"\\?'}
    parts = (chr(b) if b in plain else f"\\{b:03o}" for b in text.encode())
    return '"' + "".join(parts) + '"'


def js_value(value: Any) -> str:
    """A JSON value that is safe inside a script inside a page."""
    text = json.dumps(value, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def js_array(numbers: NDArray[Any], *, wide: bool = False, shorter: bool = False) -> str:
    """Numbers in base64, as a module reads them: little-endian, like every machine that matters.

    int8 as it is, others as float32: ``wide`` for float64, and ``shorter`` without the last byte,
    five digits, rounded.
    """
    kind, reader = ("<f8", "doubles") if wide else ("<f4", "shorter" if shorter else "floats")
    if numbers.dtype == np.int8:
        kind, reader = "i1", "whole"
    raw = np.ascontiguousarray(numbers, dtype=kind)
    packed = raw.tobytes()
    if shorter:
        rounded = raw.view("<u4") + np.uint32(0x80)  # of finite weights, none near the largest
        packed = rounded.reshape(-1, 1).view(np.uint8)[:, 1:].tobytes()
    return f'{reader}("{base64.b64encode(packed).decode()}", {list(raw.shape)})'


def comment(text: str) -> str:
    """A text for a comment in C or JavaScript: one line of plain ASCII that cannot end it."""
    flat = json.dumps(text, ensure_ascii=True)[1:-1]
    return flat.replace("*", "\\u002a").replace("/", "\\u002f").replace("<", "\\u003c")


def identifier(name: str) -> str:
    """A name that C takes, made from that of a file."""
    plain = re.sub(r"[^a-zA-Z0-9_]", "_", name, flags=re.ASCII)
    return plain if plain and plain[0].isalpha() else f"model_{plain}"


def c_numbers(numbers: NDArray[Any]) -> str:
    """The inside of an array of C, in lines that can be read."""
    flat = np.asarray(numbers).reshape(-1)
    if flat.dtype.kind == "f":
        texts = [_c_float(number) for number in flat.astype(np.float32)]
    else:
        texts = [str(number) for number in flat.tolist()]
    lines, line = [], "   "
    for text in texts:
        if len(line) + len(text) > 98:
            lines.append(line)
            line = "   "
        line += f" {text},"
    return "\n".join([*lines, line.removesuffix(",")])


def _c_float(number: np.float32) -> str:
    """The shortest decimal that is this number and no other."""
    if np.isnan(number):
        return "NAN"
    text = (
        np.format_float_positional(number, unique=True, trim="0")
        if (number == 0 or 1e-4 <= abs(number) < 1e6)
        else np.format_float_scientific(number, unique=True, trim="0")
    )
    return f"{text}f"


def markdown_text(text: str) -> str:
    """A text that Markdown, HTML and terminals show as it is, on one line."""
    flat = html.escape(visible(text), quote=False)
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|~>$:])", r"\\\1", flat)
