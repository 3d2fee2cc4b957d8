"""Laws of "auto": what is given stays, what is left follows the data's shape, all of it is used."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_matrix

from protopinv import ProtoPINVClassifier, open_rows
from protopinv.errors import ConfigError
from protopinv.train.config import AUTO, FIELDS, TrainConfig
from protopinv.train.resolve import (
    BATCH,
    COMPONENTS,
    EFFORTS,
    FEW_COLUMNS,
    FOLDS_MOST_ROWS,
    FULL_BATCH_ROWS,
    MOST_COLUMNS,
    DataShape,
    have_one_unit,
    resolve,
    resolved,
)

OFFERED = {name: getattr(TrainConfig, name) for name in FIELDS}
LEFT_OPEN = [
    name for name, item in TrainConfig.__dataclass_fields__.items() if item.metadata["auto"]
]
SMALL = DataShape(n_rows=150, n_features=4, n_groups=3)
LARGE = DataShape(n_rows=50_000, n_features=20, n_groups=2)


def settle(values: dict[str, Any], shape: DataShape) -> TrainConfig:
    return TrainConfig(**vars(resolved(TrainConfig(**values), shape)))  # checks the range


def candidates(values: dict[str, Any], shape: DataShape) -> tuple[TrainConfig, ...]:
    return resolve(TrainConfig(**values), shape)


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_every_auto_is_resolved_to_a_value_in_its_range(shape: DataShape):
    config = settle(OFFERED, shape)
    assert not [name for name in LEFT_OPEN if getattr(config, name) == AUTO]


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_what_is_given_stays(shape: DataShape):
    given = {
        "n_prototypes": 7,
        "hidden_sizes": (9, 5),
        "ridge": (1.0, 2.0, 3.0),
        "max_epochs": 11,
        "batch_size": None,
        "n_components": 7,
        "lr": 0.3,
        "warmup_epochs": 2,
        "early_stopping": True,
        "n_members": 3,
        "scaling": "none",
        "stem": "none",
        "activation": "tanh",
        "projection": "pls",
        "learn_scale": True,
        "label_smoothing": 0.3,
        "dtype": "float64",
        "row_dtype": "same",
        "number_encoding": "steps",
        "ensemble_size": 2,
    }
    assert set(given) == set(LEFT_OPEN)
    config = settle({**OFFERED, **given}, shape)
    assert {name: getattr(config, name) for name in given} == given


def test_held_out_rows_choose_the_length_wherever_there_are_some_to_spare():
    at, beyond = (settle(OFFERED, DataShape(FOLDS_MOST_ROWS + n, 5, 2)) for n in (0, 1))
    assert (at.early_stopping, beyond.early_stopping) == ("cross", True)
    too_few, rare = (settle(OFFERED, DataShape(n, 5, k)) for n, k in ((39, 2), (199, 20)))
    assert (too_few.early_stopping, rare.early_stopping) == (False, False)


def test_one_more_row_changes_little():
    """No rule has a step: sizes grow with the rows, and so does what a fit passes over."""
    rows = sorted({round(40 * 1.05**n) for n in range(160)} | {FULL_BATCH_ROWS, 3_000, 10_000})
    for n in rows:
        few, more = (settle(OFFERED, DataShape(n + k, 10, 2)) for k in (0, 1))
        assert abs(more.n_prototypes - few.n_prototypes) <= 10
        assert abs(more.widths[0] - few.widths[0]) <= 16
        assert abs(more.ridges[0] - few.ridges[0]) <= 1
        assert (more.n_members, more.label_smoothing) == (few.n_members, few.label_smoothing)
    sizes = [settle(OFFERED, DataShape(n, 10, 2)) for n in rows]
    for few, more in pairwise(sizes):
        assert few.n_prototypes <= more.n_prototypes
        assert few.widths <= more.widths


@pytest.mark.parametrize("effort", list(EFFORTS))
def test_an_effort_is_a_number_of_candidates(effort: str):
    found = candidates({**OFFERED, "effort": effort}, SMALL)
    assert len(found) == len(EFFORTS[effort].of_tables)
    assert len(set(found)) == len(found)
    assert {config.n_members for config in found} == {EFFORTS[effort].n_members}
    assert {config.ensemble_size for config in found} == {EFFORTS[effort].ensemble_size}


@pytest.mark.parametrize("effort", list(EFFORTS))
def test_images_have_candidates_of_their_own_and_no_ensemble_of_them(effort: str):
    images = candidates({**OFFERED, "effort": effort, "image_shape": (2, 2)}, SMALL)
    assert len(images) == len(EFFORTS[effort].recipes)
    assert {config.number_encoding for config in images} == {"raw"}
    assert {config.ensemble_size for config in images} == {1}


def test_a_quick_network_is_smaller_and_trained_for_less():
    quick, usual = (settle({**OFFERED, "effort": e}, SMALL) for e in ("quick", "balanced"))
    assert quick.n_prototypes < usual.n_prototypes
    assert quick.widths < usual.widths
    assert quick.max_epochs < usual.max_epochs
    best = settle({**OFFERED, "effort": "best"}, SMALL)
    assert best.max_epochs > usual.max_epochs
    assert best.n_members > usual.n_members


def test_candidates_differ_only_in_what_was_left_open():
    given = {"activation": "tanh", "n_prototypes": 30, "lr": 0.2}
    for config in candidates({**OFFERED, **given}, SMALL):
        assert {name: getattr(config, name) for name in given} == given
    whole = {**given, "hidden_sizes": (8,), "ridge": 1.0, "label_smoothing": 0.1}
    whole["number_encoding"] = "raw"
    assert len(candidates({**OFFERED, **whole}, SMALL)) == 1


def test_ridges_of_layers_serve_candidates_of_any_depth():
    per_layer = {"ridge": (63, 0.07), "learn_ridge": (False, True)}
    configs = candidates({**OFFERED, **per_layer}, SMALL)
    assert len({len(config.widths) for config in configs}) > 1
    for config in configs:
        assert config.ridges == (63, *[0.07] * len(config.widths))
        assert config.learned_ridges == (False, *[True] * len(config.widths))
    deep = candidates({**OFFERED, "ridge": (1, 2, 3, 4, 5)}, SMALL)
    assert {config.ridges for config in deep} == {(1, 2, 3, 4, 5)}


def test_ridges_of_layers_train_networks_of_any_depth():
    X = np.random.default_rng(0).normal(size=(60, 3))
    ridges = {"ridge": (63, 0.07), "learn_ridge": (False, True), "max_epochs": 8}
    for hidden_sizes in ("auto", 8, (8, 6, 4)):
        model = ProtoPINVClassifier(hidden_sizes=hidden_sizes, random_state=0, **ridges)
        bank = model.fit(X, X[:, 0] > 0).bank_
        assert bank.ridge[:, 0].tolist() == pytest.approx([63] * bank.n_members, rel=1e-5)
        assert ((bank.ridge[:, 1:] - 0.07).abs() > 1e-6).all()


def test_without_folds_there_is_nobody_to_choose():
    assert len(candidates({**OFFERED, "early_stopping": False}, SMALL)) == 1
    assert len(candidates({**OFFERED, "validation_fraction": 0.1}, SMALL)) == 1


def test_labels_are_smoothed_where_held_out_rows_can_undo_it():
    assert settle(OFFERED, SMALL).label_smoothing > 0
    assert settle({**OFFERED, "early_stopping": False}, SMALL).label_smoothing == 0
    assert settle(OFFERED, replace(SMALL, n_groups=1)).label_smoothing == 0


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_a_hold_out_that_is_asked_for_stops_early_and_is_the_only_one(shape: DataShape):
    config = settle({**OFFERED, "validation_fraction": 0.2}, shape)
    assert config.early_stopping is True
    assert (config.held_out, config.n_members) == (0.2, 1)
    assert settle({**OFFERED, "validation_fraction": 0}, shape).early_stopping is not True


def test_folds_are_members_and_few_rows_are_exact():
    huge = replace(LARGE, n_rows=FOLDS_MOST_ROWS + 1)
    assert [settle(OFFERED, shape).n_members for shape in (SMALL, LARGE, huge)] == [5, 5, 1]
    at, beyond = (settle(OFFERED, DataShape(n, 5, 2)) for n in (100, 101))
    assert (at.dtype, beyond.dtype) == ("float64", "float32")


def test_tables_have_their_tails_squashed_and_images_one_scale():
    table, image = DataShape(100, 64, 2), {**OFFERED, "image_shape": (8, 8)}
    assert [settle(given, table).scaling for given in (OFFERED, image)] == ["squash", "global"]
    assert settle(image, table).projection == "pca"
    few = settle({**OFFERED, "n_components": 3}, table)
    assert (few.projection, few.learn_scale, few.n_components) == ("pca", False, 3)
    wide = DataShape(60_000, 784, 10)
    for asked in ({"n_components": 100}, {"projection": "pls"}):
        assert settle({**OFFERED, **asked}, wide).scaling == "feature"
    found = settle(OFFERED, table)
    assert (found.projection, found.learn_scale) == ("none", True)


@pytest.mark.parametrize(
    ("rows", "columns", "projected"),
    [
        (100, FEW_COLUMNS, False),
        (FEW_COLUMNS, FEW_COLUMNS + 1, True),  # more columns than rows
        (FEW_COLUMNS + 1, FEW_COLUMNS + 1, False),
        (60_000, MOST_COLUMNS, False),
        (60_000, MOST_COLUMNS + 1, True),
    ],
)
def test_very_wide_rows_are_projected(rows: int, columns: int, projected: bool):
    found = settle(OFFERED, DataShape(rows, columns, 2))
    expected = ("pca", "feature", False) if projected else ("none", "squash", True)
    assert (found.projection, found.scaling, found.learn_scale) == expected
    assert found.n_components == COMPONENTS


def pixels(n: int, d: int = 400) -> np.ndarray:
    """Blots on a dark ground; some columns never vary, and some hardly do."""
    rng = np.random.default_rng(0)
    X = (rng.random((n, d)) ** 3 * rng.integers(0, 2, (n, d)) * 255).astype(np.uint8)
    X[:, ::9] = 0
    X[:, 1::9] //= 100
    return X


def test_columns_of_one_unit_are_pixels_and_no_answers():
    X = pixels(300)
    assert have_one_unit(X)
    assert have_one_unit(X / 255 - 0.5)
    assert not have_one_unit(X[:, :FEW_COLUMNS])
    assert not have_one_unit(X > 0)  # yes and no
    assert not have_one_unit(X * np.linspace(1, 9, 400))
    assert not have_one_unit(np.zeros((9, 400)))
    assert not have_one_unit(np.random.default_rng(0).normal(size=(300, 400)))


def test_columns_of_one_unit_have_one_scale_however_they_come(tmp_path: Path):
    X, y = pixels(900), np.arange(900) % 2
    config = settle(OFFERED, DataShape(900, 400, 2, one_unit=True))
    assert (config.scaling, config.projection, config.learn_scale) == ("global", "pca", False)
    asked = settle({**OFFERED, "scaling": "feature"}, DataShape(900, 400, 2, one_unit=True))
    assert asked.scaling == "feature"
    model = ProtoPINVClassifier(max_epochs=1, n_prototypes=4, hidden_sizes=4, effort="quick")
    names = [f"pixel {i}" for i in range(400)]
    table = pa.table(dict(zip(names, X.T.copy(), strict=True))).append_column("y", pa.array(y))
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=100)
    rows = (
        (X, y),
        (pd.DataFrame(X, columns=names), y),
        (csr_matrix(X), y),
        (open_rows(tmp_path / "rows.parquet", "y"), None),
        (open_rows(tmp_path / "rows.parquet", "y", memory=0, cache=None), None),
    )
    for each in rows:
        model.fit(*each)
        assert (model.config_.scaling, model.config_.projection) == ("global", "pca")


def test_estimators_leave_wide_rows_as_they_are():
    """Their own defaults, not those of the command line."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(520, 500))
    model = ProtoPINVClassifier(max_epochs=1, n_prototypes=4, hidden_sizes=4, effort="quick")
    model.fit(X, X[:, 0] > 0)
    assert (model.config_.projection, model.config_.learn_scale) == ("none", True)


