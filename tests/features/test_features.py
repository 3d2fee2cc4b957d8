from functools import partial
from typing import get_args

import numpy as np
import pytest
import torch
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from torch import Tensor

from protopinv.features import (
    FeatureMap,
    Moments,
    fit_feature_map,
    fit_wide_feature_map,
    merged_moments,
    moments_of_chunk,
)
from protopinv.network import with_bias
from protopinv.train.config import Projection, Scaling

SCALINGS, PROJECTIONS = get_args(Scaling), get_args(Projection)


@pytest.fixture
def rows(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Correlated features on very different scales, far from zero; three classes."""
    mix = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    scale = torch.tensor([1e-3, 1.0, 1e3, 1.0, 10.0, 0.1], dtype=torch.float64)
    X = torch.randn(80, 6, generator=generator, dtype=torch.float64) @ mix * scale + 50 * scale
    labels = (X[:, 0] + X[:, 5] > 0).long() + (X[:, 1] > 50).long()
    return X, torch.nn.functional.one_hot(labels, 3).double()


def fitted(
    rows: tuple[Tensor, Tensor], scaling: str, projection: str, n_components: int | None = 4
) -> FeatureMap:
    moments = moments_of_chunk(*rows)
    return fit_feature_map(
        moments, scaling=scaling, projection=projection, n_components=n_components
    )


def test_chunked_moments_equal_whole_moments(rows: tuple[Tensor, Tensor]) -> None:
    X, Y = rows
    whole = moments_of_chunk(*rows)
    chunked = merged_moments(map(moments_of_chunk, X.split(13), Y.split(13)))
    assert chunked.n == whole.n == 80
    for name in ("x_mean", "y_mean", "x_scatter", "xy_scatter"):
        torch.testing.assert_close(getattr(chunked, name), getattr(whole, name))
    np.testing.assert_allclose(whole.x_scatter / 80, np.cov(X.T, bias=True))


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_unprojected_features_project_to_themselves(
    rows: tuple[Tensor, Tensor], projection: str
) -> None:
    features = fitted(rows, "feature", projection, 2)
    Z = features.project(rows[0])
    torch.testing.assert_close(features.project(features.unproject(Z)), Z)
    if features.basis is None:
        torch.testing.assert_close(features.unproject(Z), rows[0])


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("scaling", SCALINGS)
def test_back_projection_is_exact(
    rows: tuple[Tensor, Tensor], generator: torch.Generator, scaling: str, projection: str
) -> None:
    X, _ = rows
    features = fitted(rows, scaling, projection)
    Z = features.project(X)
    W = torch.randn(Z.shape[1] + 1, 5, generator=generator, dtype=torch.float64)
    folded = with_bias(X) @ features.back_project(W)
    torch.testing.assert_close(folded, with_bias(Z) @ W, rtol=1e-9, atol=1e-9)


def test_the_papers_back_projection_is_not_exact(
    rows: tuple[Tensor, Tensor], generator: torch.Generator
) -> None:
    """[[1, 0], [mean, U]] in the paper should be [[1, -mean'U], [0, U]]."""
    X, _ = rows
    features = fitted(rows, "none", "pca")
    assert features.basis is not None
    W = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    papers = torch.cat([W[:1], features.mean[:, None] * W[:1] + features.basis @ W[1:]])
    assert not torch.allclose(with_bias(X) @ papers, with_bias(features.project(X)) @ W, rtol=0.1)


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_global_scaling_gives_unit_variance_over_all_projected_features(
    rows: tuple[Tensor, Tensor], projection: str
) -> None:
    Z = fitted(rows, "global", projection).project(rows[0])
    assert Z.var(dim=0, correction=0).mean() == pytest.approx(1)
    np.testing.assert_allclose(Z.mean(dim=0), 0, atol=1e-9)


def test_feature_scaling_gives_every_feature_unit_variance(rows: tuple[Tensor, Tensor]) -> None:
    Z = fitted(rows, "feature", "none").project(rows[0])
    np.testing.assert_allclose(Z.var(dim=0, correction=0), 1)


def test_no_scaling_and_no_projection_is_the_identity(rows: tuple[Tensor, Tensor]) -> None:
    assert torch.equal(fitted(rows, "none", "none").project(rows[0]), rows[0])


def test_pca_equals_scikit_learns_up_to_sign(rows: tuple[Tensor, Tensor]) -> None:
    X, _ = rows
    mine = fitted(rows, "none", "pca", 3).project(X).numpy()
    theirs = PCA(3, svd_solver="full").fit_transform(X.numpy())
    np.testing.assert_allclose(np.abs(mine), np.abs(theirs), rtol=1e-6, atol=1e-6)


def test_pls_equals_scikit_learns_up_to_sign(rows: tuple[Tensor, Tensor]) -> None:
    X, Y = rows
    mine = fitted(rows, "none", "pls", 4).project(X).numpy()
    theirs = PLSRegression(4, scale=False, max_iter=5000, tol=1e-14)
    scores = theirs.fit(X.numpy(), Y.numpy()).transform(X.numpy())
    np.testing.assert_allclose(np.abs(mine), np.abs(scores), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("projection", ["pca", "pls"])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_constant_and_duplicate_columns_add_no_components(scaling: str, projection: str) -> None:
    X = torch.randn(30, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    wide = torch.cat([X, X, torch.full((30, 3), 7.0, dtype=torch.float64)], dim=1)
    Y = torch.nn.functional.one_hot((X[:, 0] > 0).long(), 2).double()
    features = fitted((wide, Y), scaling, projection, None)
    assert features.n_components == 2
    assert features.project(wide).isfinite().all()


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("scaling", SCALINGS)
def test_features_that_never_vary_stay_finite(scaling: str, projection: str) -> None:
    X = torch.full((5, 3), 1e6, dtype=torch.float64)
    Y = torch.nn.functional.one_hot(torch.arange(5) % 2, 2).double()
    features = fitted((X, Y), scaling, projection)
    assert features.n_components >= 1
    assert features.project(X).isfinite().all()


@pytest.mark.parametrize("projection", ["pca", "pls"])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("n_rows", [80, 20, 4])
def test_wide_and_tall_rows_give_the_same_map(
    rows: tuple[Tensor, Tensor], scaling: str, projection: str, n_rows: int
) -> None:
    X, Y = rows[0][:n_rows], rows[1][:n_rows]
    options = {"scaling": scaling, "projection": projection, "n_components": 2}
    tall = fit_feature_map(moments_of_chunk(X, Y), **options).project(X)
    wide = fit_wide_feature_map(X, Y, **options).project(X)
    np.testing.assert_allclose(wide.abs(), tall.abs(), rtol=1e-6, atol=1e-6)


def test_the_diagonal_alone_is_enough_without_a_projection(rows: tuple[Tensor, Tensor]) -> None:
    X, Y = rows
    of_chunk = partial(moments_of_chunk, diagonal=True)
    diagonal = merged_moments(map(of_chunk, X.split(9), Y.split(9)))
    options = {"scaling": "feature", "projection": "none", "n_components": None}
    expected = fitted(rows, "feature", "none").project(X)
    torch.testing.assert_close(fit_feature_map(diagonal, **options).project(X), expected)


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("scaling", ["global", "feature"])
@pytest.mark.parametrize("size", [1e30, 1e-160])
def test_huge_and_tiny_values_come_out_moderate(
    rows: tuple[Tensor, Tensor], scaling: str, projection: str, size: float
) -> None:
    X = rows[0] * size
    Z = fitted((X, rows[1]), scaling, projection).project(X)
    assert Z.isfinite().all()
    assert Z.abs().max() < 100


def test_merging_with_a_single_row_is_stable() -> None:
    one, two = (
        moments_of_chunk(torch.tensor([[x]], dtype=torch.float64), torch.zeros(1, 1).double())
        for x in (1e8, 1e8 + 8)
    )
    merged: Moments = one.merge(two)
    assert merged.variance.item() == pytest.approx(16)


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_a_wider_map_leaves_components_as_they_were_and_passes_new_features(
    rows: tuple[Tensor, Tensor], projection: str
) -> None:
    known, places = fitted(rows, "feature", projection), torch.tensor([0, 1, 3, 4, 6, 7])
    X = rows[0].new_zeros(80, 8).index_copy_(1, places, rows[0])
    X[:, 2], X[:, 5] = torch.linspace(-1, 1, 80), torch.linspace(0, 3, 80)
    scale = torch.full((8,), 2.0).double().index_copy_(0, places, known.scale)
    wider, components = known.widened(places, scale)
    Z = wider.project(X.clone())
    assert Z.shape[1] == known.n_components + 2
    torch.testing.assert_close(Z[:, components], known.project(rows[0].clone()))
    others = [i for i in range(Z.shape[1]) if i not in components.tolist()]
    torch.testing.assert_close(Z[:, others], 2 * X[:, [2, 5]])
