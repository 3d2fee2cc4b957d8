"""Text by the n-grams that it shares: categories of many values, and text that never repeats."""

import json
import uuid
from typing import Any

import numpy as np
import pandas as pd
import pytest

from protopinv import ProtoPINVRegressor, load
from protopinv.errors import DataError
from protopinv.rows import frame_columns
from protopinv.tables import (
    Category,
    Table,
    TargetEncoding,
    Text,
    arrays,
    described,
    ngrams,
    restored,
    understood,
)
from protopinv.tables.category import FEW_VALUES
from protopinv.tables.rows import encode_grown
from protopinv.tables.target_encoding import FOLDS

RANKS = ("junior", "senior", "assistant", "chief")
FIELDS = ("nurse", "driver", "librarian", "engineer", "accountant")
PLACES = ("school", "harbour", "museum", "hospital")
TITLES = [f"{rank} {field}, {place}" for rank in RANKS for field in FIELDS for place in PLACES]
N = 2_000


def table_of(**columns: Any) -> Table:
    frame = frame_columns(pd.DataFrame(columns))
    return understood([frame], list(frame), None)


def coded(table: Table, **columns: Any) -> np.ndarray:
    return table.codes(frame_columns(pd.DataFrame(columns)))


@pytest.fixture(scope="module")
def staff() -> Table:
    """Eighty titles; the target is what a field earns."""
    titles = np.random.default_rng(0).choice(TITLES, N)
    pay = np.array([float(FIELDS.index(title.split()[1].strip(","))) for title in titles])
    encoding = TargetEncoding.empty(table_of(title=titles), N, ["pay"])
    encoding.add(coded(encoding.table, title=titles), pay[:, None], None, np.arange(N) % FOLDS)
    return encoding.fitted()


def category(table: Table) -> Category:
    (column,) = table.columns
    assert isinstance(column, Category)
    return column


def test_values_that_share_words_have_similar_vectors(staff: Table) -> None:
    column = category(staff)
    assert column.names[-1] == "title: average of pay"
    assert column.names[:2] == ("title: n-grams 1", "title: n-grams 2")
    assert 2 < column.n_ngrams <= len(TITLES) // 4
    assert "by the n-grams of its text" in str(staff)
    vectors = dict(zip(column.values, column.vectors[:, : column.n_ngrams], strict=False))

    def apart(one: str, other: str) -> float:
        return float(np.linalg.norm(vectors[one] - vectors[other]))

    near = apart("senior nurse, school", "junior nurse, school")
    assert near < apart("senior nurse, school", "junior driver, harbour")


def test_a_value_never_seen_is_the_known_one_that_is_most_like_it(staff: Table) -> None:
    codes = coded(
        staff, title=["Senior Librarian  harbour", "zoo keeper", "", "chief nurse, school"]
    )
    values = category(staff).values
    assert values[int(codes[0, 0])] == "senior librarian, harbour"
    assert codes[1, 0] == -1
    assert np.isnan(codes[2, 0])
    assert values[int(codes[3, 0])] == "chief nurse, school"


@pytest.mark.parametrize(
    "texts",
    [
        [f"street {k}" for k in range(60)],
        [f"A{k}-{k % 7}x" for k in range(200)],
        [str(uuid.UUID(int=k * 7**40 % 2**128)) for k in range(200)],
        ["".join(np.random.default_rng(k).choice(list("abcdefghijklmnop"), 9)) for k in range(200)],
    ],
    ids=["numbered", "ids", "hashes", "letters"],
)
def test_ids_and_hashes_share_nothing(texts: list[str]) -> None:
    assert category(table_of(value=texts * 4)).n_ngrams == 0
    table = table_of(value=[*texts, *texts[:20]], size=np.arange(len(texts) + 20))
    assert [column.name for column in table.left_out] == ["value"]


def test_columns_of_ngrams_do_not_depend_on_the_last_digits() -> None:
    """Processes on other machines round in another way, and compare their tables."""
    counts = ngrams.hashed(notes())
    rows = ngrams.weighted(counts, ngrams.rarity(counts))
    noise = 1 + 1e-14 * np.random.default_rng(0).standard_normal(rows.nnz)
    rounded = rows.copy()
    rounded.data *= noise
    np.testing.assert_array_equal(ngrams.directions(rounded), ngrams.directions(rows))


def notes(n: int = 400) -> list[str]:
    random = np.random.default_rng(1)
    words = (*RANKS, *FIELDS, *PLACES, "meets", "leaves", "paints")
    return [f"{' '.join(random.choice(words, 5))} {k}" for k in range(n)]