def test_layers_grow_with_the_columns_without_a_step():
    widths = [settle(OFFERED, DataShape(1_000, d, 2)).widths[0] for d in range(280, 700, 10)]
    assert widths == sorted(widths)
    assert (widths[0], widths[-1]) == (64, 128)
    assert max(after - before for before, after in pairwise(widths)) <= 16


def test_copies_count_as_rows_for_batches():
    images = {**OFFERED, "image_shape": (8, 8), "image_copies": 9}
    shape = DataShape(2_000, 64, 10)
    assert settle(OFFERED, shape).batch_size is None
    assert settle(images, shape).batch_size == 2_000


def test_images_may_come_with_all_their_dimensions():
    rng = np.random.default_rng(0)
    X = rng.random((50, 6, 5))
    X[::2, 2] += 1
    model = ProtoPINVClassifier(max_epochs=10, early_stopping=False, random_state=0)
    model.fit(X, np.arange(50) % 2)
    assert model.config_.image_shape == (6, 5)
    assert model.config_.scaling == "global"
    np.testing.assert_array_equal(model.predict(X), model.predict(X.reshape(50, 30)))


def test_many_rows_are_taken_in_batches_with_fewer_epochs():
    small, large = settle(OFFERED, SMALL), settle(OFFERED, LARGE)
    assert small.batch_size is None
    assert large.max_epochs < small.max_epochs
    assert large.warmup_epochs < small.warmup_epochs


