"""Numbers as people write them: one form a column, stored with the model, said aloud."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

from protopinv.errors import DataError, UnreadableWarning
from protopinv.rows import frame_columns
from protopinv.tables import Category, Number, Table, arrays, described, restored, understood
from protopinv.words import PLAIN, STYLES, forms_of, number_of

EUROPE = str.maketrans(",.", ".,")
NUMBERS = np.random.default_rng(0).normal(0, 20_000, 300).round(2)
# What numbers of a column may look like, and what its form is called.
WRITTEN = {
    "$1,234.56": lambda x: f"${x:,.2f}" if x >= 0 else f"(${-x:,.2f})",
    "1.234,56 €": lambda x: f"{x:,.2f} €".translate(EUROPE),
    "1 234,56": lambda x: f"{x:,.2f}".translate(str.maketrans(",.", "\u202f,")),
    "1'234.56": lambda x: f"{x:,.2f}".replace(",", "'"),
    "CHF 1'234.56": lambda x: f"CHF {x:,.2f}".replace(",", "\u2019"),
    "1,234.56 %": lambda x: f"{x:.2f}%",
    "1,234.56 kg": lambda x: f"{x:.2f} kg",
    "1,234.56": lambda x: f"{x:,.2f}".replace("-", "\u2212"),
    PLAIN: lambda x: f"{x:.6e}",
}


def table_of(frame: pd.DataFrame, **kinds: str) -> Table:
    columns = frame_columns(frame)
    return understood([columns], list(columns), kinds)


@pytest.mark.parametrize("form", WRITTEN)
def test_a_column_is_read_in_the_form_that_reads_it(form: str) -> None:
    frame = pd.DataFrame({"a": [*map(WRITTEN[form], NUMBERS), None, "n/a"]})
    table = table_of(frame)
    (column,) = table.columns
    assert isinstance(column, Number)
    assert column.form == form
    codes = table.codes(frame_columns(frame))[:, 0]
    np.testing.assert_allclose(codes[:-2], NUMBERS)
    assert np.isnan(codes[-2:]).all()
    assert (f"number, written as {form}," in str(table)) == (form != PLAIN)
    again = restored(json.loads(json.dumps(described(table))), arrays(table))
    np.testing.assert_array_equal(again.codes(frame_columns(frame))[:, 0], codes)


@pytest.mark.parametrize(
    ("text", "form", "number"),
    [
        ("$-5", "$1,234.56", -5),
        ("-$5", "$1,234.56", -5),
        ("12,34,567.50", "1,234.56", 1_234_567.5),
        ("20:51", "20:51", 20.85),
        ("1:30:36", "20:51:36", 1.51),
        ("7,8 l/100 km", "1.234,56 l/100 km", 7.8),
        (".5 m2", "1,234.56 m2", 0.5),
        ("US$ 1,200", "US$1,234.56", 1_200),
        ("1e5", PLAIN, 1e5),
    ],
)
def test_forms_read_what_people_write(text: str, form: str, number: float) -> None:
    assert form in forms_of(text)
    assert number_of(text, form) == pytest.approx(number)


@pytest.mark.parametrize(
    "text",
    [
        "007",
        "12.5.2020",
        "192.168.0.1",
        "A12",
        "--3",
        "(3",
        "3)",
        "(-3)",
        "1,23",
        ".",
        "20:75",
        "5-10",
    ],
)
def test_what_is_no_number_is_none_in_any_form_that_groups(text: str) -> None:
    styles = [style for style in (PLAIN, *STYLES) if style not in ("1.234,56", "1 234,56")]
    assert np.isnan([number_of(text, style) for style in styles]).all()
    assert not set(forms_of(text)) & set(styles)


def test_a_comma_that_could_be_both_groups_thousands_and_that_is_said() -> None:
    column = [f"{k % 9 + 1},{100 + k}" for k in range(200)]
    table = table_of(pd.DataFrame({"a": column}))
    assert table.codes({"a": np.array(column)})[3, 0] == 4_103
    assert "commas could begin decimals" in str(table)
    # one decimal decides
    clear = table_of(pd.DataFrame({"a": [*column, "0,5"]}))
    assert clear.codes({"a": np.array(column)})[3, 0] == pytest.approx(4.103)
    for other in (clear, table_of(pd.DataFrame({"a": [f"{k} kg" for k in range(200)]}))):
        assert "commas could" not in str(other)


def test_what_looks_like_numbers_and_is_not_read_is_said_loudly() -> None:
    mixed = pd.DataFrame({"load": [f"{k} {('kg', 'lb')[k % 2]}" for k in range(200)]})
    heard = pytest.warns(UnreadableWarning, match=r"'load' looks like.*'0 kg' and '1 lb'")
    with heard, pytest.raises(DataError, match="None of 1 does"):
        table_of(mixed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert table_of(mixed, load="number").columns[0].form == "1,234.56 kg"
        assert isinstance(table_of(mixed, load="category").columns[0], Category)
        for quiet in (
            [f"{k % 40:05}" for k in range(200)],
            [f"street {k % 40}" for k in range(200)],
            [f"{k % 40} Main Road" for k in range(200)]
            + [f"{k % 40} Mill Road" for k in range(200)],
        ):
            assert isinstance(table_of(pd.DataFrame({"a": quiet})).columns[0], Category)


def test_other_forms_than_in_training_are_gaps_with_a_warning() -> None:
    table = table_of(pd.DataFrame({"a": [f"${k:,}" for k in range(5_000)]}))
    with pytest.warns(UnreadableWarning, match=r"numbers, written as \$1,234.56. 1 values.*5 €"):
        codes = table.codes({"a": np.array(["$1,000", "5 €"])}, warn=True)
    assert codes[0, 0] == 1_000
    assert np.isnan(codes[1, 0])
    # numbers need no form
    assert table.codes({"a": np.array([1_000.0])})[0, 0] == 1_000
