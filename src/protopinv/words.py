"""What words in a table mean: gaps, numbers, and names that are nearly right."""

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

# Words for "nothing is known", in lower case.
GAPS = frozenset({"", "?", "-", "--", ".", "na", "n/a", "#n/a", "nan", "null", "none", "missing"})
# A number as people write it; "007" is a name, not a number.
NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
# Numbers are also written in these ways; each is shown by an example. Groups of digits may be left
# out, and where a sign could group digits or begin decimals, it groups them: the first form leads.
PLAIN = "1234.56"
_GROUPED = "[1-9][0-9]{0,2}(?:%s[0-9]{3})+"
_INDIAN = "[1-9][0-9]{0,2}(?:,[0-9]{2,3})*,[0-9]{3}"
_DECIMAL = "(?P<whole>0|[1-9][0-9]*|%s|)(?:%s(?P<fraction>[0-9]*))?(?:[eE](?P<power>[+-]?[0-9]+))?"
_MINUTES = "(?P<hours>[0-9]+):(?P<minutes>[0-5][0-9]%s)"
THOUSANDS = "1,234.56"
STYLES = {
    THOUSANDS: _DECIMAL % (_INDIAN, r"\."),
    "1.234,56": _DECIMAL % (_GROUPED % r"\.", ","),
    "1 234,56": _DECIMAL % (_GROUPED % r"\s", ","),
    "1 234.56": _DECIMAL % (_GROUPED % r"\s", r"\."),
    "1'234.56": _DECIMAL % (_GROUPED % r"['\u2019]", r"\."),
    # a part of 60 is one of the first unit: 20:30 is 20.5 hours, or minutes
    "20:51": _MINUTES % r"(?:\.[0-9]+)?",
    "20:51:36": _MINUTES % "" + r":(?P<seconds>[0-5][0-9](?:\.[0-9]+)?)",
}
_CURRENCY = r"$\u00a2-\u00a5\u0e3f\u20a0-\u20cf"
_CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|KRW|RUB|TRY"
_PREFIX = rf"(?P<prefix>[A-Z]{{0,3}}[{_CURRENCY}]|{_CODES}|Rs\.?)"
# A unit begins with a letter or a sign, and has no digit that begins a word.
_FIRST, _NEXT = rf"(?:[%‰°″{_CURRENCY}]|[^\W\d_])", r"(?:[^\s\d()]|(?<=\S)\d|\s(?=[^\W\d]))"
_SUFFIX = rf"(?P<suffix>{_FIRST}{_NEXT}{{,11}})"
_CORE = r"(?P<core>[0-9.](?:[0-9.,'\u2019:\s]*[0-9.])?(?:[eE][+-]?[0-9]+)?)"
# A sign or a bracket of a negative number stands before the currency or behind it.
_SIGN, _END = r"[+\u2212(-]?", r"\)?"
_WRITTEN = re.compile(rf"{_SIGN}{_PREFIX}?\s*{_SIGN}{_CORE}\s*{_SUFFIX}?{_END}")
_FORM = re.compile(
    rf"{_PREFIX}?\s?(?P<style>{'|'.join(map(re.escape, sorted(STYLES, key=len, reverse=True)))})"
    rf"\s?{_SUFFIX}?"
)
MOST_SIDES = 4
# Text is numbers or dates if nearly all of it can be read as such.
NEARLY_ALL = 0.95
# It looks like numbers if so much of it does.
MANY = 0.5
# So many different whole numbers at most are taken for classes.
MOST_WHOLE_CLASSES = 20


def is_gap(text: str | None) -> bool:
    """Whether a text says that nothing is known."""
    return text is None or text.strip().lower() in GAPS


def number_of(text: str, form: str = PLAIN) -> float:
    """The number that is written there in a form, or NaN; plain ones may be true and false."""
    text = text.strip()
    if form != PLAIN:
        return _number_in(text, form)
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    number = float(text) if NUMBER.fullmatch(text) else math.nan
    return number if math.isfinite(number) else math.nan


def pattern_of(form: str) -> str:
    """A regular expression for numbers of a form; raises ValueError for what is no form."""
    parts = _FORM.fullmatch(form)
    if parts is None:
        raise ValueError(f"{form!r:.40} is no form of numbers")
    prefix, suffix = (re.escape(parts[side] or "") for side in ("prefix", "suffix"))
    sign, style = rf"(?P<sign>{_SIGN})", STYLES[parts["style"]]
    return rf"{sign}{prefix}\s*{sign.replace('sign', 'then')}{style}\s*{suffix}(?P<end>{_END})"


