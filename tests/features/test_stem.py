"""The stem: what its filters are, and a model that carries one."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import Generator

from benchmarks.baselines.mlp import MLPBaselineClassifier
from protopinv import ConvStem, ProtoPINVClassifier, load
from protopinv.data import load_data
from protopinv.errors import ConfigError, DataError
from protopinv.features import Stem, fit_stem, map_side
from protopinv.features.stem import fit_stage, sample_patches, spherical_kmeans

KINDS = ("pca", "kmeans", "random")


def images(generator: Generator, n: int = 60, side: int = 12, channels: int = 2) -> torch.Tensor:
    """Smooth random images, as rows."""
    noise = torch.randn(n, channels, side + 2, side + 2, generator=generator)
    smooth = torch.nn.functional.avg_pool2d(noise, 3, 1)
    return smooth.permute(0, 2, 3, 1).reshape(n, -1)


def fitted(generator: Generator, kind: str = "pca", n_filters: tuple[int, ...] = (5,)) -> Stem:
    return fit_stem(
        images(generator),
        (12, 12, 2),
        kind=kind,
        n_filters=n_filters,
        patch=4,
        pool=2,
        generator=generator,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_filters", [(5,), (4, 6)])
def test_shapes_and_counts(kind: str, n_filters: tuple[int, ...], generator: Generator) -> None:
    stem = fitted(generator, kind, n_filters)
    out = stem(images(generator))
    assert out.shape == (60, stem.n_outputs) == (60, 2 * n_filters[-1] * 4)
    assert out.isfinite().all()
    assert (out >= 0).all()
    assert stem.n_numbers == sum(tensor.numel() for tensor in stem.tensors().values()) - 4
    back = Stem.from_tensors(stem.tensors())
    assert torch.equal(back(images(generator)[:3] * 0 + 1), stem(images(generator)[:3] * 0 + 1))


def test_a_row_is_its_image_row_by_row_with_channels_last(generator: Generator) -> None:
    stem = fitted(generator)
    pictures = torch.arange(2 * 12 * 12 * 2.0).view(2, 12, 12, 2)
    torch.testing.assert_close(stem.images(pictures.flatten(1)), pictures.permute(0, 3, 1, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_brighter_images_and_more_contrast_look_the_same(kind: str, generator: Generator) -> None:
    """Filters are fitted to contrast; a factor on all images is taken out by the floor.

    A power of two, which rounds nothing: k-means may go another way after a single bit.
    """
    X = images(generator)
    same = {"kind": kind, "n_filters": (5,), "patch": 4, "pool": 2}
    dim, bright = (
        fit_stem(X * factor, (12, 12, 2), generator=Generator().manual_seed(3), **same)
        for factor in (1.0, 256.0)
    )
    torch.testing.assert_close(bright(X * 256.0), dim(X), rtol=1e-2, atol=1e-3)


def test_pca_filters_respond_with_equal_strength_and_independently(generator: Generator) -> None:
    Z = images(generator, 400).view(400, 12, 12, 2).permute(0, 3, 1, 2)
    stage = fit_stage(Z, "pca", 6, 4, generator)
    patches = sample_patches(Z, 4, generator)
    scale = (patches.var(dim=1, unbiased=False) + stage.floor).rsqrt()
    responses = (patches * scale[:, None]) @ stage.filters.flatten(1).T
    correlation = torch.corrcoef(responses.T)
    assert (correlation - torch.eye(6)).abs().max() < 0.1
    deviations = responses.std(dim=0)
    assert deviations.max() < 1.5 * deviations.min()


def test_patches_are_pieces_of_the_images(generator: Generator) -> None:
    Z = torch.arange(3 * 2 * 6 * 6.0).view(3, 2, 6, 6)
    patches = sample_patches(Z, 3, generator)
    every = torch.nn.functional.unfold(Z, 3).permute(0, 2, 1).reshape(-1, 18)
    assert {tuple(row) for row in patches.tolist()} == {tuple(row) for row in every.tolist()}


def test_kmeans_finds_directions_sign_apart(generator: Generator) -> None:
    directions = torch.eye(4)[:3]
    points = directions.repeat(100, 1) * torch.randn(300, 1, generator=generator).sign()
    noisy = torch.nn.functional.normalize(points + 0.05 * torch.randn(300, 4, generator=generator))
    centres = spherical_kmeans(noisy, torch.nn.functional.normalize(directions + 0.3))
    assert ((centres @ directions.T).abs().amax(dim=1) > 0.99).all()


def test_the_side_of_the_maps_is_what_comes_out(generator: Generator) -> None:
    stem = fitted(generator, n_filters=(3, 3))
    first, second = stem.stages
    responses = second._contrast(first(stem.images(images(generator))))
    assert responses.shape[-1] == map_side(12, 4, 2) == 2


def test_both_signs_of_a_response_come_out_rectified(generator: Generator) -> None:
    (stage,) = fitted(generator, n_filters=(3,)).stages
    X = fitted(generator, n_filters=(3,)).images(images(generator))
    responses = torch.nn.functional.conv2d(X, stage.filters) * stage._contrast(X)
    expected = torch.cat([responses.relu(), (-responses).relu()], dim=1)
    halved = torch.nn.functional.avg_pool2d(expected, 2)
    torch.testing.assert_close(stage(X), halved)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    data = load_data("digits", split="train")
    return data.X[:400], data.y[:400]


def stem_of(kind: str = "pca", **options: object) -> ConvStem:
    return ConvStem(kind, **{"filters": 8, "patch": 3, "pool": 3, **options})


def small(**options: object) -> ProtoPINVClassifier:
    chosen = {"n_prototypes": 40, "hidden_sizes": 40, "scaling": "global", "max_epochs": 40}
    chosen |= {"stem": stem_of(), "random_state": 0, **options}
    return ProtoPINVClassifier(**chosen)


def test_flat_rows_and_images_give_the_same_model(digits) -> None:
    X, y = digits
    flat = small(image_shape=(8, 8)).fit(X, y)
    as_images = small().fit(X.reshape(-1, 8, 8), y)
    with_channel = small().fit(X.reshape(-1, 8, 8, 1), y)
    expected = flat.predict_proba(X)
    np.testing.assert_allclose(as_images.predict_proba(X.reshape(-1, 8, 8)), expected)
    np.testing.assert_allclose(with_channel.predict_proba(X), expected)
    assert flat.score(X, y) > 0.97
    assert flat.n_features_in_ == 64
    assert flat.n_shipped_ == flat.network_.n_shipped + flat.front_.n_numbers


def test_a_model_with_a_stem_is_saved_and_loaded(digits, tmp_path) -> None:
    X, y = digits
    model = small(image_shape=(8, 8), stem=stem_of(filters=(4, 6), pool=1)).fit(X, y)
    model.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.get_params()["stem__filters"] == (4, 6)
    assert again.stem.get_params() == model.stem.get_params()
    assert again.n_features_in_ == 64


def test_pieces_do_not_change_what_is_seen(digits, monkeypatch) -> None:
    X, y = digits
    whole = small(image_shape=(8, 8), dtype="float64").fit(X, y).predict_proba(X)
    monkeypatch.setattr("protopinv.train.rows.STEM_NUMBERS", 4000)
    cut = small(image_shape=(8, 8), dtype="float64").fit(X, y).predict_proba(X)
    np.testing.assert_allclose(cut, whole, atol=1e-3)


def test_the_mlp_can_stand_behind_a_stem_too(digits) -> None:
    X, y = digits
    options = {"stem": stem_of(), "max_epochs": 40, "image_shape": (8, 8)}
    model = MLPBaselineClassifier(hidden_sizes=40, lr=0.02, random_state=0, **options)
    assert model.fit(X, y).score(X, y) > 0.97


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ConfigError, r"A stem and copies of images need their shape\. .*set image_shape="),
        ({"image_shape": (8, 9)}, DataError, r"has 72 numbers, X has rows of 64\. Correct"),
        ({"image_shape": (8,)}, ConfigError, r"image_shape must be height and width"),
        ({"stem": stem_of(patch=7)}, ConfigError, r"8 x 8 leave 2 for pool=3"),
        ({"stem": stem_of(filters=0)}, ConfigError, r"stem_filters must be one or"),
        ({"stem": stem_of("sift")}, ConfigError, r"stem must be one of 'none'"),
        ({"stem": "pca"}, ConfigError, r"stem must be 'auto', None or ConvStem\(\.\.\.\)\. Got"),
    ],
    ids=str,
)
def test_bad_stems_are_named(digits, options, error, message: str) -> None:
    shape = {} if options == {} else {"image_shape": (8, 8)}
    with pytest.raises(error, match=message):
        small(**{**shape, **options}).fit(*digits)


def test_a_part_of_a_stem_is_set_by_its_name(digits) -> None:
    X, y = digits
    model = small(image_shape=(8, 8)).set_params(stem__filters=5, stem__kind="random", max_epochs=2)
    assert (model.config().stem, model.config().filters) == ("random", (5,))
    assert model.fit(X, y).front_.n_outputs == 2 * 5 * 9
    assert clone(model).get_params()["stem__filters"] == 5
