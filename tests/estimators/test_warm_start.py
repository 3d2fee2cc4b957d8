"""A warm start goes on where the last fit ended, and says what it cannot go on with."""

from copy import copy

import numpy as np
import pytest
import torch

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, load
from protopinv.errors import ConfigError, DataError


def quick(**options: object) -> ProtoPINVClassifier:
    chosen = {
        "effort": "quick",
        "n_prototypes": 15,
        "hidden_sizes": 12,
        "max_epochs": 40,
        "random_state": 0,
    }
    chosen |= {"early_stopping": False, "warm_start": True}
    return ProtoPINVClassifier(**{**chosen, **options})


@pytest.mark.parametrize("options", [{}, {"n_members": 3}, {"learn_scale": True}], ids=str)
def test_a_warm_start_goes_on_where_the_last_fit_ended(blobs, options) -> None:
    X, y = blobs
    model = quick(**options).fit(X, y)
    first, bank = model.history_, model.bank_
    model.fit(X, y)
    assert model.history_.loss[0] == pytest.approx(first.loss[-1], rel=0.05)
    assert model.history_.loss[0] < 0.3 * first.loss[0]
    assert model.history_.loss[-1] < first.loss[-1]
    assert model.bank_.inputs.shape == bank.inputs.shape
    assert not torch.equal(model.bank_.inputs, bank.inputs)
    cold = quick(warm_start=False, **options).fit(X, y)
    cold.fit(X, y)
    assert cold.history_.loss[0] == pytest.approx(first.loss[0])


def test_the_features_of_the_last_fit_are_kept(blobs) -> None:
    X, y = blobs
    model = quick(projection="pca").fit(X, y)
    features = model.features_
    model.fit(X[:60] + 3, y[:60])
    assert torch.equal(model.features_.mean, features.mean)
    assert torch.equal(model.features_.basis, features.basis)


def test_numbers_keep_their_units(blobs) -> None:
    X, _ = blobs
    model = ProtoPINVRegressor(
        n_prototypes=15, hidden_sizes=12, max_epochs=60, warm_start=True, random_state=0
    )
    y = 100 * X[:, 0] + 7
    last = model.fit(X, y).history_.loss[-1]
    model.fit(X, y)
    assert model.history_.loss[0] < 10 * last + 1e-3
    assert model.score(X, y) > 0.95


def test_folds_are_gone_on_with_as_members(blobs) -> None:
    X, y = blobs
    model = quick(early_stopping="auto").fit(X, y)
    assert model.config_.early_stopping == "cross"
    assert model.bank_.n_members == 5
    model.fit(X, y)
    assert model.bank_.n_members == 5
    assert model.config_.early_stopping is False
    assert model.n_iter_ == 40


def test_the_kind_that_was_kept_is_gone_on_with(blobs) -> None:
    X, _ = blobs
    model = ProtoPINVRegressor(max_epochs=20, warm_start=True, random_state=0)
    first = model.fit(X, np.sin(X[:, 0])).config_
    again = model.fit(X, np.sin(X[:, 0])).config_
    kind = ("activation", "hidden_sizes", "ridge", "lr", "n_prototypes", "learn_scale")
    assert [getattr(again, name) for name in kind] == [getattr(first, name) for name in kind]


def test_a_loaded_model_is_gone_on_with(blobs, tmp_path) -> None:
    X, y = blobs
    model = quick().fit(X, y)
    last = model.history_.loss[-1]
    model.save(tmp_path / "m.safetensors")
    back = load(tmp_path / "m.safetensors")
    np.testing.assert_allclose(
        back.fit(X, y).predict_proba(X), model.fit(X, y).predict_proba(X), rtol=1e-9
    )
    assert back.history_.loss[0] == pytest.approx(last, rel=0.05)


@pytest.fixture(scope="module")
def begun(blobs) -> ProtoPINVClassifier:
    return quick().fit(*blobs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X, np.where(y == 2, 3, y)), r"classes of the last fit: \[0, 1, 2\]"),
        (lambda X, y: (X[y < 2], y[y < 2]), r"classes of the last fit: \[0, 1, 2\]"),
        (lambda X, y: (X, np.eye(3, dtype=int)[y]), r"targets of the last fit"),
        (lambda X, y: (X[:, :4], y), r"X has 4 features.* expecting 5"),
    ],
    ids=["other classes", "fewer classes", "labels", "features"],
)
def test_other_rows_are_refused_and_the_model_stays(blobs, begun, change, message: str) -> None:
    X, y = blobs
    model = copy(begun)
    before, attributes = model.predict_proba(X), dict(vars(model))
    with pytest.raises(DataError, match=message):
        model.fit(*change(X, y))
    np.testing.assert_array_equal(model.predict_proba(X), before)
    assert vars(model) == attributes


@pytest.mark.parametrize(
    "options",
    [{"hidden_sizes": 8}, {"n_prototypes": 20}, {"n_members": 2}, {"learn_scale": False}],
    ids=str,
)
def test_other_shapes_are_refused(blobs, begun, options: dict[str, object]) -> None:
    X, y = blobs
    model = copy(begun)
    (name,) = options
    with pytest.raises(ConfigError, match=rf"keeps the shape of the last fit, {name}=.* Set warm"):
        model.set_params(**options).fit(X, y)


@pytest.mark.parametrize("value", ["yes", 1, None], ids=str)
def test_a_warm_start_is_true_or_false(blobs, value: object) -> None:
    with pytest.raises(ConfigError, match=r"warm_start must be True or False\. Got"):
        quick(warm_start=value).fit(*blobs)
