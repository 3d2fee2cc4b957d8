"""What ablations keep of a run: allocation of prototypes, and the gap with its predictors."""

import math

import numpy as np
import pytest
import torch
from torch import Generator

from benchmarks.paper.measures import Outputs, measure_allocation, measure_generalisation
from protopinv import ProtoPINVClassifier
from protopinv.network import Network


def test_allocation_counts_prototypes_and_confused_rows() -> None:
    first = torch.eye(3).repeat(2, 1)
    last = torch.tensor([[1, 0, 0], [0, 2, 0], [0, 2, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0.0]])
    found = measure_allocation(first, last, [[8, 2, 0], [1, 9, 0], [0, 0, 10]])
    assert found.start == (2, 2, 2)
    assert found.end == (2, 4, 0)
    assert found.moved == 2
    assert found.mass == pytest.approx((2 / 12, 10 / 12, 0))
    assert found.ambiguity == pytest.approx((3 / 11, 3 / 12, 0))


def test_gaps_and_measures_of_a_network_that_is_known(generator: Generator) -> None:
    first, second = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((5, 6), (7, 3))
    )
    network = Network((first, second), "relu")
    labels = torch.arange(100) % 3
    right = torch.nn.functional.one_hot(labels, 3).double()
    scaled = right * torch.linspace(0, 1, 100, dtype=torch.float64)[:, None]
    train, test = Outputs(scaled + 0.001 * right, labels), Outputs(right.flip(0), labels)
    assert (train.error, test.error) == (0, pytest.approx(0.66, abs=0.01))
    assert train.margin == pytest.approx(0.101)
    model = ProtoPINVClassifier(n_prototypes=6, hidden_sizes=4, max_epochs=1).fit(
        right.numpy(), labels.numpy()
    )
    found = measure_generalisation(network, model.diagnose(), train, test)
    assert found.error_gap == pytest.approx(test.error)
    assert found.loss_gap == pytest.approx(test.loss - train.loss)
    assert found.kappa == model.diagnose().layers[0].condition
    assert found.kappa_term == pytest.approx(found.kappa / 10)
    assert found.confidence_term == pytest.approx(math.sqrt(math.log(20) / 200))
    norms = [np.linalg.norm(W[1:].numpy(), 2) for W in (first, second)]
    assert found.spectral_norm == pytest.approx(norms[0] * norms[1])
    assert found.spectral_over_margin == pytest.approx(norms[0] * norms[1] / 0.101)
