"""Figures of fitted models: what they show is what the model is."""

from typing import Any

import matplotlib as mpl

mpl.use("agg")

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits, load_iris

from protopinv import ConvStem, ProtoPINVClassifier, ProtoPINVRegressor, evaluate
from protopinv.errors import ConfigError
from protopinv.report import (
    plot_calibration,
    plot_conditioning,
    plot_confusion,
    plot_history,
    plot_importance,
    plot_predictions,
    plot_prototypes,
    prototypes_of,
    save_figure,
)

SMALL: dict[str, Any] = {
    "n_prototypes": 12,
    "hidden_sizes": 8,
    "activation": "relu",
    "ridge": 1.0,
    "max_epochs": 20,
    "early_stopping": False,
    "random_state": 0,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def iris() -> tuple[pd.DataFrame, pd.Series]:
    frame = load_iris(as_frame=True)
    return frame.data, frame.target.map(dict(enumerate(frame.target_names)))


@pytest.fixture(scope="module")
def model(iris) -> ProtoPINVClassifier:
    return ProtoPINVClassifier(**SMALL, validation_fraction=0.2).fit(*iris)


def drawn(figure: Any) -> bytes:
    """Drawn to its end, which is where some mistakes show."""
    picture = save_figure(figure, "png")
    assert picture.startswith(b"\x89PNG")
    return picture


def test_a_history_shows_every_epoch(model: ProtoPINVClassifier) -> None:
    for given in (model, model.history_):
        figure = plot_history(given)
        titles = [axes.get_title() for axes in figure.axes]
        assert titles == ["loss", "validation score", "learning rate", "ridge"]
        loss = figure.axes[0].lines[0]
        assert loss.get_ydata().tolist() == model.history_.loss
        assert loss.get_xdata().tolist() == list(range(1, 21))
    drawn(figure)


def test_a_history_without_validation_has_no_panel_for_it(iris) -> None:
    figure = plot_history(ProtoPINVClassifier(**SMALL).fit(*iris))
    assert [axes.get_title() for axes in figure.axes] == ["loss", "learning rate", "ridge"]
    drawn(figure)


def test_a_confusion_matrix_counts_rows(model: ProtoPINVClassifier, iris) -> None:
    figure = plot_confusion(model, *iris)
    counts = [int(text.get_text()) for text in figure.axes[0].texts]
    assert counts == np.ravel(evaluate(model, *iris).confusion).tolist()
    drawn(figure)


def test_calibration_shows_the_error_that_evaluate_gives(model, iris) -> None:
    figure = plot_calibration(model, *iris)
    error = evaluate(model, *iris).calibration_error
    assert figure.axes[0].get_title() == f"calibration error {error:.3f}"
    rows = figure.axes[1].lines[0].get_ydata()
    assert rows.sum() == len(iris[0])
    drawn(figure)


def test_several_labels_have_a_calibration_too() -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((80, 3))
    Y = (X[:, :2] + random.standard_normal((80, 2)) > 0).astype(int)
    model = ProtoPINVClassifier(**SMALL).fit(X, Y)
    error = evaluate(model, X, Y).calibration_error
    assert f"{error:.3f}" in plot_calibration(model, X, Y).axes[0].get_title()


def test_conditioning_is_that_of_the_diagnosis(model: ProtoPINVClassifier) -> None:
    figure = plot_conditioning(model)
    layers = model.diagnose().layers
    _, system = figure.axes[0].lines[:2]
    assert system.get_ydata().tolist() == [layer.system_condition for layer in layers]
    drawn(figure)


def test_a_column_of_noise_is_worth_less_than_the_one_that_decides() -> None:
    random = np.random.default_rng(0)
    X = pd.DataFrame(
        {"noise": random.standard_normal(120), "colour": random.choice(["red", "blue"], 120)}
    )
    y = (X["colour"] == "red").map({True: "warm", False: "cold"})
    model = ProtoPINVClassifier(**SMALL).fit(X, y)
    figure = plot_importance(model, X, y)
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["noise", "colour"]
    noise, colour = (bar.get_width() for bar in axes.patches)
    assert noise == pytest.approx(0, abs=0.05)
    assert colour > 0.3
    drawn(figure)


def test_predictions_of_numbers_are_counted_in_a_grid(blobs) -> None:
    X, _ = blobs
    model = ProtoPINVRegressor(**SMALL).fit(X, X[:, :2])
    figure = plot_predictions(model, X, X[:, :2])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["predicted against true target 0", "predicted against true target 1"]
    drawn(figure)


def test_classes_have_no_picture_of_numbers(model: ProtoPINVClassifier, iris) -> None:
    with pytest.raises(ConfigError, match="Got a ProtoPINVClassifier that predicts none"):
        plot_predictions(model, *iris)


@pytest.mark.parametrize("plot", [plot_confusion, plot_calibration])
def test_numbers_have_no_picture_of_classes(blobs, plot: Any) -> None:
    model = ProtoPINVRegressor(**SMALL).fit(*blobs)
    with pytest.raises(ConfigError, match="Got a ProtoPINVRegressor that predicts none"):
        plot(model, *blobs)


@pytest.mark.parametrize(
    "options",
    [
        {"projection": "none", "scaling": "feature"},
        {"projection": "pca", "scaling": "global", "n_components": 3},
        {"projection": "pls", "scaling": "feature", "n_components": 2},
        {"projection": "none", "scaling": "squash"},
        {"projection": "none", "scaling": "global", "learn_scale": True},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_a_row_at_a_prototype_comes_out_as_the_prototype(options: dict[str, Any]) -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((150, 4))
    X[:, 1] = np.exp(2 * X[:, 1])
    model = ProtoPINVClassifier(**SMALL, **options).fit(X, X[:, 0] > X[:, 2])
    found, bank = prototypes_of(model), model.bank_.member(0)
    rows = torch.tensor(found.values)
    seen = rows if model.front_ is None else model.front_.features(rows)
    projected = model.features_.project(seen.to(model.features_.mean.dtype))
    scale = 1.0 if bank.scale is None else bank.scale
    torch.testing.assert_close(
        (projected * scale).double(), bank.inputs.double(), rtol=1e-4, atol=1e-4
    )
    assert (model.front_ is not None) == (options["scaling"] == "squash")


def test_prototypes_of_images_are_pictures() -> None:
    X, y = load_digits(return_X_y=True)
    X = X[:300].reshape(-1, 8, 8)
    options = {**SMALL, "n_prototypes": 20, "projection": "pca", "n_components": 20}
    model = ProtoPINVClassifier(**options, stem=None).fit(X, y[:300])
    figure, found = plot_prototypes(model), prototypes_of(model)
    assert len(figure.axes) == 20
    shown = [axes.get_images()[0].get_array() for axes in figure.axes]
    order = np.argsort(found.answers, kind="stable")
    assert np.allclose(shown, found.values[order].reshape(-1, 8, 8))
    assert [axes.get_title() for axes in figure.axes] == [str(n) for n in found.answers[order]]
    drawn(figure)
    # two prototypes a class at the start, near rows of it: the network takes most for their class
    assert (model.predict(found.values) == found.answers).mean() > 0.7


def test_prototypes_of_tables_are_labelled_in_their_units(iris) -> None:
    model = ProtoPINVClassifier(**SMALL).fit(*iris)
    figure, found = plot_prototypes(model, most=2, features=3), prototypes_of(model)
    assert len(figure.axes) == 2
    row = int(np.argsort(found.answers, kind="stable")[0])
    shown = {
        tick.get_text(): text.get_text()
        for tick, text in zip(figure.axes[0].get_yticklabels(), figure.axes[0].texts, strict=True)
    }
    values = dict(zip(iris[0].columns, found.values[row], strict=True))
    assert len(shown) == 3
    assert shown == {name: f"{values[name]:.3g}" for name in shown}
    # centimetres, not standard deviations: those of a class lie about its flowers
    petals = {name: found.values[found.answers == name, 2].mean() for name in model.classes_}
    assert petals["setosa"] < petals["versicolor"] < petals["virginica"]
    assert 2 < found.values[:, 2].mean() < 6
    drawn(figure)


def test_prototypes_of_numbers_stand_for_numbers_in_the_units_of_y(blobs) -> None:
    X, y = blobs
    model = ProtoPINVRegressor(**SMALL).fit(X, 1000.0 + 50 * y)
    answers = prototypes_of(model).answers
    assert answers.shape == (12,)
    assert 950 < answers.mean() < 1150
    drawn(plot_prototypes(model))


def test_a_stem_shows_images_that_it_sees_alike() -> None:
    X = np.random.default_rng(0).random((30, 12, 12))
    stem = ConvStem(filters=4, patch=3, pool=2)
    model = ProtoPINVClassifier(**SMALL, stem=stem).fit(X, np.arange(30) % 2)
    found = prototypes_of(model, chosen=[3, 1])
    assert found.values.shape == (2, 144)
    assert X.min() <= found.values.min() <= found.values.max() <= X.max()
    drawn(plot_prototypes(model, most=4))