@pytest.mark.parametrize("n", [4_097, 4_200, 5_119, 5_121, 10_007, 99_999])
def test_batches_are_even(n: int):
    """A few rows that are left over would make a step of their own, which undoes others."""
    config = settle(OFFERED, DataShape(n, 10, 2))
    n_batches = -(-n // config.batch_size)
    assert n_batches * config.batch_size - n < n_batches
    assert 0.75 * BATCH < config.batch_size < 1.3 * BATCH


def test_batches_begin_without_fewer_steps():
    before, after = (settle(OFFERED, DataShape(n, 10, 2)) for n in (4_096, 4_097))
    assert (before.batch_size, after.batch_size) == (None, 2_049)
    assert before.max_epochs < 2 * after.max_epochs < 1.3 * before.max_epochs
    assert before.lr == after.lr


def test_every_class_has_prototypes():
    config = settle(OFFERED, DataShape(5_000, 10, 200))
    assert config.n_prototypes >= 4 * 200


def test_thousands_of_classes_need_prototypes_to_be_given():
    assert settle(OFFERED, DataShape(50_000, 10, 1_000)).n_prototypes == 1_000
    shape = DataShape(50_000, 10, 10_000)
    with pytest.raises(ConfigError, match=r"10,000\. If the target is a number, use ProtoPINVReg"):
        settle(OFFERED, shape)
    assert settle({**OFFERED, "n_prototypes": 20}, shape).n_prototypes == 20


def test_a_fitted_model_says_what_was_used_and_keeps_it_in_its_file(tmp_path):
    import protopinv

    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    model = ProtoPINVClassifier(max_epochs=20, random_state=0).fit(X, X[:, 0] > 0)
    used = model.config_
    assert (used.max_epochs, used.early_stopping) == (20, "cross")
    assert used.n_prototypes == model.bank_.n_prototypes
    assert used.n_members == model.bank_.n_members == 5
    assert used.dtype == "float64"
    assert model.get_params()["n_prototypes"] == AUTO
    model.save(tmp_path / "m.safetensors")
    again = protopinv.load(tmp_path / "m.safetensors")
    assert again.config_ == used
    assert again.get_params() == model.get_params()


def test_many_wide_rows_are_bfloat16_where_that_is_fast():
    images = DataShape(60_000, 2_000, n_groups=10, fast_bfloat16=True, on_gpu=True)
    assert settle(OFFERED, images).row_dtype == "bfloat16"
    projected = settle({**OFFERED, "n_components": 100}, replace(images, n_features=784))
    assert projected.row_dtype == "bfloat16"
    others = ({"n_rows": 4_000}, {"n_features": 20}, {"fast_bfloat16": False}, {"on_gpu": False})
    for other in others:
        assert settle(OFFERED, replace(images, **other)).row_dtype == "same"
    assert settle({**OFFERED, "dtype": "float64"}, images).row_dtype == "same"
