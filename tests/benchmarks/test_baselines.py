"""The other methods: what they solve, and that they are scikit-learn's kind of estimator."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from benchmarks.baselines.mlp import MLPBaselineClassifier, first_weights
from benchmarks.baselines.random_hidden import RandomHiddenClassifier
from protopinv.data import load_data
from protopinv.errors import ConfigError, DataError
from protopinv.network import ACTIVATIONS

SMALL = (
    MLPBaselineClassifier(hidden_sizes=16, lr=0.03, max_epochs=100, random_state=0),
    RandomHiddenClassifier(60, random_state=0),
    RandomHiddenClassifier(60, activation="cos", random_state=0),
    RandomHiddenClassifier(60, activation="identity", random_state=0),
)


@parametrize_with_checks(
    [
        MLPBaselineClassifier(hidden_sizes=32, lr=0.02, max_epochs=60),
        RandomHiddenClassifier(60),
        RandomHiddenClassifier(60, activation="cos"),
    ]
)
def test_scikit_learn_check(estimator, check) -> None:
    check(estimator)


@pytest.mark.parametrize("model", SMALL, ids=str)
def test_all_learn_what_is_easy(model, blobs) -> None:
    X, y = blobs
    assert model.fit(X, y).score(X, y) == 1


def test_an_mlp_learns_several_labels_and_the_others_refuse_them(blobs) -> None:
    X, y = blobs
    Y = np.eye(3, dtype=int)[y]
    mlp = MLPBaselineClassifier(hidden_sizes=16, lr=0.03, max_epochs=100, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(mlp.predict(X), Y)
    assert mlp.classes_.tolist() == [0, 1, 2]
    for model in (RandomHiddenClassifier(60), RandomHiddenClassifier(60, activation="cos")):
        with pytest.raises(DataError, match=r"takes one class a row\. y has 3 columns\."):
            model.fit(X, Y)


@pytest.mark.parametrize("model", SMALL[1:], ids=str)
def test_the_output_layer_is_a_ridge_regression_on_the_hidden_layer(model, blobs) -> None:
    X, y = blobs
    model = model.set_params(ridge=0.3).fit(X, y)
    first, second = model.network_.weights
    hidden = ACTIVATIONS[model.network_.activation](torch.from_numpy(X) @ first[1:] + first[0])
    design = np.hstack([np.ones((len(X), 1)), hidden.numpy()])
    expected = Ridge(alpha=0.3, fit_intercept=False).fit(design, np.eye(3)[y]).coef_.T
    np.testing.assert_allclose(second.numpy(), expected, rtol=1e-6, atol=1e-8)


def test_random_fourier_features_approximate_a_gaussian_kernel() -> None:
    X = np.random.RandomState(0).standard_normal((40, 6))
    model = RandomHiddenClassifier(
        3_000, activation="cos", weight_scale=1.5, scaling="none", random_state=0
    )
    model.fit(X, np.arange(40) % 2)
    first = model.network_.weights[0]
    features = torch.cos(torch.from_numpy(X) @ first[1:] + first[0]).numpy()
    found = 2 * features @ features.T / 3_000
    squared = ((X[:, None] - X[None]) ** 2).sum(-1)
    np.testing.assert_allclose(found, np.exp(-(1.5**2) * squared / (2 * 6)), atol=0.1)


def test_many_units_do_not_depend_on_how_rows_are_cut(blobs, monkeypatch) -> None:
    X, y = blobs
    whole = RandomHiddenClassifier(50, random_state=0).fit(X, y).decision_function(X)
    monkeypatch.setattr("protopinv.train.rows.PIECE_NUMBERS", 500)
    cut = RandomHiddenClassifier(50, random_state=0).fit(X, y).decision_function(X)
    np.testing.assert_allclose(cut, whole, rtol=1e-8)


def test_numbers_trained_and_shipped(blobs) -> None:
    X, y = blobs
    mlp = MLPBaselineClassifier(hidden_sizes=16, n_components=3, max_epochs=1).fit(X, y)
    assert mlp.n_trained_ == (3 + 1) * 16 + (16 + 1) * 3
    assert mlp.n_shipped_ == (5 + 1) * 16 + (16 + 1) * 3
    elm = RandomHiddenClassifier(16).fit(X, y)
    assert elm.n_trained_ == (16 + 1) * 3
    assert elm.n_shipped_ == mlp.n_shipped_


def test_an_mlp_takes_the_steps_that_torch_takes() -> None:
    data = load_data("digits", split="train")
    X, y = data.X[:200], data.y[:200]
    model = MLPBaselineClassifier(
        hidden_sizes=12,
        lr=0.01,
        weight_decay=0.1,
        schedule="constant",
        warmup_epochs=0,
        max_epochs=15,
        scaling="feature",
        dtype="float64",
        random_state=0,
    )
    model.fit(X, y)
    Z = model.features_.project(torch.from_numpy(X).double())
    weights = first_weights((Z.shape[1], 12, 10), torch.Generator().manual_seed(model._seed())).to(
        Z.device, "float64"
    )
    layers = [W[0].clone().requires_grad_() for W in weights.layers]
    adam = torch.optim.AdamW(layers, lr=0.01, weight_decay=0.1)
    losses = []
    for _ in range(15):
        first, second = layers
        outputs = torch.relu(Z @ first[1:] + first[0]) @ second[1:] + second[0]
        loss = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(y))
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    np.testing.assert_allclose(model.history_.loss, losses, rtol=1e-9)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (RandomHiddenClassifier(0), r"n_hidden must be a whole number, 1 or more\. Got 0\."),
        (RandomHiddenClassifier(ridge=-1.0), r"ridge must be a positive number\. Got -1\.0\."),
        (RandomHiddenClassifier(activation="rbf"), r"activation must be one of 'relu'"),
        (
            RandomHiddenClassifier(weight_scale=True),
            r"weight_scale must be a positive number\. Got True",
        ),
        (RandomHiddenClassifier(2.5), r"n_hidden must be a whole number"),
        (MLPBaselineClassifier(weight_decay=-1), r"weight_decay must be a number, 0 or more"),
        (MLPBaselineClassifier(lr=0), r"lr must be a positive number"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(model, message: str, blobs) -> None:
    with pytest.raises(ConfigError, match=message):
        model.fit(*blobs)


def test_auto_has_its_own_meaning_where_a_bank_differs(blobs) -> None:
    X, y = blobs
    model = MLPBaselineClassifier(max_epochs=5, random_state=0).fit(X, y)
    assert model.config_.lr == 1e-3
    assert model.config_.early_stopping is False
    assert model.config_.hidden_sizes == (64, 64)
