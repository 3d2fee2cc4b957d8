"""Rows that are read for every pass give the bank that rows in memory give."""

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy import sparse

from protopinv import ArrayRows, BatchRows, ProtoPINVClassifier, ProtoPINVRegressor, open_rows
from protopinv.errors import ConfigError, DataError
from protopinv.rows import arrays as arrays_module
from protopinv.rows import keys_of
from protopinv.train import data as data_module
from protopinv.train import survey as survey_module
from protopinv.train.data import Data, StreamedRows
from protopinv.train.machine import ALONE
from protopinv.train.survey import Sample, Sampler, Split, survey
from protopinv.train.targets import LabelCounts

SMALL = {"n_prototypes": 20, "hidden_sizes": 16, "activation": "relu", "ridge": 2.0, "lr": 0.05}
SHORT = {**SMALL, "max_epochs": 5, "random_state": 3, "device": "cpu"}


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces, blocks, windows and samples so small that a small table has many of them."""
    monkeypatch.setattr(arrays_module, "BLOCK_NUMBERS", 2_000)
    monkeypatch.setattr(survey_module, "READ_NUMBERS", 800)
    monkeypatch.setattr(data_module, "WINDOW_ROWS", 700)
    monkeypatch.setattr(survey_module, "SAMPLE_ROWS", 1_000)


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    X = random.standard_normal((3000, 5))
    X[:, 2] = np.exp(2 * X[:, 2])  # a heavy tail, to be squashed
    y = np.array(["a", "b", "c"], dtype=object)[(X[:, 0] > 0).astype(int) + (X[:, 1] > 1)]
    return X, y


def tensors(model) -> list[torch.Tensor]:
    bank = model.bank_
    return [bank.inputs, *bank.hidden, bank.outputs, *model.network_.weights]


def furthest(one, other) -> float:
    pairs = zip(tensors(one), tensors(other), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"projection": "pca", "n_components": 3},
        {"projection": "pls", "n_components": 3},
        {"scaling": "clip", "learn_scale": True},
        {"n_members": 3, "optimizer": "muon"},
    ],
    ids=["squashed", "pca", "pls", "clipped", "members"],
)
def test_a_full_batch_is_the_same_streamed_and_in_memory(table, dtype, options) -> None:
    given = {**SHORT, "batch_size": None, "early_stopping": False, "dtype": dtype, **options}
    X, y = table
    memory = ProtoPINVClassifier(**given).fit(X, y)
    stream = ProtoPINVClassifier(**given).fit(ArrayRows(X, y, memory=0))
    assert furthest(memory, stream) <= (1e-5 if dtype == "float32" else 1e-10)
    np.testing.assert_array_equal(stream.classes_, memory.classes_)


def test_weights_and_classes_of_weight_count_the_same(table) -> None:
    X, y = table
    weight = np.random.default_rng(1).uniform(0.1, 2, len(y))
    given = {**SHORT, "batch_size": None, "early_stopping": False, "dtype": "float64"}
    for class_weight in (None, "balanced", {"a": 1, "b": 3, "c": 2}):
        models = [ProtoPINVClassifier(**given, class_weight=class_weight) for _ in range(2)]
        memory = models[0].fit(X, y, weight)
        stream = models[1].fit(ArrayRows(X, y, weight, memory=0))
        assert furthest(memory, stream) <= 1e-10


def test_weights_that_add_up_to_the_rows_count_too(table) -> None:
    X, y = table
    weight = np.where(np.arange(len(y)) % 2 == 0, 0.5, 1.5)
    given = {**SHORT, "batch_size": None, "early_stopping": False, "dtype": "float64"}
    memory = ProtoPINVClassifier(**given).fit(X, y, weight)
    stream = ProtoPINVClassifier(**given).fit(ArrayRows(X, y, weight, memory=0))
    assert furthest(memory, stream) <= 1e-10


def test_a_class_without_weight_is_not_there(table) -> None:
    X, y = table
    weight = (y != "c").astype(float)
    model = ProtoPINVClassifier(**SHORT).fit(ArrayRows(X, y, weight, memory=0))
    assert model.classes_.tolist() == ["a", "b"]
    without = ProtoPINVClassifier(**SHORT, class_weight={"a": 1, "b": 1, "c": 0})
    assert without.fit(ArrayRows(X, y, memory=0)).classes_.tolist() == ["a", "b"]


def test_numbers_are_held_out_too(table) -> None:
    X, _ = table
    given = {**SHORT, "batch_size": 256, "early_stopping": True, "validation_fraction": 0.002}
    model = ProtoPINVRegressor(**given).fit(ArrayRows(X, X[:, 0], memory=0))
    assert model.history_.kept_score is not None


def test_rows_of_weight_zero_are_never_seen(table) -> None:
    X, y = table
    weight = np.ones(len(y))
    weight[::7] = 0
    spoiled = X.copy()
    spoiled[::7] = 1e6
    given = {**SHORT, "batch_size": None, "early_stopping": False, "dtype": "float64"}
    found = [
        ProtoPINVClassifier(**given).fit(ArrayRows(rows, y, weight, memory=0))
        for rows in (X, spoiled)
    ]
    assert furthest(*found) <= 1e-10


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_numbers_are_the_same_streamed_and_in_memory(table, loss) -> None:
    X, _ = table
    y = np.column_stack([X[:, 0] * X[:, 1], 5 + X[:, 3]])
    given = {**SHORT, "batch_size": None, "early_stopping": False, "dtype": "float64", "loss": loss}
    memory = ProtoPINVRegressor(**given).fit(X, y)
    stream = ProtoPINVRegressor(**given).fit(ArrayRows(X, y, memory=0))
    # quantiles for Huber loss are those of a sample
    assert furthest(memory, stream) <= (1e-10 if loss == "squared" else 0.5)
    assert stream.objective_.high == pytest.approx(memory.objective_.high)


def test_several_labels_are_the_same_streamed_and_in_memory(table) -> None:
    X, _ = table
    y = np.column_stack([X[:, 0] > 0, X[:, 1] > 0]).astype(int)
    given = {**SHORT, "batch_size": None, "early_stopping": False, "dtype": "float64"}
    memory = ProtoPINVClassifier(**given).fit(X, y)
    stream = ProtoPINVClassifier(**given).fit(ArrayRows(X, y, memory=0))
    assert furthest(memory, stream) <= 1e-10


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 256, "early_stopping": True},
        {"batch_size": 256, "early_stopping": "cross"},
        {"batch_size": None, "early_stopping": "cross", "n_members": 5},
        {"batch_size": 300, "early_stopping": False, "input_noise": 0.1, "mixup": 0.1},
    ],
    ids=["hold-out", "folds in batches", "folds", "noise"],
)
def test_whatever_is_asked_for_learns_from_a_stream(table, options) -> None:
    X, y = table
    given = {**SHORT, **options, "max_epochs": 25}
    model = ProtoPINVClassifier(**given).fit(ArrayRows(X, y, memory=0))
    assert model.score(X, y) > 0.88
    if options["early_stopping"]:
        assert model.history_.kept_score > 0.88


def test_a_mini_batch_has_every_row_once_and_blocks_come_in_another_order(table) -> None:
    X, y = table
    numbered = np.column_stack([np.arange(len(X), dtype=float), X])
    rows = _streamed(numbered, y, held_out=0.2)
    generator = torch.Generator().manual_seed(0)
    orders = []
    for _ in range(2):
        batches = list(rows.batches(256, generator))
        assert len(batches) == rows.n_batches(256)
        assert {batch.n_total for batch in batches} <= {len(batches[0]), len(batches[0]) - 1}
        seen = torch.cat([batch.X[:, 0] for batch in batches])
        assert len(seen.unique()) == len(seen) == rows.n_total
        orders.append(seen)
    assert not torch.equal(*orders)
    # a batch mixes blocks, and not only neighbours
    assert orders[0][:256].max() - orders[0][:256].min() > 1000


def test_left_out_batches_change_nothing_but_that(table) -> None:
    X, y = table
    rows = _streamed(X, y)
    whole = list(rows.batches(256, torch.Generator().manual_seed(0)))
    for skip in (1, 5, len(whole) - 1):
        rest = list(rows.batches(256, torch.Generator().manual_seed(0), skip=skip))
        assert len(rest) == len(whole) - skip
        for one, other in zip(rest, whole[skip:], strict=True):
            torch.testing.assert_close(one.X, other.X, rtol=0, atol=0)


def _streamed(X, y, held_out: float = 0.0):
    from protopinv.features import FeatureMap
    from protopinv.objective import Classes
    from protopinv.train.rows import View

    source, parts = ArrayRows(X, y, memory=0), Split(0, held_out)
    facts = survey(source, LabelCounts(), parts, ALONE, by_label=True)
    d = X.shape[1]
    features = FeatureMap(torch.zeros(d).double(), torch.ones(d).double())
    view = View(None, features, Classes(np.unique(y)), torch.float64, torch.device("cpu"))
    return StreamedRows(Data(source, view.objective, facts, parts), view)


def test_who_is_held_out_depends_on_the_place_in_its_file_alone(table, tmp_path: Path) -> None:
    X, y = table
    frame = pa.table({**{f"x{i}": X[:, i] for i in range(5)}, "y": pa.array(y)})
    for name, groups in (("one", 100), ("other", 700)):
        (tmp_path / name).mkdir()
        pq.write_table(frame, tmp_path / name / "a.parquet", row_group_size=groups)
    pq.write_table(frame.slice(0, 500), tmp_path / "other" / "b.parquet")
    held = []
    for name in ("one", "other"):
        source, parts = open_rows(tmp_path / name, "y"), Split(5, 0.2)
        out = {}
        for block, piece in survey_module.pieces_of(source, source.blocks[::-1]):
            if block.file == "a.parquet":
                for place, gone in enumerate(parts.held(block, piece)):
                    out[block.first + piece.first + place] = bool(gone)
        held.append(out)
    assert held[0] == held[1]
    assert 0.15 < np.mean(list(held[0].values())) < 0.25


def test_a_sample_has_the_same_rows_in_any_order_and_some_of_every_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n = 20_000
    random = np.random.default_rng(0)
    y = (random.random(n) < 0.001).astype(int)
    number = np.arange(n)
    keys = keys_of(0, "sample", number)
    rows = Sample(number[:, None], y, np.ones(n), number, np.zeros(n, int), keys)
    found = []
    monkeypatch.setattr(survey_module, "SAMPLE_ROWS", 500)
    for order in (number, number[::-1], random.permutation(n)):
        uniform = Sampler(by_label=False)
        for piece in np.array_split(order, 37):
            uniform.add(rows.taken(piece), np.arange(len(piece)))
        found.append(uniform.rows().number.tolist())
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 500
    assert set(keys[found[0]]) == set(np.sort(keys)[:500])
    monkeypatch.setattr(survey_module, "SAMPLE_ROWS", 1_000)
    sampler = Sampler(by_label=True)
    sampler.add(rows, np.arange(n))
    sample = sampler.rows()
    assert len(sample.lowest(1_000)) == 1_000 < len(sample)
    assert set(np.flatnonzero(y)) <= set(sample.number)


def test_small_sources_sparse_rows_and_functions_train_as_arrays_do(table) -> None:
    X, y = table
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    given = {**SHORT, "batch_size": None, "early_stopping": False}
    memory = ProtoPINVClassifier(**given).fit(X, y)
    for source in (ArrayRows(X, y), BatchRows(lambda i: (X[i::2], y[i::2]), 2)):
        model = ProtoPINVClassifier(**given).fit(source)
        assert model.score(X, y) == pytest.approx(memory.score(X, y), abs=0.02)
    thin = ProtoPINVClassifier(**given).fit(sparse.csr_matrix(X), y)
    assert furthest(thin, memory) == 0
    np.testing.assert_array_equal(thin.predict(sparse.csc_matrix(X)), memory.predict(X))
    streamed = ProtoPINVClassifier(**given).fit(ArrayRows(sparse.csr_matrix(X), y, memory=0))
    assert furthest(streamed, memory) <= 1e-5


def test_names_of_columns_are_kept(table, tmp_path: Path) -> None:
    X, y = table
    pq.write_table(pa.table({"b": X[:, 0], "a": X[:, 1], "y": pa.array(y)}), tmp_path / "t.parquet")
    for memory in (0, 2**29):
        source = open_rows(tmp_path / "t.parquet", "y", memory=memory)
        assert ProtoPINVClassifier(**SHORT).fit(source).feature_names_in_.tolist() == ["b", "a"]


def test_rows_that_cannot_be_used_are_named(table) -> None:
    X, y = table
    bad = X.copy()
    bad[2_345, 3] = np.inf
    model = ProtoPINVClassifier(**SHORT)
    with pytest.raises(DataError, match=r"Row 2,346 of X holds inf in column 3"):
        model.fit(ArrayRows(bad, y, memory=0))
    weight = np.ones(len(y))
    weight[17] = -1
    with pytest.raises(DataError, match=r"Row 18 of X has -1"):
        model.fit(ArrayRows(X, y, weight, memory=0))
    with pytest.raises(DataError, match="only one class"):
        model.fit(ArrayRows(X, np.zeros(len(X)), memory=0))
    with pytest.raises(DataError, match="Some rows must count"):
        model.fit(ArrayRows(X, y, np.zeros(len(X)), memory=0))
    with pytest.raises(DataError, match="brings its targets and weights along"):
        model.fit(ArrayRows(X, y, memory=0), y)
    with pytest.raises(DataError, match="Targets must be finite"):
        ProtoPINVRegressor(**SHORT).fit(ArrayRows(X, bad[:, 3], memory=0))
    warm = ProtoPINVClassifier(**SHORT, warm_start=True).fit(X, y)
    with pytest.raises(ConfigError, match="warm start needs rows in memory"):
        warm.fit(ArrayRows(X, y, memory=0))


def test_a_model_that_was_streamed_is_saved_and_read(table, tmp_path: Path) -> None:
    from protopinv import load

    X, y = table
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ProtoPINVClassifier(**SHORT).fit(ArrayRows(X, y, memory=0))
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "m.safetensors").predict(X), model.predict(X))


def test_quantities_are_no_classes(table) -> None:
    rows = ArrayRows(table[0], np.where(np.arange(3000) == 2500, 0.5, 1.0), memory=0)
    with pytest.raises(DataError, match=r"holds 0\.5\. If the target is a quantity"):
        ProtoPINVClassifier(**SHORT).fit(rows)
