"""Names from strangers stay names, whatever the language they are written in."""

import base64
import html
import json
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.plain import visible


def c_string(text: str) -> str:
    """A C string literal of the UTF-8 bytes of a text; every byte that is not plain is octal."""
    plain = {*range(0x20, 0x7F)} - {ord(c) for c in '"\\?'}
    parts = (chr(b) if b in plain else f"\\{b:03o}" for b in text.encode())
    return '"' + "".join(parts) + '"'


def js_value(value: Any) -> str:
    """A JSON value that is safe inside a script inside a page."""
    text = json.dumps(value, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def js_floats(numbers: NDArray[Any], *, wide: bool = False, shorter: bool = False) -> str:
    """Numbers in base64, as a module reads them: little-endian, like every machine that matters.

    ``wide`` for float64; ``shorter`` for float32 without its last byte, five digits, rounded.
    """
    raw = np.ascontiguousarray(numbers, dtype="<f8" if wide else "<f4")
    packed = raw.tobytes()
    if shorter:
        rounded = raw.view("<u4") + np.uint32(0x80)  # of finite weights, none near the largest
        packed = rounded.reshape(-1, 1).view(np.uint8)[:, 1:].tobytes()
    reader = "doubles" if wide else "shorter" if shorter else "floats"
    return f'{reader}("{base64.b64encode(packed).decode()}")'


def comment(text: str) -> str:
    """A text for a comment in C or JavaScript: one line of plain ASCII that cannot end it."""
    flat = json.dumps(text, ensure_ascii=True)[1:-1]
    return flat.replace("*", "\\u002a").replace("/", "\\u002f").replace("<", "\\u003c")


def identifier(name: str) -> str:
    """A name that C takes, made from that of a file."""
    found = re.sub(r"[^a-zA-Z0-9_]", "_", name, flags=re.ASCII)
    if not found or not found[0].isalpha():
        found = f"model_{found}"
    return found


def c_numbers(numbers: NDArray[Any]) -> str:
    """The inside of an array of C, in lines that can be read."""
    flat = numbers.reshape(-1)
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
