"""Categories that grow: what was known stays what it was, and new values are as in a fit."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from protopinv.rows import frame_columns
from protopinv.tables import Category, Table, TargetEncoding, understood
from protopinv.tables.category import FEW_VALUES, LEAST_SEEN
from protopinv.tables.rows import encode_grown
from protopinv.tables.target_encoding import FOLDS, PRIOR_ROWS


def table_of(frame: pd.DataFrame) -> Table:
    columns = frame_columns(frame)
    return understood([columns], list(columns), None)


def kinds(*values: str) -> pd.DataFrame:
    return pd.DataFrame({"kind": list(values), "size": np.arange(len(values)) % 7 / 2.0})


def category(table: Table) -> Category:
    found = table.columns[0]
    assert isinstance(found, Category)
    return found


OLD = kinds(*"aaabbbbccc", "x", "y", "y", "")


def test_a_value_that_is_there_often_enough_has_a_column_after_the_others() -> None:
    table = table_of(OLD)
    new = kinds(*["e"] * LEAST_SEEN, *["d"] * (LEAST_SEEN + 1), *["f"] * (LEAST_SEEN - 1), "a", "")
    more = table.grown(frame_columns(new))
    names = [f"kind = {value}" for value in ("a", "b", "c", "any other")]
    assert category(more).names == (*names, "kind is missing", "kind = d", "kind = e")
    assert category(more).is_one_hot
    assert "7 values (a, b, c, ...), a column each" in str(more)
    rows = more.features(more.codes(frame_columns(kinds("d", "e", "f", "a", "x", ""))))
    assert rows[:, :7].argmax(1).tolist() == [5, 6, 3, 0, 3, 4]
    assert (rows[:, :7].sum(1) == 1).all()


def test_codes_and_features_of_known_values_stay_what_they_were() -> None:
    table = table_of(OLD)
    codes = table.codes(frame_columns(OLD))
    more = table.grown(frame_columns(kinds(*"ddddeee")))
    np.testing.assert_array_equal(more.codes(frame_columns(OLD)), codes)
    rows = more.features(codes)
    old = [more.feature_names.index(name) for name in table.feature_names]
    np.testing.assert_array_equal(rows[:, old], table.features(codes))
    assert not np.delete(rows, old, axis=1).any()


def test_a_rare_value_that_is_no_longer_rare_has_a_column_of_its_own() -> None:
    table = table_of(OLD)
    more = table.grown(frame_columns(kinds(*"yyyy")))
    assert category(more).values == category(table).values
    assert category(more).names[-1] == "kind = y"
    rows = more.features(more.codes(frame_columns(kinds("x", "y", "other"))))
    assert rows[:, :6].argmax(1).tolist() == [3, 5, 3]


def test_without_new_values_it_is_the_same_table() -> None:
    table = table_of(OLD)
    assert table.grown(frame_columns(kinds(*"abcd", "", "e"))) is table


def test_there_are_no_more_columns_than_in_a_fit() -> None:
    table = table_of(OLD)
    many = [f"v{i:02}" for i in range(FEW_VALUES) for _ in range(LEAST_SEEN)] + ["often"] * 9
    more = category(table.grown(frame_columns(kinds(*many))))
    own = [name for name in more.names if " = " in name and "any other" not in name]
    assert len(own) == FEW_VALUES
    assert own[3] == "kind = often"
    again = kinds(*["z"] * 9)
    full = Table((more, table.columns[1]), names=table.names)
    assert full.grown(frame_columns(again)) is full


@pytest.fixture(scope="module")
def cities() -> tuple[Table, pd.DataFrame]:
    """A table of forty cities, in which the target is a number of each."""
    rng = np.random.default_rng(0)
    city = rng.integers(0, 40, 2_000)
    frame = kinds(*(f"city {number}" for number in city))
    encoding = TargetEncoding.empty(table_of(frame), len(frame), ["target 1"])
    codes = encoding.table.codes(frame_columns(frame))
    encoding.add(codes, city[:, None] / 40.0, None, np.arange(len(frame)) % FOLDS)
    return encoding.fitted(), frame


def averaged_for_new_values(
    old: Table, table: Table, codes: Any, y: Any, weight: Any, fold: Any
) -> tuple[Table, Any]:
    """The table with averages of one target for its new values, and rows that have not seen it."""
    encoding = TargetEncoding.of_new_values(old, table)
    assert encoding.targets == ("target 1",)
    encoding.add(codes, y[:, None], weight, fold)
    return encoding.fitted(), encoding.rows(encoding.fitted(), codes, fold)


def test_the_average_of_a_new_value_leans_towards_any_other(cities) -> None:
    table, frame = cities
    new = kinds(*["Rome"] * 6, *["Oslo"] * 4, *["Lima"] * 2, "city 3")
    y, weight = np.arange(13.0), np.linspace(0.5, 2, 13)
    more = table.grown(frame_columns(new))
    codes, fold = more.codes(frame_columns(new)), np.arange(13) % FOLDS
    more, rows = averaged_for_new_values(table, more, codes, y, weight, fold)
    assert more.n_features == table.n_features
    known = table.codes(frame_columns(frame))
    np.testing.assert_array_equal(more.features(known), table.features(known))
    other = category(table).vectors[-2, 0]

    def leaning(chosen: np.ndarray) -> float:
        mass = weight[chosen].sum()
        return float((weight[chosen] @ y[chosen] + PRIOR_ROWS * other) / (mass + PRIOR_ROWS))

    found = more.features(codes)[:, 0]
    names = new["kind"].to_numpy()
    for row in range(10):
        assert found[row] == pytest.approx(leaning(names == names[row]))
        apart = (names == names[row]) & (fold != fold[row])
        assert rows[row, 0] == pytest.approx(leaning(apart))
    np.testing.assert_allclose(found[10:12], other)
    np.testing.assert_array_equal(rows[10:], more.features(codes)[10:])


def test_a_target_that_is_gone_counts_as_nothing(cities) -> None:
    table, _ = cities
    new = kinds(*["Rome"] * 6)
    more = table.grown(frame_columns(new))
    codes = more.codes(frame_columns(new))
    more, _ = encode_grown(table, more, codes, {}, None)
    other = category(table).vectors[-2, 0]
    assert more.features(codes)[0, 0] == pytest.approx(PRIOR_ROWS * other / (6 + PRIOR_ROWS))
