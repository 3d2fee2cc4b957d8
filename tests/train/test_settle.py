"""Laws of "auto": what is given stays, what is left follows the data's shape, all of it is used."""

from dataclasses import replace

import numpy as np
import pytest

from protopinv import ProtoPINVClassifier
from protopinv.train.config import AUTO, FIELDS, TrainConfig, offered_default
from protopinv.train.settle import SIZES, TABLE_FEATURES, DataShape, settle

OFFERED = {name: offered_default(name) for name in FIELDS}
LEFT_OPEN = [
    name for name in FIELDS if OFFERED[name] == AUTO and getattr(TrainConfig, name) != AUTO
]
SMALL = DataShape(n_rows=150, n_features=4, n_classes=3)
LARGE = DataShape(n_rows=50_000, n_features=20, n_classes=2)


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_every_auto_is_settled_by_a_value_in_its_range(shape: DataShape):
    config = settle(OFFERED, shape)  # TrainConfig checks the range
    assert not [name for name in LEFT_OPEN if getattr(config, name) == AUTO]


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_what_is_given_stays(shape: DataShape):
    given = {
        "n_prototypes": 7,
        "hidden_sizes": (9, 5),
        "ridge": (1.0, 2.0, 3.0),
        "max_epochs": 11,
        "batch_size": None,
        "lr": 0.3,
        "warmup_epochs": 2,
        "early_stopping": True,
        "scaling": "none",
        "row_dtype": "same",
    }
    assert set(given) == set(LEFT_OPEN)
    config = settle({**OFFERED, **given}, shape)
    assert {name: getattr(config, name) for name in given} == given


def test_folds_choose_the_length_for_few_rows_only():
    at, beyond = (settle(OFFERED, DataShape(int(SIZES[0].most_rows) + n, 5, 2)) for n in (0, 1))
    assert (at.early_stopping, beyond.early_stopping) == ("cross", False)
    too_few, rare = (settle(OFFERED, DataShape(n, 5, k)) for n, k in ((39, 2), (199, 20)))
    assert (too_few.early_stopping, rare.early_stopping) == (False, False)


def test_tables_have_their_tails_squashed_and_images_one_scale():
    shapes = (DataShape(100, TABLE_FEATURES, 2), DataShape(100, TABLE_FEATURES + 1, 2))
    assert [settle(OFFERED, shape).scaling for shape in shapes] == ["squash", "feature"]
    images = {**OFFERED, "image_shape": (8, 8)}
    assert settle(images, shapes[0]).scaling == "global"


def test_copies_count_as_rows_for_batches():
    images = {**OFFERED, "image_shape": (8, 8), "image_copies": 9}
    shape = DataShape(2_000, 64, 10)
    assert settle(OFFERED, shape).batch_size is None
    assert settle(images, shape).batch_size == SIZES[-1].batch_size


def test_images_may_come_with_all_their_dimensions():
    rng = np.random.default_rng(0)
    X = rng.random((50, 6, 5))
    X[::2, 2] += 1
    model = ProtoPINVClassifier(max_epochs=10, early_stopping=False, random_state=0)
    model.fit(X, np.arange(50) % 2)
    assert model.config_.image_shape == (6, 5)
    assert model.config_.scaling == "global"
    np.testing.assert_array_equal(model.predict(X), model.predict(X.reshape(50, 30)))


def test_many_rows_are_taken_in_batches_with_fewer_epochs_and_a_lower_rate():
    small, large = settle(OFFERED, SMALL), settle(OFFERED, LARGE)
    assert (small.batch_size, large.batch_size) == (None, SIZES[-1].batch_size)
    assert large.max_epochs < small.max_epochs
    assert large.lr < small.lr
    assert large.warmup_epochs < small.warmup_epochs


def test_every_class_has_prototypes():
    config = settle(OFFERED, DataShape(5_000, 10, 200))
    assert config.n_prototypes >= 4 * 200


def test_a_fitted_model_says_what_was_used_and_keeps_it_in_its_file(tmp_path):
    import protopinv

    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    model = ProtoPINVClassifier(max_epochs=20, random_state=0).fit(X, X[:, 0] > 0)
    used = model.config_
    assert (used.max_epochs, used.early_stopping) == (20, "cross")
    assert used.n_prototypes == len(model.bank_.inputs)
    assert model.get_params()["n_prototypes"] == AUTO
    model.save(tmp_path / "m.safetensors")
    again = protopinv.load(tmp_path / "m.safetensors")
    assert again.config_ == used
    assert again.get_params()["n_prototypes"] == used.n_prototypes


def test_many_wide_rows_are_bfloat16_where_that_is_fast():
    images = DataShape(n_rows=60_000, n_features=784, n_classes=10, fast_bfloat16=True)
    assert settle(OFFERED, images).row_dtype == "bfloat16"
    for other in ({"n_rows": 5_000}, {"n_features": 20}, {"fast_bfloat16": False}):
        assert settle(OFFERED, replace(images, **other)).row_dtype == "same"
    assert settle({**OFFERED, "dtype": "float64"}, images).row_dtype == "same"
