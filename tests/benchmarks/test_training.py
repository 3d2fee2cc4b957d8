"""Many trainings as few: members of a population learn what they would learn alone."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from protopinv.train.model import train_model, train_population
from protopinv.train.source import Source

from benchmarks import training
from benchmarks.record import Record
from benchmarks.training import Job, accuracy_of, batches_of, config_of, sizes_of, train_together
from protopinv.errors import ConfigError, TrainingError
from protopinv.objective import Classes
from protopinv.train.config import TrainConfig

CONFIG = TrainConfig(n_prototypes=9, hidden_sizes=6, max_epochs=60, lr=0.1, dtype="float64")
CPU = torch.device("cpu")


@pytest.fixture
def source(blobs) -> Source:
    X, y = blobs
    return Source(X, y, Classes.of(y))


def test_a_member_is_what_it_would_be_alone(source: Source) -> None:
    configs = [CONFIG, replace(CONFIG, lr=0.02), replace(CONFIG, ridge=3.0, label_smoothing=0.1)]
    chosen = {"device": CPU, "clock": time.perf_counter}
    models = train_population(source, configs, [5, 6, 7], **chosen)
    for config, seed, model in zip(configs, [5, 6, 7], models, strict=True):
        alone = train_model(source, [config], seed=seed, **chosen)
        assert model is not None
        assert model.history.loss == pytest.approx(alone.history.loss)
        for mine, theirs in zip(model.network.weights, alone.network.weights, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8)


def test_what_differs_in_shape_is_trained_apart(monkeypatch) -> None:
    wide = replace(CONFIG, hidden_sizes=7)
    other = replace(CONFIG, lr=0.1, ridge=2.0, input_noise=0.1)
    jobs = [Job(config, seed) for seed in (0, 1) for config in (CONFIG, wide, other)]
    assert batches_of(jobs) == [[0, 2, 3, 5], [1, 4]]
    monkeypatch.setattr(training, "MOST_TOGETHER", 3)
    assert batches_of(jobs) == [[0, 2, 3], [5], [1, 4]]


def test_every_job_gets_its_model_and_its_own_reports(source: Source) -> None:
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
    found = dict(train_together(source, jobs, "cpu"))
    assert set(found) == {0, 1, 2}
    assert len(seen[0]) == len(seen[1]) == CONFIG.max_epochs
    assert not np.array_equal(seen[0][0], seen[1][0])
    for model in found.values():
        assert not isinstance(model, TrainingError)
        assert accuracy_of(model, source.X, source.targets, "cpu") > 0.9
    assert sizes_of(found[0]) == (9 * (5 + 6 + 3), 6 * 6 + 7 * 3)


def test_a_job_that_cannot_be_trained_says_so_and_spares_the_others(source: Source) -> None:
    broken = replace(CONFIG, lr=1e30, optimizer="adam")
    found = dict(train_together(source, [Job(CONFIG, 0), Job(broken, 0)], "cpu"))
    assert not isinstance(found[0], TrainingError)
    assert accuracy_of(found[0], source.X, source.targets, "cpu") > 0.9


def test_folds_are_no_part_of_a_population(source: Source) -> None:
    crossed = replace(CONFIG, early_stopping="cross", n_members=5)
    with pytest.raises(ConfigError, match="no folds"):
        train_population(source, [crossed], [0], device=CPU, clock=time.perf_counter)


def test_parameters_are_settled_as_an_estimator_does(source: Source) -> None:
    config = config_of({"early_stopping": False, "lr": 0.3}, source, "cpu")
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
