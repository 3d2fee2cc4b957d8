"""Laws of the ensemble: how candidates are weighted, and that all parts change together."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, load
from protopinv.objective import Classes
from protopinv.train.ensemble import ROUNDS, HeldOut, combined, greedy

TINY = {"n_prototypes": 12, "hidden_sizes": (8,), "max_epochs": 30, "random_state": 0}


def held(*outputs: torch.Tensor) -> list[HeldOut]:
    """Outputs of candidates for the same rows, of three classes."""
    truth = torch.randint(3, (300,), generator=Generator().manual_seed(1))
    weight = torch.ones(300, dtype=torch.float64)
    right = torch.nn.functional.one_hot(truth, 3).T.double()[None]
    return [HeldOut(Classes(np.arange(3)), right + each, truth, weight) for each in outputs]


def noise(seed: int, size: float) -> torch.Tensor:
    return size * torch.randn(1, 3, 300, generator=Generator().manual_seed(seed)).double()


def test_the_mean_is_no_worse_than_the_best_candidate_on_the_rows_that_weight_it() -> None:
    candidates = held(noise(0, 1.0), noise(1, 1.1), noise(2, 5.0))
    outputs = [each.outputs for each in candidates]
    weights = greedy(candidates[0], outputs)
    assert sum(weights) == pytest.approx(1)
    assert all(weight * ROUNDS == pytest.approx(round(weight * ROUNDS)) for weight in weights)
    mean = torch.stack([w * each for w, each in zip(weights, outputs, strict=True)]).sum(0)
    judge = candidates[0]
    assert judge.loss(mean) < min(judge.loss(each) for each in outputs)
    assert weights[2] < min(weights[:2])


def test_a_candidate_that_is_not_finite_has_no_weight() -> None:
    candidates = held(noise(0, 1.0), noise(1, 1.0) * torch.nan)
    assert [weight for weight, _ in combined(candidates)] == [1, 0]


def test_one_candidate_is_calibrated_alone() -> None:
    (only,) = held(noise(0, 2.0))
    assert combined([only]) == [(1.0, only.calibration()[0])]
    assert combined([None]) == [(1.0, 1.0)]


def test_weights_that_are_known_stay_and_their_mean_is_calibrated() -> None:
    candidates = held(noise(0, 1.0), noise(1, 3.0))
    pairs = combined(candidates, [0.25, 0.75])
    assert [weight for weight, _ in pairs] == [0.25, 0.75]
    mean = torch.stack(
        [each.outputs * w * c for each, (w, c) in zip(candidates, pairs, strict=True)]
    )
    assert candidates[0].calibration(mean.sum(0))[0] == pytest.approx(1, abs=1e-3)


@pytest.fixture(scope="module")
def jumps() -> tuple[np.ndarray, np.ndarray]:
    """A class that changes with every fifth of one column, beside two that say nothing."""
    X = np.random.default_rng(0).uniform(size=(600, 3))
    return X, np.floor(5 * X[:, 0]).astype(int) % 2


@pytest.fixture(scope="module")
def fitted(jumps) -> ProtoPINVClassifier:
    return ProtoPINVClassifier(**TINY).fit(*jumps)


def test_a_table_has_an_ensemble_whose_outputs_are_the_weighted_mean(fitted, jumps) -> None:
    model = fitted.model_
    assert len(fitted.candidates_) > 1
    assert sum(part.weight for part in model.parts) == pytest.approx(1)
    # a part by itself weighs its outputs, too
    mean = torch.stack([part.outputs(jumps[0]) for part in model.parts]).sum(0)
    torch.testing.assert_close(model.outputs(jumps[0]), mean, rtol=1e-9, atol=1e-9)
    weights = sorted((c.weight for c in fitted.candidates_ if c.weight), reverse=True)
    assert weights == [part.weight for part in model.parts]


def test_steps_follow_a_target_that_jumps(jumps) -> None:
    X, y = jumps
    scores = {
        encoding: ProtoPINVClassifier(**TINY, number_encoding=encoding)
        .fit(X[:400], y[:400])
        .score(X[400:], y[400:])
        for encoding in ("raw", "steps", "both")
    }
    assert min(scores["steps"], scores["both"]) > 0.9 > scores["raw"]


def test_steps_alone_do_not_see_the_unit_of_a_column(jumps) -> None:
    X, y = jumps
    scaled = X * [1000, 1e-3, 1] + [5, 0, -7]
    one, two = (
        ProtoPINVClassifier(**TINY, number_encoding="steps").fit(rows, y).predict_proba(rows)
        for rows in (X, scaled)
    )
    np.testing.assert_allclose(one, two, atol=1e-3)


def test_every_part_learns_forgets_grows_and_is_pruned(jumps) -> None:
    X, _ = jumps
    y = np.floor(3 * X[:, 0]).astype(int)
    model = ProtoPINVClassifier(**TINY).fit(X[:500], y[:500])
    parts = model.model_.parts
    model.partial_fit(X[500:], y[500:])
    assert all(a.bank is not b.bank for a, b in zip(parts, model.model_.parts, strict=True))
    sizes = [part.prototypes.n_prototypes for part in model.model_.parts]
    model.grow(3)
    assert [part.prototypes.n_prototypes for part in model.model_.parts] == [n + 3 for n in sizes]
    model.prune(6)
    assert {part.prototypes.n_prototypes for part in model.model_.parts} == {6}
    model.forget(1)
    assert {part.prototypes.outputs.shape[2] for part in model.model_.parts} == {2}
    assert set(model.predict(X)) <= {0, 2}
    # whatever they share is one thing
    assert len({id(part.memory) for part in model.model_.parts}) == 1


def test_a_new_class_reaches_every_part(jumps) -> None:
    X, y = jumps
    model = ProtoPINVClassifier(**TINY).fit(X, y)
    new = X + np.array([5, 0, 0])
    model.partial_fit(new, np.full(len(new), 7))
    assert (model.predict(new) == 7).mean() > 0.95
    assert (model.predict(X) != 7).mean() > 0.95


def test_a_warm_start_keeps_parts_and_weights(jumps) -> None:
    model = ProtoPINVClassifier(**TINY).fit(*jumps)
    weights = [part.weight for part in model.model_.parts]
    model.set_params(warm_start=True, max_epochs=5).fit(*jumps)
    assert [part.weight for part in model.model_.parts] == weights
    assert model.score(*jumps) > 0.95
    assert model.n_iter_ == 5


def test_a_file_holds_the_ensemble_and_it_learns_on(fitted, jumps, tmp_path: Path) -> None:
    fitted.save(tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(jumps[0]), fitted.predict_proba(jumps[0]))
    assert [part.weight for part in loaded.model_.parts] == [p.weight for p in fitted.model_.parts]
    loaded.partial_fit(*jumps)
    assert loaded.score(*jumps) > 0.9


def test_one_candidate_is_a_plain_network(jumps) -> None:
    X, y = jumps
    options = {**TINY, "ensemble_size": 1, "number_encoding": "raw"}
    model = ProtoPINVRegressor(**options).fit(X, y)
    assert len(model.model_.parts) == 1
    assert model.model_.steps is None
    assert model.network_.sizes[0] == 3
