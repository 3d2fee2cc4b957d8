"""Laws of squashed columns: heavy tails only, order kept, straight near the centre, saved."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import protopinv
from protopinv import ConvStem, ProtoPINVClassifier
from protopinv.errors import ConfigError, DataError, ModelFileError
from protopinv.features import Clip, Squash


def columns(n: int = 2000) -> torch.Tensor:
    """Normal, log-normal, two values (one rare), constant."""
    rng = np.random.default_rng(0)
    rare = (rng.random(n) < 0.02).astype(float)
    made = [rng.normal(size=n), np.exp(2 * rng.normal(size=n)), rare, np.full(n, 7.0)]
    return torch.from_numpy(np.stack(made, axis=1))


def fitted(X: torch.Tensor) -> Squash:
    squash = Squash.fit(X)
    assert squash is not None
    return squash


def test_columns_with_heavy_tails_are_chosen_and_others_pass():
    X = columns()
    squash = fitted(X)
    assert squash.chosen.tolist() == [False, True, False, False]
    Z = squash.features(X)
    assert torch.equal(Z[:, [0, 2, 3]], X[:, [0, 2, 3]])
    assert squash.n_numbers == 2


def test_without_heavy_tails_there_is_nothing_to_do():
    assert Squash.fit(columns()[:, [0, 3]]) is None


def test_order_is_kept_and_the_tail_is_brought_in():
    X = columns()[:, 1:2]
    Z = fitted(X).features(X)
    assert torch.equal(X[:, 0].argsort(stable=True), Z[:, 0].argsort(stable=True))

    def tail(values: torch.Tensor) -> float:
        scores = (values - values.mean()) / values.std()
        return float(scores.pow(4).mean())

    assert tail(X) > 10 > tail(Z)


@pytest.mark.parametrize("kind", [Squash, Clip])
def test_what_was_bent_can_be_taken_back(kind) -> None:
    X = columns()
    front = kind.fit(X)
    torch.testing.assert_close(front.restored(front.features(X)), X.double(), rtol=1e-6, atol=1e-6)
    far = torch.full((1, X.shape[1]), 1e4)
    assert front.restored(far).isfinite().all()


def test_rounding_is_no_tail():
    """A column of equal numbers, one of them rounded otherwise, stays what it is."""
    column = torch.full((300, 1), 0.3, dtype=torch.float64)
    column[0] = 0.1 + 0.2
    assert Squash.fit(column) is None


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32])
def test_any_number_type_comes_out_in_float64(dtype: torch.dtype):
    X = columns().abs().clamp_max(200).to(dtype)
    assert fitted(columns()).features(X).dtype == torch.float64


def heavy_rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(n, 3))
    return np.exp(2.5 * Z), (np.sin(2 * Z[:, 0]) + Z[:, 1] > 0).astype(int)


def test_a_network_learns_from_tails_what_it_could_not_before(tmp_path: Path):
    X, y = heavy_rows(900)
    options = {"max_epochs": 120, "early_stopping": False, "random_state": 0, "device": "cpu"}
    plain = ProtoPINVClassifier(n_prototypes=60, scaling="feature", **options).fit(X[:600], y[:600])
    squashed = ProtoPINVClassifier(n_prototypes=60, scaling="squash", **options).fit(
        X[:600], y[:600]
    )
    assert plain.front_ is None
    assert squashed.score(X[600:], y[600:]) > plain.score(X[600:], y[600:]) + 0.03
    squashed.save(tmp_path / "m.safetensors")
    again = protopinv.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict_proba(X), squashed.predict_proba(X))
    assert again.n_features_in_ == 3
    assert squashed.n_shipped_ == squashed.network_.n_shipped + 6


@pytest.mark.parametrize("scaling", ["squash", "clip"])
def test_a_stem_and_bent_columns_exclude_each_other(scaling: str):
    with pytest.raises(ConfigError, match=f"not behind a stem. Got scaling='{scaling}'"):
        ProtoPINVClassifier(stem=ConvStem("pca"), image_shape=(4, 4), scaling=scaling).config()


def test_every_column_of_several_values_is_clipped():
    X = columns()
    clip = Clip.fit(X)
    assert clip is not None
    assert clip.chosen.tolist() == [True, True, False, False]
    Z = clip.features(torch.cat([X, torch.full_like(X[:1], 1e300), torch.full_like(X[:1], -1e300)]))
    assert torch.equal(Z[:-2, 2:], X[:, 2:])
    assert Z[-2:, :2].tolist() == [[pytest.approx(3)] * 2, [pytest.approx(-3)] * 2]
    order = X[:, 1].argsort(stable=True)
    assert (Z[:-2, 1][order].diff() >= 0).all()
    # straight near the centre, where the middle half of the rows is as wide as of a normal column
    near = (clip.centre + 1e-3 * clip.width)[None]
    torch.testing.assert_close(clip.features(near)[0, :2], torch.full((2,), 1e-3).double())
    assert Clip.fit(X[:, 2:]) is None


@pytest.mark.parametrize("scaling", ["squash", "clip"])
def test_numbers_too_large_to_be_scaled_are_refused_whatever_bends_them(scaling: str):
    X, y = heavy_rows(60)
    X[0, 0] = 1e200
    with pytest.raises(DataError, match="small enough to be squared"):
        ProtoPINVClassifier(n_prototypes=10, scaling=scaling, max_epochs=5).fit(X, y)


def test_clipped_columns_are_kept_in_a_file(tmp_path: Path):
    X, y = heavy_rows(200)
    options = {"max_epochs": 20, "early_stopping": False, "random_state": 0, "device": "cpu"}
    model = ProtoPINVClassifier(n_prototypes=20, scaling="clip", **options).fit(X, y)
    model.save(tmp_path / "m.safetensors")
    again = protopinv.load(tmp_path / "m.safetensors")
    assert isinstance(again.front_, Clip)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_file_with_a_broken_squash_is_refused(tmp_path: Path):
    X, y = heavy_rows(60)
    path = tmp_path / "m.safetensors"
    model = ProtoPINVClassifier(
        n_prototypes=10, scaling="squash", max_epochs=5, early_stopping=False
    ).fit(X, y)
    whole = model.front_
    broken = Squash(whole.chosen, whole.centre, torch.zeros_like(whole.width))
    model.model_ = replace(model.model_, front=broken)
    model.save(path)
    with pytest.raises(ModelFileError, match="a bent column without a width"):
        protopinv.load(path)


def test_a_projection_may_follow():
    X, y = heavy_rows(300)
    model = ProtoPINVClassifier(
        n_prototypes=20, scaling="squash", projection="pca", max_epochs=20
    ).fit(X, y)
    assert model.predict_proba(X).shape == (300, 2)


@pytest.mark.parametrize("kind", [Squash, Clip])
def test_columns_that_come_later_are_left_alone(kind):
    X = columns()
    front, places = kind.fit(X), torch.tensor([0, 2, 3, 4])
    more = X.new_full((len(X), 5), 100.0).index_copy_(1, places, X)
    wider = front.widened(places, 5)
    assert type(wider) is type(front)
    assert wider.fault() is None
    torch.testing.assert_close(wider.features(more)[:, places], front.features(X))
    assert (wider.features(more)[:, 1] == 100).all()


@pytest.mark.parametrize("scaling", ["auto", "squash", "clip"])
@pytest.mark.parametrize("share", [0.0005, 0.01])
@pytest.mark.parametrize("often_zero", [False, True])
def test_a_few_absurd_numbers_do_not_silence_their_column(
    scaling: str, share: float, often_zero: bool
):
    random = np.random.default_rng(0)
    X = random.standard_normal((2_000, 2))
    if often_zero:  # so that the middle half of the column has no width
        X[random.random(2_000) < 0.6, 0] = 0
    y = (X[:, 0] > 0.5).astype(int)
    clean = _accuracy(X, y, scaling)
    X[random.choice(2_000, int(2_000 * share), replace=False), 0] = 1e12
    assert _accuracy(X, y, scaling) > clean - 0.02 - share


def _accuracy(X: np.ndarray, y: np.ndarray, scaling: str) -> float:
    model = ProtoPINVClassifier(
        effort="quick", n_members=1, max_epochs=30, scaling=scaling, random_state=0, device="cpu"
    )
    return model.fit(X[:1_200], y[:1_200]).score(X[1_200:], y[1_200:])
