"""Fits in several threads: each as if it were alone, and nothing of the process is changed."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from protopinv import ArrayRows, ProtoPINVClassifier, ProtoPINVRegressor

SMALL = {"n_prototypes": 12, "hidden_sizes": 8, "max_epochs": 12, "random_state": 3}


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    """So that a fit has something to change."""
    before, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
    torch.set_float32_matmul_precision(precision)


def rows() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).standard_normal((300, 4))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


def in_new_thread(work) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def process_state() -> list[Any]:
    """All of torch and numpy that a fit could leave changed behind it."""
    matmul, mkldnn = torch.backends.cuda.matmul, torch.backends.mkldnn
    return [
        torch.get_num_threads(),
        in_new_thread(torch.get_num_threads),
        torch.get_num_interop_threads(),
        torch.get_float32_matmul_precision(),
        matmul.fp32_precision,
        matmul.allow_tf32,
        mkldnn.matmul.fp32_precision,
        mkldnn.enabled,
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_rng_state().tolist(),
        np.random.get_state()[1].tolist(),
    ]


def fits() -> dict[str, Any]:
    X, y = rows()
    return {
        "float32": lambda: ProtoPINVClassifier(**SMALL, dtype="float32").fit(X, y),
        "float64": lambda: ProtoPINVRegressor(**SMALL, dtype="float64").fit(X, X[:, 0] * X[:, 1]),
        "streamed": lambda: ProtoPINVClassifier(**SMALL).fit(ArrayRows(X, y, memory=0)),
    }


def weights(model: Any) -> list[np.ndarray]:
    return [part.numpy() for part in (*model.network_.weights, model.bank_.inputs)]


@pytest.mark.parametrize("precision", ["highest", "medium"])
def test_fits_in_threads_are_those_one_after_another_and_leave_all_as_it_was(
    precision: str,
) -> None:
    torch.set_float32_matmul_precision(precision)
    before = process_state()
    expected = {name: weights(fit()) for name, fit in fits().items()}
    assert process_state() == before
    X, y = rows()
    known = ProtoPINVClassifier(**SMALL, effort="quick").fit(X, y)
    answers, is_over, seen = known.predict_proba(X), threading.Event(), []

    def predict() -> None:
        while not is_over.is_set():
            seen.append(np.array_equal(known.predict_proba(X), answers))

    with ThreadPoolExecutor(4) as pool:
        predicting = pool.submit(predict)
        begun = {name: pool.submit(fit) for name, fit in fits().items()}
        found = {name: weights(future.result()) for name, future in begun.items()}
        is_over.set()
        predicting.result()
    assert process_state() == before
    assert seen
    assert all(seen)
    for name, parts in expected.items():
        for mine, theirs in zip(found[name], parts, strict=True):
            np.testing.assert_array_equal(mine, theirs, err_msg=name)


@pytest.mark.parametrize("name", ["float32", "streamed"])
def test_a_thread_that_begins_while_another_fits_has_the_usual_number_of_threads(name: str) -> None:
    X, y = rows()
    own, others = [], []

    def watch(_: object) -> None:
        own.append(torch.get_num_threads())
        others.append(in_new_thread(torch.get_num_threads))

    given = (ArrayRows(X, y, memory=0),) if name == "streamed" else (X, y)
    ProtoPINVClassifier(**SMALL).fit(*given, observer=watch)
    assert set(own) == {1}
    assert set(others) == {2}
    assert torch.get_num_threads() == 2