def test_text_of_its_own_in_every_row_becomes_numbers() -> None:
    texts = notes()
    table = table_of(note=[*texts, None], size=np.arange(401.0))
    assert str(table).splitlines()[0].startswith("note  text, by the n-grams that recur in it")
    assert table.names == ("note", "size")
    *columns, size = table.columns
    assert all(isinstance(column, Text) for column in columns)
    assert columns[0].names == ("note: n-grams 1", "note is missing")
    rows = table.features(coded(table, note=["a painter", None, texts[7]], size=[1.0, 2.0, 3.0]))
    assert rows[:, 1].tolist() == [0, 1, 0]
    assert rows[1, 0] == columns[0].middle
    assert np.isfinite(rows).all()
    assert size.name == "size"


def test_a_column_that_is_called_like_those_of_a_text_is_refused() -> None:
    columns = {"note": notes(), "note: n-grams 2": np.arange(400.0)}
    with pytest.raises(DataError, match=r"The text 'note' becomes .* 'note: n-grams 2' is there"):
        table_of(**columns)


def test_no_text_of_a_single_row_is_stored(tmp_path: Any) -> None:
    texts = [f"{text} zyxw{k}q vutsrq{k}" for k, text in enumerate(notes())]
    y = np.array(["nurse" in text for text in texts], dtype=float)
    frame = pd.DataFrame({"note": texts, "size": np.random.default_rng(0).standard_normal(400)})
    model = ProtoPINVRegressor(effort="quick", max_epochs=20, random_state=0).fit(frame, y)
    assert model.score(frame, y) > 0.3
    model.save(tmp_path / "m.safetensors")
    files = [tmp_path / "m.safetensors"]
    for ending in ("c", "onnx", "mjs"):
        model.export(tmp_path / f"m.{ending}")
        files.append(tmp_path / f"m.{ending}")
    for path in files:
        content = path.read_bytes()
        assert not any(word in content for word in (b"zyxw", b"vutsrq", b"nurse", b"paints"))
    again = load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))


def test_a_new_value_has_the_ngrams_of_the_one_most_like_it(staff: Table) -> None:
    new = ["principal nurse, school"] * 4 + ["zoo keeper"] * 4
    more = staff.grown(frame_columns(pd.DataFrame({"title": new})))
    old, column = category(staff), category(more)
    assert column.values[len(old.values) :] == ("principal nurse, school", "zoo keeper")
    codes = coded(more, title=new)
    grown, rows = encode_grown(staff, more, codes, {"pay": np.full(8, 9.0)}, None)
    similar = old.most_similar(new[:1]).astype(int)
    n = old.n_ngrams
    np.testing.assert_array_equal(rows[0, :n], old.vectors[similar[0], :n])
    np.testing.assert_array_equal(rows[4, :n], old.vectors[-2, :n])
    other = old.vectors[-2, n]
    assert grown.features(codes)[4, n] == pytest.approx((4 * 9 + 10 * other) / 14)
    np.testing.assert_array_equal(
        grown.features(coded(staff, title=TITLES)), staff.features(coded(staff, title=TITLES))
    )


def test_columns_of_few_rows_grow_beside_their_ngrams() -> None:
    table = TargetEncoding.empty(table_of(title=TITLES * 4), 320, ["pay"]).fitted()
    column = category(table)
    assert column.is_one_hot
    assert column.n_ngrams
    assert sum(name.startswith("title = ") for name in column.names) == FEW_VALUES + 1
    rare = next(title for title in TITLES if f"title = {title}" not in column.names)
    full = table.grown(frame_columns(pd.DataFrame({"title": [rare] * 9})))
    assert full is table


def test_it_is_stored_and_older_files_have_none_of_it(staff: Table) -> None:
    table = table_of(note=notes(), title=TITLES * 5)
    for each in (staff, TargetEncoding.empty(table, 400, ["pay"]).fitted()):
        again = restored(json.loads(json.dumps(described(each))), arrays(each))
        assert described(again) == described(each)
    older = json.loads(json.dumps(described(staff)))
    del older["columns"][0]["n_ngrams"]
    assert category(restored(older, arrays(staff))).n_ngrams == 0
    del older["columns"][0]["gaps"]
    with pytest.raises((KeyError, ValueError, TypeError)):
        restored(older, arrays(staff))


@pytest.mark.parametrize("n", [-1, 21, 1.5, True])
def test_ngrams_of_a_stranger_must_be_columns(staff: Table, n: Any) -> None:
    description = json.loads(json.dumps(described(staff)))
    description["columns"][0]["n_ngrams"] = n
    with pytest.raises((ValueError, TypeError)):
        restored(description, arrays(staff))
