"""Names travel with rows: columns are matched by name, wherever a model and rows have names."""

from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from protopinv import ArrayRows, ProtoPINVClassifier, ProtoPINVRegressor, evaluate, load, open_rows
from protopinv.errors import ColumnsWarning, DataError

QUICK = {"effort": "quick", "max_epochs": 30, "random_state": 0, "device": "cpu"}
NAMES = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Four columns of very different scales, of which the first two say the class."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    frame = pd.DataFrame(X * [1.0, 3.0, 10.0, 0.1] + [0, 5, -20, 1], columns=NAMES)
    return frame.assign(y=y)


@pytest.fixture(scope="module")
def files(table, tmp_path_factory) -> dict[str, Path]:
    """The same rows in files of different columns, and of two files."""
    folder = tmp_path_factory.mktemp("names")
    parts = {
        "plain": table,
        "permuted": table[["d", "b", "y", "c", "a"]],
        "wider": table.assign(e=1.0)[["e", *reversed(NAMES), "y"]],
        "narrower": table.drop(columns="b"),
        "renamed": table.rename(columns={"b": "beta"}),
        "mixed": table.assign(b=np.where(table["b"] > 5, "much", "little")),
    }
    for name, part in parts.items():
        part.to_csv(folder / f"{name}.csv", index=False)
    both = folder / "both"
    both.mkdir()
    parts["permuted"][:200].to_csv(both / "1.csv", index=False)
    parts["permuted"][200:].to_csv(both / "2.csv", index=False)
    return {path.stem: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def from_file(files, tmp_path_factory) -> ProtoPINVClassifier:
    """Saved and loaded too: names are in the file of a model."""
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    ProtoPINVClassifier(**QUICK).fit(open_rows(files["plain"], "y")).save(path)
    return load(path)


@pytest.fixture(scope="module")
def from_frame(table) -> ProtoPINVClassifier:
    return ProtoPINVClassifier(**QUICK).fit(table[NAMES], table["y"])


@pytest.fixture(scope="module")
def without_names(table) -> ProtoPINVClassifier:
    return ProtoPINVClassifier(**QUICK).fit(table[NAMES].to_numpy(), table["y"].to_numpy())


def assert_alike(one, other, table) -> None:
    found = [model.predict_proba(table[NAMES]) for model in (one, other)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", ["permuted", "both"])
@pytest.mark.parametrize("begun", ["from_file", "from_frame"])
@pytest.mark.filterwarnings("error")
def test_columns_of_files_are_put_in_order(request, files, table, name, begun) -> None:
    fitted = request.getfixturevalue(begun)
    one, other = (copy(fitted) for _ in range(2))
    one.partial_fit(open_rows(files["plain"], "y"))
    other.partial_fit(open_rows(files[name], "y"))
    np.testing.assert_array_equal(
        one.predict_proba(table[NAMES]), other.predict_proba(table[NAMES])
    )
    assert other.feature_names_in_.tolist() == NAMES


def test_a_long_file_is_put_in_order_too(files, from_file, table, monkeypatch) -> None:
    monkeypatch.setattr("protopinv.continual.learning.SOURCE_ROWS", 150)
    one, other = (copy(from_file) for _ in range(2))
    one.partial_fit(open_rows(files["plain"], "y", memory=0))
    other.partial_fit(open_rows(files["permuted"], "y", memory=0))
    np.testing.assert_array_equal(
        one.predict_proba(table[NAMES]), other.predict_proba(table[NAMES])
    )
    assert other.score(table[NAMES], table["y"]) > 0.9


@pytest.mark.parametrize("begun", ["from_file", "from_frame"])
def test_further_columns_are_ignored_with_a_note(request, files, table, begun) -> None:
    one, other = (copy(request.getfixturevalue(begun)) for _ in range(2))
    one.partial_fit(open_rows(files["plain"], "y"))
    with pytest.warns(ColumnsWarning, match=r"'e'"):
        other.partial_fit(open_rows(files["wider"], "y"))
    np.testing.assert_array_equal(
        one.predict_proba(table[NAMES]), other.predict_proba(table[NAMES])
    )


@pytest.mark.parametrize("name", ["narrower", "renamed"])
@pytest.mark.parametrize("begun", ["from_file", "from_frame"])
def test_missing_columns_are_refused_and_the_model_stays(
    request, files, table, begun, name
) -> None:
    model = request.getfixturevalue(begun)
    before, attributes = model.predict_proba(table[NAMES]), dict(vars(model))
    with pytest.raises(DataError, match=r"'b'"):
        model.partial_fit(open_rows(files[name], "y"))
    assert vars(model) == attributes
    np.testing.assert_array_equal(model.predict_proba(table[NAMES]), before)


@pytest.mark.parametrize("classes", [None, [0, 1]])
def test_the_first_call_learns_the_names(files, table, classes) -> None:
    model = ProtoPINVClassifier(**QUICK)
    model.partial_fit(open_rows(files["plain"], "y"), classes=classes)
    assert model.feature_names_in_.tolist() == NAMES
    with pytest.raises(DataError, match=r"'b'"):
        model.predict(table[["a", "c", "d"]])
    model.partial_fit(open_rows(files["permuted"], "y"))
    assert model.score(table[NAMES], table["y"]) > 0.9


@pytest.mark.parametrize("begun", ["from_file", "from_frame"])
def test_a_warm_start_matches_names(request, files, table, begun) -> None:
    fitted = request.getfixturevalue(begun)
    one, other = (copy(fitted).set_params(warm_start=True) for _ in range(2))
    one.fit(open_rows(files["plain"], "y"))
    other.fit(open_rows(files["permuted"], "y"))
    assert_alike(one, other, table)
    assert other.feature_names_in_.tolist() == NAMES
    with pytest.raises(DataError, match=r"'b'"):
        other.fit(open_rows(files["renamed"], "y"))
    with pytest.raises(DataError, match=r"'b'"):
        other.fit(table[["a", "c", "d"]], table["y"])


def test_text_where_numbers_were_is_refused(files, from_file) -> None:
    with pytest.raises(DataError, match=r"'b'.*(text|string|little|much)|could not convert"):
        from_file.partial_fit(open_rows(files["mixed"], "y"))


def test_columns_of_a_regressor_are_put_in_order(files, table) -> None:
    models = [
        ProtoPINVRegressor(**QUICK)
        .partial_fit(open_rows(files["plain"], "a", drop=["y"]))
        .partial_fit(open_rows(files[name], "a", drop=["y"]))
        for name in ("plain", "permuted")
    ]
    found = [model.predict(table[["b", "c", "d"]]) for model in models]
    np.testing.assert_array_equal(*found)


def test_a_source_of_a_frame_has_its_names(table, from_file) -> None:
    one, other = (copy(from_file) for _ in range(2))
    one.partial_fit(ArrayRows(table[NAMES], table["y"]))
    other.partial_fit(ArrayRows(table[NAMES[::-1]], table["y"]))
    np.testing.assert_array_equal(
        one.predict_proba(table[NAMES]), other.predict_proba(table[NAMES])
    )
    with pytest.raises(DataError, match=r"'b'"):
        other.partial_fit(ArrayRows(table[["a", "c", "d"]], table["y"]))


def predicted(model: Any, X: Any, y: Any) -> Any:
    return model.predict_proba(X)


def judged(model: Any, X: Any, y: Any) -> Any:
    return evaluate(model, X, y).log_loss


def learned(model: Any, X: Any, y: Any) -> Any:
    return model.partial_fit(X, y).model_.network.weights[0].numpy()


def warm_started(model: Any, X: Any, y: Any) -> Any:
    return model.set_params(warm_start=True).fit(X, y).model_.network.weights[0].numpy()


ENTRANCES = [predicted, judged, learned, warm_started]
FRAMES = [lambda frame: frame, pl.from_pandas, pa.Table.from_pandas]
Entrance = Callable[[Any, Any, Any], Any]
Frame = Callable[[pd.DataFrame], Any]


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("begun", ["from_file", "from_frame"])
@pytest.mark.parametrize("frame", FRAMES, ids=["pandas", "polars", "arrow"])
def test_every_entrance_takes_frames_by_name(
    request, table, entrance: Entrance, begun: str, frame: Frame
) -> None:
    def model() -> Any:
        return copy(request.getfixturevalue(begun))

    y = table["y"].to_numpy()
    expected = entrance(model(), frame(table[NAMES]), y)
    np.testing.assert_array_equal(entrance(model(), frame(table[list("dbca")]), y), expected)
    with pytest.warns(ColumnsWarning, match=r"They have 'e' too\. Went on without"):
        wider = entrance(model(), frame(table.assign(e="text")[list("edcba")]), y)
    np.testing.assert_array_equal(wider, expected)
    for missing in (table[list("acd")], table[NAMES].rename(columns={"b": "beta"})):
        with pytest.raises(DataError, match=r"Every feature of the model .* There is no 'b'"):
            entrance(model(), frame(missing), y)


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("frame", FRAMES, ids=["pandas", "polars", "arrow"])
def test_a_model_without_names_takes_columns_by_their_place(
    table, without_names, entrance: Entrance, frame: Frame
) -> None:
    X, y = table[NAMES].to_numpy(), table["y"].to_numpy()
    expected = entrance(copy(without_names), X, y)
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        by_place = entrance(copy(without_names), frame(table[NAMES]), y)
    np.testing.assert_array_equal(by_place, expected)
    for other in (table.assign(e="text")[[*NAMES, "e"]], table[list("acd")]):
        with (
            pytest.warns(UserWarning, match="was fitted without feature names"),
            pytest.raises(DataError, match=r"X has [35] features, but .* expecting 4"),
        ):
            entrance(copy(without_names), frame(other), y)


def test_rows_in_pieces_have_the_width_of_the_fit(table, without_names) -> None:
    X, y = table[NAMES].to_numpy(), table["y"].to_numpy()
    with pytest.raises(DataError, match=r"X has 3 features, but .* expecting 4"):
        without_names.partial_fit(ArrayRows(X[:, :3], y, memory=0))


def test_text_where_numbers_were_is_refused_in_any_frame(table, from_file) -> None:
    for frame in FRAMES:
        with pytest.raises(DataError, match=r"could not convert|Unable to"):
            from_file.predict(frame(table[NAMES].assign(b="much")))


def test_columns_that_a_model_left_out_may_be_missing(table, tmp_path) -> None:
    wider = table.assign(id=[f"row {number}" for number in range(len(table))])
    model = ProtoPINVClassifier(**QUICK).fit(wider.drop(columns="y"), wider["y"])
    models = [model, copy(model)]
    assert [column.name for column in models[0].table_.left_out] == ["id"]
    for model, rows in zip(models, (wider, table), strict=True):
        rows.to_csv(tmp_path / "rows.csv", index=False)
        model.partial_fit(open_rows(tmp_path / "rows.csv", "y"))
    one, other = (model.predict_proba(table[NAMES]) for model in models)
    np.testing.assert_array_equal(one, other)
