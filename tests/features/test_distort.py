"""Laws of distorted copies: no distortion is the identity, shifts shift, mirrors mirror."""

import numpy as np
import pytest
import torch
from torch import Generator

from protopinv import ProtoPINVClassifier
from protopinv.errors import ConfigError
from protopinv.features import distorted

SHAPE = (7, 9, 2)


def images(n: int = 20) -> torch.Tensor:
    return torch.rand(n, 7 * 9 * 2, generator=Generator().manual_seed(0))


def change(X: torch.Tensor, seed: int = 1, **options: object) -> torch.Tensor:
    chosen = {"shift": 0.0, "bend": 0.0, "mirror": False} | options
    return distorted(X, SHAPE, generator=Generator().manual_seed(seed), **chosen)


def test_nothing_asked_for_changes_nothing():
    X = images()
    assert torch.allclose(change(X), X, atol=1e-5)


def test_a_mirrored_image_is_turned_left_to_right_and_about_half_are():
    X = images(400)
    turned = X.view(-1, *SHAPE).flip(2).flatten(1)
    Z = change(X, mirror=True)
    is_turned = (Z - turned).abs().amax(1) < 1e-5
    is_same = (Z - X).abs().amax(1) < 1e-5
    assert (is_turned ^ is_same).all()
    assert 0.35 < is_turned.float().mean() < 0.65


def test_a_bright_square_moves_by_as_many_pixels_as_drawn():
    side = 41
    X = torch.zeros(300, side, side)
    X[:, 19:22, 19:22] = 1.0
    Z = distorted(
        X.flatten(1),
        (side, side, 1),
        shift=3.0,
        bend=0.0,
        mirror=False,
        generator=Generator().manual_seed(0),
    ).view(300, side, side)
    places = torch.arange(side, dtype=torch.float32)
    for weights in (Z.sum(1), Z.sum(2)):
        centres = (weights * places).sum(1) / weights.sum(1)
        assert abs(centres.mean() - 20) < 0.5
        assert 2.5 < centres.std() < 3.5


def test_a_bend_moves_parts_of_an_image_apart_and_keeps_its_range():
    X = images()
    Z = change(X, bend=1.5)
    assert (Z - X).abs().amax() > 0.1
    assert Z.min() >= X.min() - 1e-5
    assert Z.max() <= X.max() + 1e-5


def test_a_stream_gives_new_copies_and_a_seed_the_same_ones():
    X = images()
    assert torch.equal(change(X, shift=1.0), change(X, shift=1.0))
    assert not torch.equal(change(X, shift=1.0), change(X, seed=2, shift=1.0))


def test_copies_teach_a_network_what_shifted_images_are():
    """A bar on the left or right half, trained in the middle, tested elsewhere."""
    rng = np.random.default_rng(0)

    def bars(n: int, spread: int) -> tuple[np.ndarray, np.ndarray]:
        X, y = np.zeros((n, 12, 12)), rng.integers(0, 2, n)
        for image, label in zip(X, y, strict=True):
            top, left = 4 + rng.integers(-spread, spread + 1, 2)
            image[top : top + (4 if label else 1), left : left + (1 if label else 4)] = 1.0
        return X + 0.05 * rng.normal(size=X.shape), y

    X, y = bars(120, 0)
    test = bars(300, 2)
    options = {"max_epochs": 60, "early_stopping": False, "random_state": 0, "device": "cpu"}
    options |= {"projection": "none", "scaling": "global"}
    plain = ProtoPINVClassifier(image_shape=(12, 12), **options)
    plain.fit(X.reshape(120, -1), y)
    taught = ProtoPINVClassifier(image_copies=9, copy_shift=1.5, copy_bend=0.0, **options).fit(X, y)
    flat = test[0].reshape(300, -1)
    assert taught.score(test[0], test[1]) == taught.score(flat, test[1])
    assert taught.score(flat, test[1]) > plain.score(flat, test[1]) + 0.1
    assert taught.n_features_in_ == 144


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_copies": -1}, "image_copies must be a whole number, 0 or more"),
        ({"image_copies": 1, "copy_shift": -1.0}, "copy_shift must be a number, 0 or more"),
        ({"image_copies": 1, "copy_mirror": 1}, "copy_mirror must be True or False"),
        ({"image_copies": 1}, "need their shape"),
    ],
)
def test_bad_options_are_named(options: dict, message: str):
    X, y = images().numpy(), np.arange(20) % 2
    with pytest.raises(ConfigError, match=message):
        ProtoPINVClassifier(**options).fit(X, y)
