"""From arrays to a trained network below the estimators, for tests that look at each step."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from protopinv.model import merged_network
from protopinv.network import Network
from protopinv.train.config import TrainConfig
from protopinv.train.data import Data
from protopinv.train.prepare import prepare
from protopinv.train.training import Candidate, Job, Trained, train

HOST = torch.device("cpu")


class Model(NamedTuple):
    """What a training leaves, the network its banks are merged into, and what was screened."""

    trained: Trained
    network: Network
    candidates: tuple[Candidate, ...]


def train_model(data: Data, candidates: Sequence[TrainConfig], **job: Any) -> Model:
    """Prepare rows on the CPU, screen the candidates, and train the best of them."""
    prepared = prepare(data, candidates[0], HOST, seed=0)
    started = time.perf_counter()
    (trained, *_), seen = train(
        prepared,
        data.objective,
        candidates,
        Job(0, HOST, lambda: time.perf_counter() - started, **job),
    )
    network = merged_network(
        trained.bank, prepared.features, data.objective, trained.config, trained.calibration
    )
    return Model(trained, network, seen)