@cache
def _reader_of(form: str) -> re.Pattern[str]:
    return re.compile(pattern_of(form))


def _number_in(text: str, form: str) -> float:
    """The number that is written there in a form that is not plain, or NaN."""
    match = _reader_of(form).fullmatch(text)
    parts = {} if match is None else match.groupdict()
    sign = parts.get("sign", "") + parts.get("then", "")
    if match is None or len(sign) > 1 or (sign == "(") != (parts["end"] == ")"):
        return math.nan
    if "hours" in parts:
        minutes = float(parts["minutes"]) + float(parts.get("seconds", 0)) / 60
        number = float(parts["hours"]) + minutes / 60
    else:
        digits = "".join(sign for sign in parts["whole"] if sign.isdecimal())
        if not (digits or parts["fraction"]):
            return math.nan
        number = float(f"0{digits}.{parts['fraction'] or 0}e{parts['power'] or 0}")
    number = number if sign in ("", "+") else -number
    return number if math.isfinite(number) else math.nan


def _sides_of(text: str) -> tuple[str, str] | None:
    """The currency before a number and what follows it, such as a unit; None for other text."""
    parts = _WRITTEN.fullmatch(text.strip())
    return None if parts is None else (parts["prefix"] or "", parts["suffix"] or "")


def forms_of(text: str) -> list[str]:
    """All forms in which a text is a number, plain first."""
    forms, sides = [] if math.isnan(number_of(text)) else [PLAIN], _sides_of(text)
    if sides is None:
        return forms
    before, after = sides[0] + " " * sides[0][-1:].isalpha(), " " * bool(sides[1]) + sides[1]
    written = (f"{before}{style}{after}" for style in STYLES)
    return [*forms, *(form for form in written if not math.isnan(number_of(text, form)))]


def looks_like_number(text: str) -> bool:
    """Whether a text is a number in some form, with a currency or a unit of one word at most."""
    sides = _sides_of(text)
    return sides is not None and " " not in sides[1] and bool(forms_of(text))


def form_counts(texts: Mapping[str, int]) -> Counter[str]:
    """How many texts each form reads; ``texts`` says how often each is there.

    Forms of the commonest currencies and units are counted alone.
    """
    sides = {text: _sides_of(text) for text in texts}
    masses = Counter[tuple[str, str] | None]()
    for text, n in texts.items():
        masses[sides[text]] += n
    common, counts = dict(masses.most_common(MOST_SIDES)), Counter[str]()
    for text, n in texts.items():
        if sides[text] in common or not math.isnan(number_of(text)):
            counts.update(dict.fromkeys(forms_of(text), n))
    return counts


def best_form(counts: Mapping[str, int]) -> str:
    """The form that reads most; among equals plain numbers, and then thousands, lead."""
    order = [PLAIN, *STYLES]
    ranks = {form: order.index(style_of(form)) for form in counts}
    return min(counts, key=lambda form: (-counts[form], ranks[form], form), default=PLAIN)


def style_of(form: str) -> str:
    """A form without its currency and unit."""
    parts = _FORM.fullmatch(form)
    return PLAIN if form == PLAIN or parts is None else parts["style"]


def has_two_readings(counts: Mapping[str, int], form: str) -> bool:
    """Whether commas that group digits in a form could as well begin decimals, in all numbers.

    Numbers without any comma have more readings than these two.
    """
    prefix, _, suffix = form.partition(THOUSANDS)
    decimals, spaced = (f"{prefix}{style}{suffix}" for style in ("1.234,56", "1'234.56"))
    has_commas = counts.get(spaced, 0) < counts[form]
    return form != prefix and has_commas and counts.get(decimals) == counts[form]


def said_of(form: str) -> str:
    """How numbers are written, in a few words; nothing of plain ones."""
    if form == PLAIN:
        return ""
    is_clock = ":" in style_of(form)
    return f", written as {form}" + ", in units of the first part" * is_clock


def hint(name: str, there: Iterable[str]) -> str:
    """A name that is there and looks like it, or what to check."""
    close = difflib.get_close_matches(name, list(there), n=1)
    return f"Did you mean {close[0]!r}?" if close else "Check the spelling."
