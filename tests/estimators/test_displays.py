"""scikit-learn's displays, inspection tools and notebooks take our estimators as their own."""

from typing import Any

import matplotlib as mpl

mpl.use("agg")

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from sklearn.calibration import CalibrationDisplay
from sklearn.inspection import PartialDependenceDisplay, permutation_importance
from sklearn.metrics import (
    ConfusionMatrixDisplay,
    PrecisionRecallDisplay,
    PredictionErrorDisplay,
    RocCurveDisplay,
)
from sklearn.model_selection import LearningCurveDisplay
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from protopinv import ConvStem, ProtoPINVClassifier, ProtoPINVRegressor

SMALL: dict[str, Any] = {
    "n_prototypes": 10,
    "hidden_sizes": 6,
    "activation": "relu",
    "max_epochs": 15,
    "early_stopping": False,
    "random_state": 0,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Whether it rains hangs on the wind and on the season; the day says nothing."""
    random = np.random.default_rng(0)
    wind, day = random.standard_normal(120), random.standard_normal(120)
    season = random.choice(["wet", "dry"], 120)
    rain = 2 * wind + 3 * (season == "wet") - 1.5
    return pd.DataFrame({"wind": wind, "day": day, "season": season, "rain": rain})


@pytest.fixture(scope="module", name="X")
def columns(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[["wind", "day", "season"]]


@pytest.fixture(scope="module")
def y(frame: pd.DataFrame) -> pd.Series:
    return (frame["rain"] > 0).map({True: "yes", False: "no"})


@pytest.fixture(scope="module")
def classifier(X: pd.DataFrame, y: pd.Series) -> ProtoPINVClassifier:
    return ProtoPINVClassifier(**SMALL).fit(X, y)


@pytest.fixture(scope="module")
def regressor(X: pd.DataFrame, frame: pd.DataFrame) -> ProtoPINVRegressor:
    return ProtoPINVRegressor(**SMALL).fit(X, frame["rain"])


@pytest.fixture(autouse=True)
def _closed() -> Any:
    yield
    plt.close("all")


def test_displays_of_a_classifier(classifier, X, y) -> None:
    confusion = ConfusionMatrixDisplay.from_estimator(classifier, X, y)
    assert confusion.confusion_matrix.sum() == 120
    curve = RocCurveDisplay.from_estimator(classifier, X, y)
    assert np.max(curve.roc_auc) > 0.9
    assert PrecisionRecallDisplay.from_estimator(classifier, X, y) is not None
    calibration = CalibrationDisplay.from_estimator(classifier, X, y, n_bins=4)
    assert calibration.prob_true.shape == calibration.prob_pred.shape


def test_displays_of_a_regressor(regressor, X, frame) -> None:
    display = PredictionErrorDisplay.from_estimator(regressor, X, frame["rain"])
    assert display.y_pred == pytest.approx(regressor.predict(X))


@pytest.mark.parametrize("kind", ["average", "individual"])
def test_partial_dependence_of_numbers_and_categories(regressor, X, kind: str) -> None:
    display = PartialDependenceDisplay.from_estimator(
        regressor, X, ["wind"], kind=kind, grid_resolution=5
    )
    curve = display.pd_results[0][kind]
    assert (np.diff(curve.reshape(-1, curve.shape[-1])[0]) > 0).all()  # more wind, more rain
    if kind == "average":
        both = PartialDependenceDisplay.from_estimator(
            regressor, X, ["season"], categorical_features=["season"]
        ).pd_results[0]
        dry, wet = both["average"][0]
        assert both["grid_values"][0].tolist() == ["dry", "wet"]
        assert wet > dry


def test_permutation_importance_finds_the_columns_that_matter(classifier, X, y) -> None:
    found = permutation_importance(classifier, X, y, n_repeats=3, random_state=0)
    wind, day, season = found.importances_mean
    assert min(wind, season) > 0.1 > day


def test_a_learning_curve_rises(X, y) -> None:
    display = LearningCurveDisplay.from_estimator(
        ProtoPINVClassifier(**SMALL), X, y, train_sizes=[0.2, 1.0], cv=3
    )
    assert display.test_scores.mean(axis=1)[-1] > 0.8


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize(
    "given",
    [{}, {"columns": {"day": "drop"}}, {"stem": ConvStem("random")}],
    ids=["plain", "columns", "nested"],
)
def test_a_notebook_shows_a_model(X, y, fitted: bool, given: dict[str, Any]) -> None:
    model = ProtoPINVClassifier(**SMALL, **given)
    if fitted and "stem" not in given:
        model.fit(X, y)
    html = model._repr_mimebundle_()["text/html"]
    assert "ProtoPINVClassifier" in html
    assert "n_prototypes" in html
    assert ("<span>Fitted</span>" in html) == hasattr(model, "network_")
    assert "ProtoPINVClassifier" in make_pipeline(StandardScaler(), model)._repr_html_()
