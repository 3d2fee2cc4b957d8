"""Rows in arrays, maps of files, sparse matrices and functions; keys of places; reading ahead."""

import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from protopinv import ArrayRows, BatchRows
from protopinv.errors import DataError
from protopinv.rows import arrays as arrays_module
from protopinv.rows import cached, keys_of
from protopinv.rows.cache import CachedRows, ahead


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    X = random.standard_normal((1000, 5)) * (random.random((1000, 5)) < 0.3)
    return X, (X[:, 0] > 0).astype(int), random.uniform(1, 2, 1000)


def test_all_kinds_give_the_same_rows(rows, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(arrays_module, "BLOCK_NUMBERS", 640)
    X, y, weight = rows
    mapped = np.memmap(tmp_path / "X", dtype=X.dtype, mode="w+", shape=X.shape)
    mapped[:] = X
    bounds = [0, 100, 100, 430, 1000]

    def batch(i: int) -> tuple[np.ndarray, ...]:
        part = slice(bounds[i], bounds[i + 1])
        return X[part], y[part], weight[part]

    for source in (
        ArrayRows(X, y, weight),
        ArrayRows(mapped, y, weight),
        ArrayRows(sparse.csc_matrix(X), y, weight),
        BatchRows(batch, 4),
    ):
        found = source.load()
        for mine, given in zip(found, rows, strict=True):
            np.testing.assert_array_equal(mine, given)
        assert len(source.blocks) > 2


def test_a_fingerprint_tells_arrays_apart(rows) -> None:
    X, y, weight = rows
    other = X.copy()
    other[-1, 3] += 1
    assert ArrayRows(X, y).fingerprint() == ArrayRows(X.copy(), y).fingerprint()
    assert ArrayRows(X, y).fingerprint() != ArrayRows(other, y).fingerprint()
    assert ArrayRows(X, y).fingerprint() != ArrayRows(X, y, weight).fingerprint()


def test_batches_that_do_not_fit_together_are_refused(rows) -> None:
    X, y, _ = rows
    with pytest.raises(DataError, match=r"must give a tuple"):
        BatchRows(lambda _: X, 2)
    with pytest.raises(DataError, match=r"Batch 1 has X of shape \(1000, 4\)"):
        BatchRows(lambda i: (X[:, : 5 - i], y), 2)
    growing = iter(range(10, 30))
    source = BatchRows(lambda _: _grown(X, y, growing), 1)
    with pytest.raises(DataError, match="the same rows whenever"):
        source.load()
    with pytest.raises(DataError, match="X has 1000 rows, y has 999"):
        ArrayRows(X, y[:-1])


def _grown(X, y, growing) -> tuple[np.ndarray, np.ndarray]:
    n = next(growing)
    return X[:n], y[:n]


def test_keys_are_even_and_depend_on_nothing_but_seed_salt_and_place() -> None:
    numbers = np.arange(100_000)
    keys = keys_of(3, "fold", numbers)
    np.testing.assert_array_equal(keys[[7, 5]], keys_of(3, "fold", np.array([7, 5])))
    assert len(np.unique(keys)) == len(numbers)
    for other in (keys_of(4, "fold", numbers), keys_of(3, "held", numbers)):
        assert not (other == keys).any()
    counts = np.bincount((keys % np.uint64(4)).astype(int))
    assert (abs(counts - 25_000) < 600).all()
    neighbours = np.corrcoef(keys[:-1].astype(float), keys[1:].astype(float))[0, 1]
    assert abs(neighbours) < 0.02


def test_reading_ahead_keeps_order_raises_where_it_would_and_ends_its_thread() -> None:
    assert list(ahead(iter(range(100)))) == list(range(100))

    def failing():
        yield 1
        raise DataError("row 7")

    found = ahead(failing())
    assert next(found) == 1
    with pytest.raises(DataError, match="row 7"):
        next(found)
    before = threading.active_count()
    stopped = ahead(iter(range(1000)))
    next(stopped)
    stopped.close()
    assert threading.active_count() == before


def test_an_item_is_made_while_the_one_before_is_used() -> None:
    made = []

    def making():
        for number in range(3):
            made.append(number)
            yield number

    items = ahead(making(), 1)
    next(items)
    for _ in range(200):
        if 1 in made:
            break
        time.sleep(0.01)
    assert 1 in made
    items.close()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a folder in memory")
def test_a_cache_goes_to_a_disk_by_itself(rows, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = rows
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    source = cached(BatchRows(lambda _: (X, y), 1, cache="auto"))
    if isinstance(source, CachedRows):  # there may be no disk at all
        assert os.fstat(source._file.fileno()).st_dev != Path("/dev/shm").stat().st_dev
    assert isinstance(cached(BatchRows(lambda _: (X, y), 1, cache="/dev/shm")), CachedRows)


def test_a_cache_gives_the_same_rows_without_asking_again(rows, tmp_path: Path) -> None:
    X, y, weight = rows
    asked = []
    names = np.array(["no", "yes"], dtype=object)[y]

    def batch(i: int) -> tuple[np.ndarray, ...]:
        asked.append(i)
        part = slice(250 * i, 250 * (i + 1))
        return X[part].astype(np.float32), names[part], weight[part]

    source = cached(BatchRows(batch, 4, cache=tmp_path))
    assert isinstance(source, CachedRows)
    assert list(tmp_path.iterdir()) == []  # a file without a name
    found = []
    for size in (100, 70):
        asked.clear()
        for block in reversed(source.blocks):
            pieces = list(source.read(block, size))
            found.append([np.concatenate([p[part] for p in pieces]) for part in range(3)])
    assert asked == []
    for first, again, block in zip(found[:4], found[4:], reversed(source.blocks), strict=True):
        for one, other in zip(first, again, strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
        assert again[1].tolist() == names[block.start : block.start + 250].tolist()


def test_a_disk_that_fills_up_only_ends_the_caching(rows, tmp_path: Path, monkeypatch) -> None:
    X, y, _ = rows
    source = cached(BatchRows(lambda i: (X[i::2], y[i::2]), 2, cache=tmp_path))

    def full(*_) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    for _ in range(2):
        np.testing.assert_array_equal(source.load()[0][:500], X[::2])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    assert not isinstance(cached(BatchRows(lambda _: (X, y), 1, cache=tmp_path)), CachedRows)
    assert not isinstance(cached(ArrayRows(X, y)), CachedRows)
