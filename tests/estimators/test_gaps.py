"""Gaps in arrays and sparse matrices are what they are in frames; targets may have none."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, load
from protopinv.errors import DataError, GapsWarning, TextTargetsWarning
from protopinv.estimators import rows as of_rows
from protopinv.rows import ArrayRows

QUICK = {"effort": "quick", "max_epochs": 4, "random_state": 0}
RANDOM = np.random.default_rng(0)
FULL = RANDOM.normal(size=(300, 4))
Y = FULL[:, 0] * 2 + FULL[:, 1]
GAPS = np.where(RANDOM.random(FULL.shape) < 0.1, np.nan, FULL)


def regressor(**options: object) -> ProtoPINVRegressor:
    return ProtoPINVRegressor(**{**QUICK, **options})


def test_an_array_with_gaps_is_understood_as_a_frame_is() -> None:
    model = regressor().fit(GAPS, Y)
    frame = pd.DataFrame(GAPS, columns=[f"column {n}" for n in range(1, 5)])
    np.testing.assert_array_equal(model.predict(GAPS), regressor().fit(frame, Y).predict(frame))
    assert model.table_.columns[0].flag
    assert model.n_features_in_ == 4
    assert not hasattr(model, "feature_names_in_")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(GAPS, Y).predict(FULL)


def test_a_sparse_matrix_has_the_gaps_that_are_in_it() -> None:
    sparse = sp.csr_matrix(GAPS)
    model = regressor().fit(sparse, Y)
    np.testing.assert_array_equal(model.predict(sparse), regressor().fit(GAPS, Y).predict(GAPS))
    plain = regressor().fit(FULL, Y)
    with pytest.warns(GapsWarning):
        answers = plain.predict(sparse)
    with pytest.warns(GapsWarning):
        np.testing.assert_allclose(answers, plain.predict(GAPS))


@pytest.mark.parametrize("classifies", [False, True])
def test_rows_with_gaps_that_are_read_in_pieces(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, classifies: bool
) -> None:
    monkeypatch.setattr(of_rows, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(ArrayRows, "fits_in_memory", lambda _: False)
    np.save(tmp_path / "x.npy", GAPS)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    y = (Y > 0).astype(int) if classifies else Y
    build = ProtoPINVClassifier if classifies else ProtoPINVRegressor
    for X in (mapped, sp.csr_matrix(GAPS)):
        model = build(**QUICK).fit(X, y)
        assert model.table_.columns[0].flag
        assert model.score(GAPS, y) > 0.5
        model.partial_fit(X, y)
        plain = build(**QUICK).fit(FULL, y)
        with pytest.warns(GapsWarning):
            plain.partial_fit(X, y)


@pytest.mark.parametrize("scaling", ["feature", "squash", "clip"])
def test_a_model_that_saw_no_gaps_has_the_middle_for_them(tmp_path: Path, scaling: str) -> None:
    X = np.exp(2 * FULL) if scaling != "feature" else FULL
    model = regressor(scaling=scaling).fit(X, Y)
    model.save(tmp_path / "m.safetensors", bank=False)
    holes, middles = X.copy(), X.copy()
    holes[::3, 1], middles[::3, 1] = np.nan, model.model_.middle[1]
    expected = model.predict(middles)
    for each in (model, load(tmp_path / "m.safetensors")):
        with pytest.warns(GapsWarning, match=r"Column 2.*100 values are NaN") as heard:
            np.testing.assert_allclose(each.predict(holes), expected)
        assert len(heard) == 1
    with pytest.warns(GapsWarning):
        model.partial_fit(holes, Y)


def test_images_have_no_gaps() -> None:
    X = RANDOM.random((40, 8, 8))
    y = (X.mean(axis=(1, 2)) > 0.5).astype(int)
    holes = X.copy()
    holes[0, 0, 0] = np.nan
    with pytest.raises(DataError, match="contains NaN"):
        ProtoPINVClassifier(**QUICK).fit(holes, y)
    model = ProtoPINVClassifier(**QUICK).fit(X, y)
    with pytest.raises(DataError, match="contains NaN"):
        model.predict(holes)


@pytest.mark.parametrize("holes", [GAPS, sp.csr_matrix(GAPS)], ids=["array", "sparse"])
def test_infinity_stays_an_error(holes) -> None:
    poisoned = holes.copy()
    poisoned[3, 2] = np.inf
    with pytest.raises(DataError, match="infinity"):
        regressor().fit(poisoned, Y)
    for X in (GAPS, FULL):
        with pytest.raises(DataError, match="infinity"):
            regressor().fit(X, Y).predict(poisoned)


@pytest.mark.parametrize(
    "lacking",
    [
        lambda y, lost: np.where(lost, np.nan, y),
        lambda y, lost: [None if gap else float(v) for v, gap in zip(y, lost, strict=True)],
        lambda y, lost: pd.Series(np.where(lost, None, y.astype(str))),
        lambda y, lost: np.stack([y, np.where(lost, np.nan, y)], axis=1),
    ],
    ids=["nan", "none", "texts", "one of several"],
)
def test_rows_without_a_target_are_named(lacking) -> None:
    y = lacking(Y, np.isin(np.arange(300), (3, 70)))
    with pytest.raises(DataError, match=r"Every row needs a target.*2 of 300 rows .*0: 3, 70\)"):
        regressor().fit(FULL, y)
    if np.ndim(y) == 1:
        with pytest.raises(DataError, match=r"0: 3, 70\)"):
            ProtoPINVClassifier(**QUICK).fit(FULL, y)


def test_targets_of_text_are_read_as_columns_are() -> None:
    expected = regressor().fit(FULL, Y.round(2)).predict(FULL)
    with pytest.warns(TextTargetsWarning, match="number, written as 1,234.56 %; predictions are"):
        model = regressor().fit(FULL, [f"{y:.2f} %" for y in Y])
    np.testing.assert_allclose(model.predict(FULL), expected)
    two = np.array([[f"${y:,.2f}", f"{y:.2f} kg"] for y in Y])
    with pytest.warns(TextTargetsWarning):
        assert regressor().fit(FULL, two).predict(FULL).shape == (300, 2)
    with pytest.raises(DataError, match="'much' in row 299"):
        regressor().fit(FULL, [*(f"{y:.2f} %" for y in Y[:-1]), "much"])
    with pytest.raises(DataError, match="Targets must be numbers"):
        regressor().fit(FULL, ["much", "little"] * 150)
