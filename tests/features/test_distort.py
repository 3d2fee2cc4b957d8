"""Laws of distorted copies: no distortion is the identity, shifts shift, mirrors mirror."""

import numpy as np
import pytest
import torch
from configs import concrete, data_of_arrays
from torch import Generator

from protopinv import ImageCopies, ProtoPINVClassifier
from protopinv.errors import ConfigError
from protopinv.features import Distortion
from protopinv.objective import Classes
from protopinv.train.prepare import prepare

SHAPE = (7, 9, 2)


def images(n: int = 20) -> torch.Tensor:
    return torch.rand(n, 7 * 9 * 2, generator=Generator().manual_seed(0))


def distortion(n: int, generator: Generator | None = None, **options: object) -> Distortion:
    chosen = {"shift": 0.0, "bend": 0.0, "mirror": False} | options
    stream = Generator().manual_seed(1) if generator is None else generator
    return Distortion(n, SHAPE, generator=stream, **chosen)


def change(X: torch.Tensor, **options: object) -> torch.Tensor:
    return distortion(len(X), **options)(X)


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
    stream = Generator().manual_seed(0)
    moved = Distortion(300, (side, side, 1), shift=3.0, bend=0.0, mirror=False, generator=stream)
    Z = moved(X.flatten(1)).view(300, side, side)
    places = torch.arange(side, dtype=torch.float32)
    for weights in (Z.sum(1), Z.sum(2)):
        centres = (weights * places).sum(1) / weights.sum(1)
        assert abs(centres.mean() - 20) < 0.5
        assert 2.5 < centres.std() < 3.5


def test_a_bend_moves_parts_of_an_image_differently_and_keeps_its_range():
    """Two squares in opposite corners: a shift would move both alike."""
    side = 41
    X = torch.zeros(300, side, side)
    X[:, 7:10, 7:10] = 1.0
    X[:, 31:34, 31:34] = 1.0
    stream = Generator().manual_seed(0)
    bent = Distortion(300, (side, side, 1), shift=0.0, bend=2.0, mirror=False, generator=stream)
    Z = bent(X.flatten(1)).view(300, side, side)
    assert Z.min() >= 0
    assert Z.max() <= 1 + 1e-5
    places = torch.arange(20, dtype=torch.float32)
    upper, lower = Z[:, :20, :20].sum(2), Z[:, 21:, 21:].sum(2)
    centres = [(part * places).sum(1) / part.sum(1) for part in (upper, lower)]
    moves = torch.stack([centre - centre.mean() for centre in centres])
    assert (moves.std(1) > 0.8).all()
    assert abs(torch.corrcoef(moves)[0, 1]) < 0.3


def test_pieces_are_distorted_like_the_whole():
    X = images(20)
    whole = distortion(20, shift=1.0, bend=1.0, mirror=True)
    parts = torch.cat([whole(X[:7]), whole(X[7:], 7)])
    torch.testing.assert_close(parts, whole(X))


def test_a_seed_gives_the_same_copies_and_a_stream_new_ones():
    X, stream = images(), Generator().manual_seed(1)
    first, second = (distortion(20, stream, shift=1.0)(X) for _ in range(2))
    assert torch.equal(first, change(X, shift=1.0))
    assert not torch.equal(first, second)


def test_bytes_are_taken_as_they_are():
    X = (255 * images()).to(torch.uint8)
    Z = change(X)
    assert Z.dtype == torch.float32
    assert torch.allclose(Z, X.float(), atol=1e-2)


def test_only_training_images_are_copied():
    X = (255 * images(60)).to(torch.uint8).numpy()
    data = data_of_arrays(X, np.arange(60) % 2, Classes(np.arange(2)), held_out=np.arange(10))
    config = concrete(image_copies=2, image_shape=SHAPE, projection="none")
    prepared = prepare(data, config, torch.device("cpu"), seed=0)
    assert (len(prepared.rows), len(prepared.validation)) == (150, 10)
    itself, first, second = prepared.rows.X.split(50)
    assert not torch.allclose(itself, first)
    assert not torch.allclose(first, second)
    assert torch.equal(prepared.rows.y, prepared.rows.y[:50].repeat(3))


def test_copies_teach_a_network_what_shifted_images_are():
    """Bars that lie or stand, trained in the middle, tested elsewhere."""
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
    copies = ImageCopies(9, shift=1.5, bend=0.0)
    taught = ProtoPINVClassifier(copies=copies, **options).fit(X, y)
    flat = test[0].reshape(300, -1)
    assert taught.score(test[0], test[1]) == taught.score(flat, test[1])
    assert taught.score(flat, test[1]) > plain.score(flat, test[1]) + 0.1
    assert taught.n_features_in_ == 144


@pytest.mark.parametrize(
    ("copies", "message"),
    [
        (ImageCopies(-1), "image_copies must be a whole number, 0 or more"),
        (ImageCopies(shift=-1.0), "copy_shift must be a number, 0 or more"),
        (ImageCopies(mirror=1), "copy_mirror must be True or False"),
        (ImageCopies(), "need their shape"),
        (3, r"copies must be None or ImageCopies\(\.\.\.\)\. Got 3"),
    ],
    ids=str,
)
def test_bad_options_are_named(copies: object, message: str):
    X, y = images().numpy(), np.arange(20) % 2
    with pytest.raises(ConfigError, match=message):
        ProtoPINVClassifier(copies=copies).fit(X, y)
