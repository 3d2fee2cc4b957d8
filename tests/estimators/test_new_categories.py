"""Categories that come after the fit: nothing that was known changes, and the new is learned."""

from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, load, open_rows
from protopinv.continual.editing import renewed, widened_to
from protopinv.errors import DataError
from protopinv.features import Clip
from protopinv.report import write_report
from protopinv.rows import frame_columns

QUICK: dict[str, Any] = {"effort": "quick", "max_epochs": 40, "random_state": 0, "device": "cpu"}
LEVEL = {"a": 0.0, "b": 2.0, "c": -1.0, "d": 6.0, "e": -6.0}


def shops(n: int, seed: int, kinds: str = "abc", cities: int = 0) -> tuple[pd.DataFrame, Any]:
    """Sizes, kinds and cities of shops, and what they sell: kinds d and e are like no other."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(list(kinds), n)
    frame = pd.DataFrame({"size": rng.normal(size=n), "kind": kind, "age": rng.exponential(size=n)})
    y = frame["size"].to_numpy() + [LEVEL[each] for each in kind] + 0.1 * rng.normal(size=n)
    if cities:
        city = rng.integers(0, cities, n)
        frame["city"] = [f"city {number}" for number in city]
        y = y + 3.0 * (city % 3 - 1)
    return frame, y


def answered(y: np.ndarray, task: str) -> np.ndarray:
    if task == "classes":
        return np.where(y > 1, "more", "less")
    return np.stack([y > 1, y > -2], 1).astype(int) if task == "labels" else y


def estimator(task: str, **options: Any) -> Any:
    kind = ProtoPINVRegressor if task == "numbers" else ProtoPINVClassifier
    return kind(**{**QUICK, **options})


def outputs(model: Any, X: pd.DataFrame) -> np.ndarray:
    return model._outputs(X).numpy()


@pytest.fixture(scope="module")
def of_numbers() -> Any:
    return estimator("numbers").fit(*shops(300, 0))


def copied(model: Any, tmp_path: Path) -> Any:
    model.save(tmp_path / "model.safetensors")
    return load(tmp_path / "model.safetensors")


@pytest.mark.parametrize("task", ["classes", "labels", "numbers"])
def test_a_new_category_is_learned_and_the_old_ones_are_kept(task: str) -> None:
    X, y = shops(600, 0)
    model = estimator(task).fit(X, answered(y, task))
    (old, old_y), (new, new_y) = shops(400, 1), shops(400, 2, "de")
    before = model.score(old, answered(old_y, task)), model.score(new, answered(new_y, task))
    n_inputs = model.model_.n_inputs
    more, more_y = shops(100, 3, "abcde")
    model.partial_fit(more, answered(more_y, task))
    assert model.score(old, answered(old_y, task)) > before[0] - 0.02
    assert model.score(new, answered(new_y, task)) > max(0.95, before[1] + 0.1)
    assert model.model_.n_inputs == n_inputs + 2 == len(model.table_.feature_names)
    assert "5 values (a, b, c, ...), a column each" in str(model.table_)
    assert model.feature_names_in_.tolist() == ["size", "kind", "age"]


@pytest.mark.parametrize(
    "options",
    [
        {"number_encoding": "raw"},
        {"number_encoding": "steps"},
        {"number_encoding": "both"},
        {"scaling": "clip", "n_members": 1},
        {"scaling": "feature", "projection": "pca", "n_components": 3, "learn_scale": True},
        {"scaling": "global", "projection": "pls", "n_components": 4, "memory": 60},
    ],
    ids=["raw", "steps", "both", "clip", "pca", "pls"],
)
def test_a_wider_network_answers_old_rows_as_before(options: dict[str, Any]) -> None:
    X, y = shops(300, 0, cities=5)
    model = estimator("classes", **options, max_epochs=5).fit(X, answered(y, "classes"))
    before = outputs(model, X)
    if options.get("scaling") == "clip":
        assert isinstance(model.front_, Clip)
    more = shops(60, 1, "abcde", cities=7)[0]
    table = model.table_.grown(frame_columns(more))
    wider = widened_to(model.model_, table)
    model.model_ = renewed(wider)
    assert model.model_.n_inputs == table.n_features == X.shape[1] - 2 + 5 + 7
    np.testing.assert_allclose(outputs(model, X), before, rtol=1e-9, atol=1e-9)
    rows = torch.from_numpy(table.features(table.codes(frame_columns(X))))
    rows = rows if model.front_ is None else model.front_.features(rows)
    new = (wider.features.project(rows) == 0).all(0)
    assert int(new.sum()) == 4
    drawn, _ = wider.replay.drawn(50, torch.Generator().manual_seed(0))
    assert float(drawn[:, new].abs().max()) < 1e-6


@pytest.mark.parametrize("task", ["classes", "labels", "numbers"])
def test_a_new_value_among_many_has_the_average_of_its_targets(task: str) -> None:
    X, y = shops(2_500, 0, cities=40)
    model = estimator(task).fit(X, answered(y, task))
    new, new_y = shops(600, 2, cities=43)
    late = new["city"].isin(["city 40", "city 41", "city 42"]).to_numpy()
    test, test_y = new[late][:20], answered(new_y, task)[late][:20]
    more = ~np.isin(np.arange(600), np.flatnonzero(late)[:20])
    before, n_inputs = model.score(test, test_y), model.network_.sizes[0]
    model.partial_fit(new[more], answered(new_y, task)[more])
    assert model.network_.sizes[0] == n_inputs
    assert "43 values" in str(model.table_)
    assert model.score(test, test_y) > before + 0.1
    assert model.score(X, answered(y, task)) > 0.9


def test_labels_may_be_whole_numbers_of_another_type() -> None:
    X, y = shops(1_500, 0, cities=40)
    more, more_y = shops(300, 1, cities=42)
    averages = []
    for kind in (int, float):
        model = estimator("classes", max_epochs=2).fit(X, (y > 1).astype(int))
        # a class more makes all of them floats
        model.partial_fit(more, np.where(more_y > 4, 2, more_y > 1).astype(kind))
        averages.append(model.table_.columns[-1].vectors)
    np.testing.assert_array_equal(*averages)
    model.partial_fit(X, (y > 1).astype(int))
    assert model.classes_.tolist() == [0.0, 1.0, 2.0]


def test_several_calls_bring_several_categories_and_a_class(tmp_path: Path) -> None:
    X, y = shops(400, 0, cities=4)
    model = estimator("classes").fit(X, answered(y, "classes"))
    for seed, kinds, cities in ((1, "abd", 4), (2, "abe", 6)):
        more, more_y = shops(150, seed, kinds, cities)
        labels = np.where(more_y > 6, "most", answered(more_y, "classes"))
        model = copied(model, tmp_path).partial_fit(more, labels)
    assert model.classes_.tolist() == ["less", "more", "most"]
    names = model.table_.feature_names
    assert [name for name in names if "kind" in name] == [f"kind = {each}" for each in "abcde"]
    assert len([name for name in names if "city" in name]) == 6
    assert model.score(X, answered(y, "classes")) > 0.9
    model.forget("most").partial_fit(X, answered(y, "classes"))
    assert model.model_.n_inputs == len(names)


def test_a_model_with_more_inputs_is_saved_shown_and_gone_on_with(tmp_path: Path) -> None:
    X, y = shops(300, 0)
    options = {"scaling": "feature", "projection": "pca", "n_components": 3}
    model = estimator("numbers", **options).fit(X, y)
    model.partial_fit(*shops(60, 1, "abcd"))
    rows, rows_y = shops(50, 2, "abcd")
    again = copied(model, tmp_path)
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    assert str(again.table_) == str(model.table_)
    write_report(again, tmp_path / "page.html", rows, rows_y)
    assert "category, 4 values (a, b, c, ...)" in (tmp_path / "page.html").read_text()
    for each in (model, again):
        each.partial_fit(*shops(60, 3, "abcde"))
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


def test_few_rows_and_rows_without_weight_are_no_category(of_numbers: Any) -> None:
    model = copy(of_numbers)
    more, more_y = shops(60, 1)
    more.loc[:1, "kind"] = "d"
    model.partial_fit(more, more_y)
    assert "3 values" in str(model.table_)
    more["kind"] = np.where(np.arange(60) < 30, "d", more["kind"])
    weight = (np.arange(60) >= 28).astype(float)
    model.partial_fit(more, more_y, sample_weight=weight)
    assert "3 values" in str(model.table_)
    with pytest.warns(UserWarning, match="feature names"):
        model.partial_fit(more.to_numpy(), more_y)  # in the order of the columns
    assert "4 values" in str(model.table_)


def test_a_call_that_fails_leaves_the_table_as_it_was() -> None:
    X, y = shops(200, 0)
    model = estimator("numbers", max_epochs=3).fit(X, y)
    more, more_y = shops(60, 1, "abcd")
    attributes, before = dict(vars(model)), model.predict(more)

    def stop(_: Any) -> bool:
        raise KeyError("an observer may fail")

    for wrong in (more_y[:-1], np.where(more_y > 6, np.nan, more_y), np.stack([more_y] * 2, 1)):
        with pytest.raises(DataError):
            model.partial_fit(more, wrong)
    with pytest.raises(KeyError):
        model.partial_fit(more, more_y, observer=stop)
    assert vars(model) == attributes
    np.testing.assert_array_equal(model.predict(more), before)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_bring_new_categories_at_once_or_in_pieces(
    of_numbers: Any, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more, more_y = shops(120, 1, "abcd")
    path, rows = tmp_path / f"more.{suffix}", more.assign(sold=more_y)
    rows.to_csv(path, index=False) if suffix == "csv" else rows.to_parquet(path, row_group_size=40)
    models = [copy(of_numbers) for _ in range(3)]
    models[0].partial_fit(more, more_y)
    models[1].partial_fit(open_rows(path, "sold"))
    np.testing.assert_allclose(models[1].predict(more), models[0].predict(more), rtol=1e-9)
    monkeypatch.setattr("protopinv.continual.learning.SOURCE_ROWS", 40)
    models[2].partial_fit(open_rows(path, "sold", memory=0))
    assert "4 values" in str(models[2].table_)
    assert models[2].memory_.gaussians.rows.sum() == 420
    assert models[2].score(more, more_y) > 0.95
