"""Laws of the data pass: what autograd would give, for every activation, depth and target."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Generator

from benchmarks.baselines.mlp import MLPBaselineClassifier
from protopinv import ProtoPINVClassifier
from protopinv.data import load_data
from protopinv.errors import SlowRowsWarning
from protopinv.network import propagate
from protopinv.objective import Classes
from protopinv.train.data_pass import IN_PLACE, Buffers, data_pass
from protopinv.train.rows import Rows


def problem(n: int, sizes: tuple[int, ...]) -> tuple[Rows, list[torch.Tensor]]:
    generator = Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    weights = [draw(1, a + 1, b) for a, b in pairwise(sizes)]
    return Rows(draw(n, sizes[0]), torch.arange(n) % sizes[-1]), weights


@pytest.mark.parametrize("activation", IN_PLACE)
@pytest.mark.parametrize("sizes", [(4, 3), (4, 6, 3), (4, 6, 5, 3)])
@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_loss_and_gradients_are_those_of_autograd(activation, sizes, shares, smoothing):
    rows, weights = problem(23, sizes)
    if shares:
        mixed = torch.softmax(torch.randn(23, 3, dtype=torch.float64), dim=1)
        rows = Rows(rows.X, mixed)
    passed = data_pass(rows, weights, activation, Classes(np.arange(3), smoothing), chunk=7)
    leaves = [W[0].clone().requires_grad_() for W in weights]
    outputs = propagate(rows.X, leaves, activation)
    expected = torch.nn.functional.cross_entropy(outputs, rows.y, label_smoothing=smoothing)
    expected.backward()
    torch.testing.assert_close(passed.loss[0], expected.detach())
    for mine, leaf in zip(passed.gradients, leaves, strict=True):
        torch.testing.assert_close(mine[0], leaf.grad)


def test_buffers_are_used_again_and_change_nothing():
    rows, weights = problem(40, (4, 6, 5, 3))
    buffers = Buffers()
    options = {"chunk": 16, "buffers": buffers}
    first = data_pass(rows, weights, "gelu", Classes(np.arange(3)), **options)
    made = len(buffers.tensors)
    second = data_pass(rows, weights, "gelu", Classes(np.arange(3)), **options)
    assert len(buffers.tensors) == made > 0
    assert torch.equal(first.loss, second.loss)
    assert all(map(torch.equal, first.gradients, second.gradients))


def test_rows_and_weights_are_left_alone():
    rows, weights = problem(10, (4, 6, 3))
    before = [tensor.clone() for tensor in (rows.X, *weights)]
    data_pass(rows, weights, "relu", Classes(np.arange(3)), chunk=4)
    assert all(map(torch.equal, before, (rows.X, *weights)))


def test_rows_in_bfloat16_give_nearly_the_same_gradients_in_the_type_of_the_weights():
    rows, weights = problem(400, (30, 40, 20))
    weights = [W.float() / W.shape[1] ** 0.5 for W in weights]
    exact = Rows(rows.X.float(), rows.y)
    rough = Rows(rows.X.bfloat16(), rows.y)
    objective = Classes(np.arange(20))
    passed = data_pass(exact, weights, "relu", objective, chunk=64)
    near = data_pass(rough, weights, "relu", objective, chunk=64)
    assert near.loss.dtype == torch.float32
    torch.testing.assert_close(near.loss, passed.loss, rtol=1e-2, atol=0)
    for mine, G in zip(near.gradients, passed.gradients, strict=True):
        assert mine.dtype == torch.float32
        assert (mine - G).norm() < 0.05 * G.norm()


@pytest.mark.parametrize("estimator", [ProtoPINVClassifier, MLPBaselineClassifier])
def test_bfloat16_where_it_is_slow_is_not_used_and_that_is_said(blobs, estimator, monkeypatch):
    monkeypatch.setattr("protopinv.fitting.fast_bfloat16", lambda _: False)
    options = {"max_epochs": 3, "random_state": 0, "dtype": "float32"}
    with pytest.warns(SlowRowsWarning, match=r"Went on with row_dtype='same'"):
        rough = estimator(row_dtype="bfloat16", **options).fit(*blobs)
    assert rough.config_.row_dtype == "same"
    plain = estimator(row_dtype="same", **options).fit(*blobs)
    assert all(map(torch.equal, rough.network_.weights, plain.network_.weights))


@pytest.mark.parametrize("estimator", [ProtoPINVClassifier, MLPBaselineClassifier])
def test_training_on_bfloat16_rows_learns_as_well(estimator, monkeypatch):
    """Slow or not: where this machine has no instructions for it, it is told that it has."""
    monkeypatch.setattr("protopinv.fitting.fast_bfloat16", lambda _: True)
    data, test = (load_data("digits", split=split) for split in ("train", "test"))
    options = {"max_epochs": 60, "scaling": "global", "early_stopping": False, "random_state": 0}
    options |= {"lr": 0.05, "validation_fraction": 0.1, "device": "cpu"}
    exact, rough = (
        estimator(row_dtype=kind, **options).fit(data.X, data.y) for kind in ("same", "bfloat16")
    )
    assert (exact.config_.row_dtype, rough.config_.row_dtype) == ("same", "bfloat16")
    assert rough.network_.weights[0].dtype == torch.float64
    assert rough.score(test.X, test.y) > exact.score(test.X, test.y) - 0.02
