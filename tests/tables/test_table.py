"""What becomes of the columns of a frame: laws of the table, whatever frame it came from."""

import datetime as dt
import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from protopinv.errors import ConfigError, DataError, UnreadableWarning
from protopinv.rows import frame_columns
from protopinv.tables import (
    Category,
    Date,
    Number,
    Table,
    TargetEncoding,
    arrays,
    described,
    restored,
    understood,
)
from protopinv.tables.target_encoding import FOLDS

N = 2_400


def people(n: int = N) -> pd.DataFrame:
    """Every kind of column, with gaps."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": random.integers(18, 80, n).astype(float),
            "height": random.normal(170, 10, n),
            "city": random.choice(["Rome", "Oslo", "Lima"], n).astype(object),
            "street": random.choice([f"street {k}" for k in range(60)], n).astype(object),
            "member": random.random(n) < 0.5,
            "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900, n), "D"),
            "seen": [f"0{1 + k % 9}/15/2021 10:0{k % 6}" for k in range(n)],
            "note": [f"text {k}" for k in range(n)],
            "same": 1,
            "grade": pd.Categorical(random.choice(list("abc"), n)),
        }
    )
    frame.loc[::7, "age"] = np.nan
    frame.loc[::11, "city"] = None
    return frame


def table_of(frame: Any, **wanted: str) -> Table:
    columns = frame_columns(frame)
    return understood([columns], list(columns), wanted)


def finished(frame: Any, y: np.ndarray, **wanted: str) -> tuple[Table, np.ndarray, np.ndarray]:
    """The table with averages of one target, its codes, and rows to train on."""
    table, columns = table_of(frame, **wanted), frame_columns(frame)
    codes, fold = table.codes(columns), np.arange(len(y)) % FOLDS
    encoding = TargetEncoding.empty(table, len(y), ["y"])
    encoding.add(codes, y[:, None], None, fold)
    table = encoding.fitted()
    return table, codes, encoding.rows(table, codes, fold)


def test_every_kind_of_column_is_understood() -> None:
    table = table_of(people())
    kinds = {column.name: column for column in table.columns}
    assert isinstance(kinds["age"], Number)
    assert kinds["age"].flag
    assert isinstance(kinds["height"], Number)
    assert kinds["height"].names == ("height",)
    assert isinstance(kinds["city"], Category)
    assert kinds["city"].names == ("city = Lima", "city = Oslo", "city = Rome", "city is missing")
    assert isinstance(kinds["member"], Number)
    assert kinds["member"].boolean
    assert isinstance(kinds["joined"], Date)
    assert kinds["joined"].parts == ("age", "season", "weekday")
    assert isinstance(kinds["seen"], Date)
    assert kinds["seen"].form == "%m/%d/%Y %H:%M"
    assert "time" in kinds["seen"].parts
    assert kinds["grade"].kind == "category"
    assert {column.name: column.why[:12] for column in table.left_out} == {
        "note": "nearly every",
        "same": "it is always",
    }
    assert all(name in str(table) for name in people().columns)


def test_frames_of_every_library_become_the_same_rows() -> None:
    frame = people()
    table = table_of(frame)
    wanted = table.codes(frame_columns(frame))
    plain = frame.assign(grade=frame.grade.astype(str))
    for other in (pl.from_pandas(plain), pa.Table.from_pandas(plain), frame.convert_dtypes()):
        np.testing.assert_array_equal(table.codes(frame_columns(other)), wanted)


def test_gaps_unknown_values_and_unreadable_text_are_told_apart() -> None:
    table = table_of(people())
    row = people().head(1).assign(age=np.nan, city="Paris", seen="yesterday", joined=pd.NaT)
    names, features = table.feature_names, table.features(table.codes(frame_columns(row)))[0]
    told = dict(zip(names, features, strict=True))
    assert told["age is missing"] == 1
    assert told["age"] == np.nanmedian(people()["age"])
    assert sum(told[f"city = {city}"] for city in ("Lima", "Oslo", "Rome")) == 0
    assert told["city is missing"] == 0
    assert told["joined in years"] == 0  # the middle of those seen


def test_no_row_sees_its_own_target() -> None:
    """Targets of noise: averages of all rows know them, those of other folds do not."""
    frame = people()[["street", "age"]]
    y = np.random.default_rng(1).standard_normal(N)
    table, codes, rows = finished(frame, y)
    place = table.feature_names.index("street: average of y")
    seen, unseen = table.features(codes)[:, place], rows[:, place]
    assert np.corrcoef(seen, y)[0, 1] > 0.1
    assert abs(np.corrcoef(unseen, y)[0, 1]) < 0.05
    others = np.arange(N) % FOLDS != 0
    there = (frame["street"] == frame["street"][0]) & others
    mean = y[others].mean()
    assert rows[0, place] == pytest.approx((y[there].sum() + 10 * mean) / (there.sum() + 10))


def test_a_number_has_no_target_encoding_however_often_it_repeats() -> None:
    age = np.random.default_rng(2).integers(0, 40, N).astype(float)
    table, codes, rows = finished(pd.DataFrame({"age": age}), np.where(age % 2 == 0, 1.0, -1.0))
    assert table.feature_names == ("age",)
    np.testing.assert_array_equal(rows, age[:, None])
    np.testing.assert_array_equal(codes, rows)


def test_weights_of_rows_count_as_repeated_rows() -> None:
    frame, y = people()[["street"]], np.random.default_rng(3).standard_normal(N)
    weight, fold = 1.0 + np.arange(N) % 3, np.arange(N) % FOLDS
    table = table_of(frame)
    codes = table.codes(frame_columns(frame))
    weighted, repeated = (TargetEncoding.empty(table, N, ["y"]) for _ in range(2))
    weighted.add(codes, y[:, None], weight, fold)
    times = weight.astype(int)
    repeated.add(
        *(np.repeat(part, times, axis=0) for part in (codes, y[:, None])),
        None,
        np.repeat(fold, times),
    )
    np.testing.assert_allclose(
        weighted.fitted().columns[0].vectors, repeated.fitted().columns[0].vectors
    )


def test_few_rows_or_many_targets_get_columns_instead_of_averages() -> None:
    table = table_of(people())
    few = TargetEncoding.empty(table, 900, ["y"]).fitted()
    many = TargetEncoding.empty(table, N, [str(k) for k in range(11)]).fitted()
    for found in (few, many):
        street = next(column for column in found.columns if column.name == "street")
        assert len(street.names) == 31  # thirty of sixty, and the rest together
        assert not any("average" in name for name in found.feature_names)


def test_a_table_is_stored_and_restored() -> None:
    table, codes, _ = finished(people(), np.random.default_rng(4).standard_normal(N))
    told = json.loads(json.dumps(described(table), allow_nan=False))
    again = restored(told, arrays(table))
    assert str(again) == str(table)
    np.testing.assert_array_equal(again.features(codes), table.features(codes))


def test_pieces_of_a_frame_are_understood_as_all_of_it() -> None:
    frame = people()
    whole, columns = table_of(frame), list(frame.columns)
    pieces = [frame_columns(frame.iloc[k : k + 500]) for k in range(0, N, 500)]
    parts = understood(pieces, columns, None)
    assert described(parts) == described(whole)


@pytest.mark.parametrize(
    ("values", "kind", "note"),
    [
        (["1", "2.5", " 3 ", "?"] * 30, "number", None),
        (["1", "2"] * 50 + ["many"], "number", "1 values such as 'many' are no numbers"),
        (["007", "008"] * 50, "category", None),
        (["2024-01-01", "2024-13-45"] + ["2024-02-01", "2024-03-01"] * 50, "date", "no dates"),
        (["24.12.2020", "01.02.2021"] * 50, "date", None),
        ([True, False, None] * 30, "number", None),
        ([1, "one"] * 30, "category", None),
        ([dt.date(2020, 1, 1), dt.date(2021, 5, 5)] * 30, "date", None),
    ],
)
def test_columns_of_any_values(values: list[Any], kind: str, note: str | None) -> None:
    table = table_of(pd.DataFrame({"a": pd.Series(values, dtype=object)}))
    assert table.columns[0].kind == kind
    assert [note in line for line in table.notes] == ([True] if note else [])


def days(form: str, n: int = 300) -> list[str]:
    """Days of a year or so, a few of which are above 12."""
    first = dt.date(2023, 1, 1)
    each = [first + dt.timedelta(days=k) for k in range(n)]
    return [day.strftime(form) for day in each if day.day <= 12 or day.day == 28]


@pytest.mark.parametrize("time", ["", " %H:%M"])
@pytest.mark.parametrize("form", ["%d/%m/%Y", "%m/%d/%Y"])
def test_dates_are_read_in_the_form_that_reads_most_of_them(form: str, time: str) -> None:
    """With one in thirteen that only one form reads, and 3 in 100 that none does."""
    texts = days(form + time)
    texts += ["soon"] * (len(texts) // 32)
    table = table_of(pd.DataFrame({"since": texts}))
    column = table.columns[0]
    assert isinstance(column, Date)
    assert column.form == form + time
    codes = table.codes(frame_columns(pd.DataFrame({"since": texts})))[:, 0]
    assert np.isnan(codes).sum() == texts.count("soon")
    assert not any("could be months" in note for note in table.notes)


def test_one_row_decides_between_days_and_months() -> None:
    texts = [text for text in days("%d/%m/%Y") if not text.startswith("28")]
    for form, last in (("%d/%m/%Y", "13/02/2023"), ("%m/%d/%Y", "02/13/2023")):
        column = table_of(pd.DataFrame({"since": [*texts, last]})).columns[0]
        assert isinstance(column, Date)
        assert column.form == form


def test_days_that_could_be_months_are_said_aloud() -> None:
    texts = [text for text in days("%d/%m/%Y") if not text.startswith("28")]
    table = table_of(pd.DataFrame({"since": texts}))
    assert "column 'since': days could be months; it is read as %m/%d/%Y" in str(table)


def test_a_column_is_numbers_by_one_rule() -> None:
    """Of 100 different values so many are numbers."""
    for n_numbers, kind in ((95, "number"), (94, None), (50, None)):
        texts = [*map(str, range(n_numbers)), *(f"name {k}" for k in range(100 - n_numbers))]
        table = table_of(pd.DataFrame({"a": texts, "b": range(100)}))
        kinds = {column.name: column.kind for column in table.columns}
        assert kinds.get("a") == kind
        if kind is None:
            why = f"a  left out: {n_numbers}% of its values are numbers, and nearly all must be"
            assert why in str(table)
        asked = table_of(pd.DataFrame({"a": texts, "b": range(100)}), a="number")
        assert asked.columns[0].kind == "number"


def test_dates_in_any_zone_are_read_off_the_clock_on_the_wall() -> None:
    moments = pd.date_range("2021-03-01 23:30", periods=50, freq="D")
    wanted = table_of(pd.DataFrame({"t": moments}))
    zoned = pd.DataFrame({"t": moments.tz_localize("Pacific/Auckland")})
    np.testing.assert_allclose(
        wanted.codes(frame_columns(zoned)),
        wanted.codes(frame_columns(pd.DataFrame({"t": moments}))),
    )
    features = wanted.features(wanted.codes(frame_columns(zoned)))
    monday = wanted.feature_names.index("t on Mon")
    assert features[0, monday] == 1  # 1 March 2021


@pytest.mark.parametrize(
    ("frame", "wanted", "error", "message"),
    [
        ({"a": [1.0, np.inf]}, {}, DataError, r"Column 'a' holds infinity in row 2"),
        ({"a": [1, 1]}, {}, DataError, r"None of 1 does \('a': it is always 1\)"),
        ({"a": [None, None]}, {}, DataError, r"'a': it is empty"),
        ({"a": [[1], [2]]}, {}, DataError, r"Column 'a' holds list values such as \[1\]"),
        ({"a": [1, 2]}, {"b": "drop"}, ConfigError, r"There is no 'b'"),
        ({"a": [1, 2]}, {"a": "nominal"}, ConfigError, r"says 'nominal' of 'a'"),
        ({"a": ["x", "y"]}, {"a": "number"}, ConfigError, r"'a' is a number, and it holds text"),
        ({"a": ["x", "y"]}, {"a": "date"}, ConfigError, r"'a' is a date, and it holds text"),
        ({"a": [1, 2]}, {"a": "date"}, ConfigError, r"'a' is a date, and it holds numbers"),
    ],
)
def test_what_cannot_be_is_refused(
    frame: dict[str, Any], wanted: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        table_of(pd.DataFrame(frame), **wanted)


def test_a_name_that_is_there_twice_is_refused() -> None:
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(DataError, match=r"'a' is there twice"):
        frame_columns(frame)


def test_thousands_of_values_are_told_apart_up_to_a_limit() -> None:
    values = [f"v{k // 3}" for k in range(36_000)]
    table = table_of(pd.DataFrame({"a": values}))
    column = table.columns[0]
    assert isinstance(column, Category)
    assert len(column.values) == 10_000
    assert "10000 of 12000" in table.notes[0]


@pytest.mark.parametrize("rare", [False, True])
def test_a_column_that_varies_is_seen_to_vary_however_long_it_is(rare: bool) -> None:
    """A sample alone might miss every other value."""
    values = np.arange(100_000) % 2 if not rare else (np.arange(100_000) == 77_777).astype(int)
    table = table_of(pd.DataFrame({"flag": values, "day": pd.to_datetime(values, unit="D")}))
    assert [column.name for column in table.columns] == ["flag", "day"]


@pytest.mark.parametrize(
    ("late", "kind"),
    [([1.5, 2.5], "number"), ([dt.date(2020, 1, 1), dt.date(2021, 1, 1)], "date")],
)
def test_values_that_come_late_in_a_column_of_objects_are_seen(late: list[Any], kind: str) -> None:
    table = table_of(pd.DataFrame({"a": pd.Series([None] * 200 + late * 50, dtype=object)}))
    assert table.columns[0].kind == kind
    mixed = table_of(pd.DataFrame({"a": pd.Series(["x"] * 200 + [7, 8] * 50, dtype=object)}))
    assert mixed.columns[0].values == ("7", "8", "x")


def test_booleans_may_come_as_text_and_dates_may_be_names() -> None:
    table = table_of(pd.DataFrame({"a": [True, False, None] * 10}))
    text = pd.DataFrame({"a": ["True", "false", "NA"]})
    np.testing.assert_array_equal(table.codes(frame_columns(text))[:, 0], [1, 0, np.nan])
    days = pd.DataFrame({"a": pd.to_datetime(["2024-01-31", "2024-02-01"] * 10)})
    named = table_of(days, a="category")
    assert named.columns[0].values == ("2024-01-31", "2024-02-01")


def test_a_category_may_be_read_as_what_a_user_says() -> None:
    frame = pd.DataFrame({"a": pd.Categorical(["1", "2", "3"] * 10)})
    assert table_of(frame).columns[0].kind == "category"
    assert table_of(frame, a="number").columns[0].kind == "number"


def test_text_that_cannot_be_read_is_told_of_and_other_kinds_are_refused() -> None:
    table = table_of(
        pd.DataFrame({"n": [1.0, 2.0], "d": pd.to_datetime(["2020-01-01", "2021-01-01"])})
    )
    bad = pd.DataFrame({"n": ["1", "many"], "d": ["2020-01-01", None]})
    with pytest.warns(UnreadableWarning, match="'n' must hold numbers. 1 values such as 'many'"):
        table.codes(frame_columns(bad), warn=True)
    with pytest.raises(DataError, match="'d' held dates, and now holds numbers"):
        table.codes(frame_columns(pd.DataFrame({"n": [1], "d": [20240131]})))
    with pytest.raises(DataError, match="'n' held numbers, and now holds dates"):
        table.codes(frame_columns(pd.DataFrame({"n": pd.to_datetime(["2020-01-01"]), "d": [None]})))


@pytest.mark.parametrize(
    ("values", "wanted", "error"),
    [
        ({"a": [1, 2]}, ["a"], "columns says what each column is, by name"),
        ({"a": [10**400, 1]}, None, "Column 'a' holds infinity"),
    ],
)
def test_odd_input_is_refused_in_words(values: dict, wanted: Any, error: str) -> None:
    columns = frame_columns(pd.DataFrame(values, dtype=object))
    with pytest.raises((ConfigError, DataError), match=error):
        understood([columns], ["a"], wanted)
