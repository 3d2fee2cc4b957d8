"""A row of weight two counts as the same row twice, whatever the calls it comes in."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix

from protopinv import ArrayRows, ProtoPINVClassifier, ProtoPINVRegressor, open_rows
from protopinv.errors import DataError

FIXED = {
    "n_prototypes": 10,
    "hidden_sizes": 8,
    "max_epochs": 15,
    "lr": 0.05,
    "early_stopping": False,
    "n_members": 1,
    "batch_size": None,
    "dtype": "float64",
    "random_state": 0,
    "device": "cpu",
}


def quick(**options: object) -> ProtoPINVClassifier:
    return ProtoPINVClassifier(**{**FIXED, **options})


@pytest.fixture(scope="module")
def three() -> tuple[np.ndarray, np.ndarray]:
    """Three clouds of uneven sizes, in four features."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, 300, p=[0.6, 0.3, 0.1])
    return rng.normal(size=(300, 4)) + 2 * np.eye(4)[y], y


def sums(model) -> list[torch.Tensor]:
    """Mass, mean and scatter of every group, and what a fit has seen."""
    memory = model.memory_
    groups = memory.gaussians.by_group(memory.n_groups)
    return [groups.mass, groups.mean, groups.scatter, torch.tensor(memory.fitted)]


@pytest.mark.parametrize("frame", [False, True])
def test_a_weight_is_a_number_of_rows_in_every_call(three, frame: bool) -> None:
    X, y = three
    X = pd.DataFrame(X, columns=list("abcd")) if frame else X
    times = np.random.default_rng(1).integers(1, 4, 300)
    take = (lambda rows: X.iloc[rows]) if frame else (lambda rows: X[rows])
    first, second = np.arange(200), np.arange(200, 300)
    twice = [part.repeat(times[part]) for part in (first, second)]
    weighted, repeated = quick(), quick()
    # rows that are drawn beside those of the second call are others
    for part, rows, near in zip((first, second), twice, (1e-8, 5e-3), strict=True):
        weighted.partial_fit(take(part), y[part], sample_weight=times[part])
        repeated.partial_fit(take(rows), y[rows])
        for one, other in zip(sums(weighted), sums(repeated), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
        found = [model.predict_proba(X) for model in (weighted, repeated)]
        np.testing.assert_allclose(*found, rtol=near, atol=near)
        assert weighted.model_.n_calls == repeated.model_.n_calls


def test_heavy_rows_have_their_mass(three) -> None:
    X, y = three
    model = quick().fit(X, y).partial_fit(X[:60], y[:60], sample_weight=np.full(60, 1_000.0))
    assert float(model.memory_.gaussians.mass.sum()) == pytest.approx(300 + 60_000)
    assert float(model.memory_.gaussians.rows.sum()) == 360


def test_the_unit_of_weights_does_not_matter(three) -> None:
    X, y = three
    models = [
        quick()
        .fit(X[:200], y[:200], sample_weight=np.full(200, unit))
        .partial_fit(X[200:], y[200:], sample_weight=np.full(100, 2 * unit))
        for unit in (1.0, 1e-4)
    ]
    np.testing.assert_allclose(*(m.predict_proba(X) for m in models), rtol=1e-6, atol=1e-8)


def test_numbers_are_weighted_in_every_call(three) -> None:
    X, _ = three
    y = X[:, 0] - 2 * X[:, 1]
    times = np.where(np.arange(300) % 3 == 0, 5, 1)
    rows = np.arange(300).repeat(times)
    later, often = np.arange(100), rows[rows < 100]
    weighted = ProtoPINVRegressor(**FIXED).fit(X, y, times)
    weighted.partial_fit(X[later], y[later], times[later])
    repeated = ProtoPINVRegressor(**FIXED).fit(X[rows], y[rows]).partial_fit(X[often], y[often])
    np.testing.assert_allclose(*(m.predict(X) for m in (weighted, repeated)), rtol=1e-6)
    torch.testing.assert_close(sums(weighted), sums(repeated), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("class_weight", ["balanced", {0: 5.0, 2: 0.5}], ids=str)
def test_the_memory_counts_rows_and_not_what_their_class_weighs(three, class_weight) -> None:
    """Or it would weigh twice: in the memory, and where the memory is used."""
    X, y = three
    counts = np.bincount(y)
    model = quick(class_weight=class_weight)
    for given in ((X, y), (ArrayRows(X, y, memory=0),)):
        memory = model.fit(*given).memory_
        np.testing.assert_allclose(memory.masses(3), counts)
        assert memory.fitted == pytest.approx(300)
    model.partial_fit(X[:90], y[:90])
    np.testing.assert_allclose(model.memory_.masses(3), counts + np.bincount(y[:90]))


@pytest.mark.parametrize("weight", [None, 2.0])
def test_rare_rows_of_a_long_source_are_no_more_than_they_are(weight) -> None:
    rng = np.random.default_rng(0)
    y = (np.arange(30_000) % 300 == 0).astype(int)
    X = rng.normal(size=(30_000, 3)) + y[:, None]
    weights = None if weight is None else np.full(30_000, weight)
    source = ArrayRows(X, y, weights, memory=1_000)
    model = quick(max_epochs=1, batch_size=4_096, dtype="float32").fit(source)
    np.testing.assert_allclose(model.memory_.masses(2), np.bincount(y) * (weight or 1))


def test_a_class_of_weight_zero_is_never_there(three) -> None:
    X, y = three
    model = quick(class_weight={0: 0}).fit(X, y)
    begun = quick(class_weight={0: 0}).partial_fit(X, y)
    for each in (model, begun):
        assert each.classes_.tolist() == [1, 2]
        each.partial_fit(X, y)
        assert each.classes_.tolist() == [1, 2]
        assert float(each.memory_.gaussians.rows.sum()) == 2 * (y > 0).sum()
    alone = quick().fit(X[y > 0], y[y > 0]).partial_fit(X[y > 0], y[y > 0])
    np.testing.assert_allclose(model.predict_proba(X), alone.predict_proba(X), atol=1e-9)
    with pytest.raises(DataError, match="Some rows must count"):
        model.partial_fit(X[y == 0], y[y == 0])


def test_rows_of_every_kind_are_learned_alike(three, tmp_path) -> None:
    X, y = three
    weight = np.random.default_rng(2).uniform(0.5, 3, 300)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y, weight=weight)
    frame.to_parquet(tmp_path / "rows.parquet")
    file = open_rows(tmp_path / "rows.parquet", "y", weight="weight")
    streamed = open_rows(tmp_path / "rows.parquet", "y", weight="weight", memory=0)
    ways = {
        "array": (X, y, None, weight),
        "frame": (frame[list("abcd")], y, None, weight),
        "sparse": (csr_matrix(X), y, None, weight),
        "source": (ArrayRows(X, y, weight),),
        "file": (file,),
        "long file": (streamed,),
    }
    found = {}
    for name, given in ways.items():
        model = quick().partial_fit(*given).partial_fit(*given)
        assert float(model.memory_.gaussians.mass.sum()) == pytest.approx(2 * weight.sum())
        rows = frame[list("abcd")] if hasattr(model, "feature_names_in_") else X
        found[name] = model.predict_proba(rows)
    for name, each in found.items():
        np.testing.assert_allclose(each, found["array"], rtol=1e-5, atol=1e-6, err_msg=name)


def test_weights_must_add_up(three) -> None:
    X, y = three
    with pytest.raises(DataError, match="add up"):
        quick().fit(X, y, sample_weight=np.full(300, 1e308))
