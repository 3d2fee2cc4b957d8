"""Many trainings as few: members of a population learn what they would learn alone."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import training
from benchmarks.record import Record
from benchmarks.tasks import Arrays
from benchmarks.training import (
    Job,
    accuracy_of,
    batches_of,
    config_of,
    sizes_of,
    train_population,
    train_together,
)
from protopinv.errors import ConfigError, TrainingError
from protopinv.model import merged_network
from protopinv.objective import Classes
from protopinv.train.config import TrainConfig
from protopinv.train.prepare import prepare
from protopinv.train.resolve import DataShape, resolved
from protopinv.train.training import Job as OneJob
from protopinv.train.training import train

SHAPE = DataShape(90, 5, 3)
CONFIG = resolved(
    TrainConfig(
        n_prototypes=9,
        hidden_sizes=6,
        max_epochs=60,
        lr=0.1,
        dtype="float64",
        learn_scale=False,
        early_stopping=False,
    ),
    SHAPE,
)
CPU = torch.device("cpu")


@pytest.fixture
def data(blobs) -> Arrays:
    X, y = blobs
    return Arrays(X, y, Classes(np.unique(y)))


def test_a_member_is_what_it_would_be_alone(data: Arrays) -> None:
    configs = [CONFIG, replace(CONFIG, lr=0.02), replace(CONFIG, ridge=3.0, hidden_decay=0.1)]
    models = train_population(data, configs, [5, 6, 7], device=CPU)
    for config, seed, model in zip(configs, [5, 6, 7], models, strict=True):
        prepared = prepare(replace(data, seed=seed).data, config, CPU, seed=seed)
        (alone,), _ = train(
            prepared, data.objective, [config], OneJob(seed, CPU, time.perf_counter)
        )
        network = merged_network(alone.bank, prepared.features, data.objective, config)
        assert model is not None
        assert model.history.loss == pytest.approx(alone.history.loss)
        for mine, theirs in zip(model.network.weights, network.weights, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8)


def test_what_differs_in_shape_is_trained_apart(monkeypatch) -> None:
    wide = replace(CONFIG, hidden_sizes=7)
    other = replace(CONFIG, lr=0.1, ridge=2.0, input_decay=0.1)
    jobs = [Job(config, seed) for seed in (0, 1) for config in (CONFIG, wide, other)]
    assert batches_of(jobs) == [[0, 2, 3, 5], [1, 4]]
    monkeypatch.setattr(training, "MOST_TOGETHER", 3)
    assert batches_of(jobs) == [[0, 2, 3], [5], [1, 4]]


def test_every_job_gets_its_model_and_its_own_reports(data: Arrays) -> None:
    seen: dict[int, list[np.ndarray]] = {0: [], 1: []}

    def watch(job: int):
        def observe(report) -> None:
            assert report.state.n_members == len(report.loss) == 1
            seen[job].append(report.state.inputs.numpy().copy())

        return observe

    jobs = [
        Job(CONFIG, 0, watch(0)),
        Job(replace(CONFIG, hidden_sizes=7), 1),
        Job(CONFIG, 1, watch(1)),
    ]
    found = dict(train_together(data, jobs, "cpu"))
    assert set(found) == {0, 1, 2}
    assert len(seen[0]) == len(seen[1]) == CONFIG.max_epochs
    assert not np.array_equal(seen[0][0], seen[1][0])
    for model in found.values():
        assert not isinstance(model, TrainingError)
        assert accuracy_of(model, data.X, data.y, "cpu") > 0.9
    assert sizes_of(found[0]) == (9 * (5 + 6 + 3), 6 * 6 + 7 * 3)


def test_a_job_that_cannot_be_trained_says_so_and_spares_the_others(data: Arrays) -> None:
    broken = replace(CONFIG, lr=1e30, optimizer="adam")
    found = dict(train_together(data, [Job(CONFIG, 0), Job(broken, 0)], "cpu"))
    assert not isinstance(found[0], TrainingError)
    assert accuracy_of(found[0], data.X, data.y, "cpu") > 0.9


def test_folds_are_no_part_of_a_population(data: Arrays) -> None:
    crossed = replace(CONFIG, early_stopping="cross", n_members=5)
    with pytest.raises(ConfigError, match="no folds"):
        train_population(data, [crossed], [0], device=CPU)


def test_parameters_are_settled_as_an_estimator_does(data: Arrays) -> None:
    config = config_of({"early_stopping": False, "lr": 0.3}, data, "cpu")
    assert (config.lr, config.n_prototypes, config.dtype) == (0.3, 40, "float64")


def test_cells_are_kept_one_by_one_in_any_order(tmp_path: Path) -> None:
    record = Record(tmp_path, "study", {}, "cpu")
    asked: list[list[int]] = []

    def work(jobs):
        asked.append(list(jobs))
        yield 1, {"twice": 2 * jobs[1]}
        yield 0, {"twice": 2 * jobs[0]}

    jobs = {"a": 1, "b": 2}
    assert record.cells_of(jobs, work) == [{"twice": 2}, {"twice": 4}]
    assert record.cells_of(jobs, work) == [{"twice": 2}, {"twice": 4}]
    assert asked == [[1, 2]]

    def stopped(jobs):
        yield 0, {"twice": 6}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record.cells_of({"c": 3, "d": 4}, stopped)
    again = Record(tmp_path, "study", {}, "cpu")
    assert again.cells["c"] == {"twice": 6}
    assert "d" not in again.cells
