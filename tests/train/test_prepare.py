"""Laws of what is prepared: streams of one seed are apart."""

from itertools import combinations

import numpy as np
import pytest
import torch
from configs import concrete, data_of_arrays

from protopinv.objective import Classes
from protopinv.rows import keys_of
from protopinv.train import prepare, survey

USES = (prepare.FOR_NOISE, prepare.FOR_COPIES, prepare.FOR_FRONT)


def test_every_use_of_a_seed_draws_other_numbers() -> None:
    for seed in (0, 5, 2**31 - 1):
        seeds = [seed, *(prepare.stream(seed, use) for use in USES)]
        drawn = [torch.rand(4, generator=torch.Generator().manual_seed(s)) for s in seeds]
        for one, other in combinations(drawn, 2):
            assert not torch.equal(one, other)


def test_a_front_is_made_from_a_sample_that_is_the_same_in_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = (X[:, 0] > 0).astype(int)
    seen: list[torch.Tensor] = []
    usual = prepare.Squash.fit
    monkeypatch.setattr(survey, "SAMPLE_ROWS", 20)
    monkeypatch.setattr(prepare, "SAMPLE_ROWS", 20)
    monkeypatch.setattr(prepare.Squash, "fit", lambda X, w: seen.append(X) or usual(X, w))
    config = concrete(scaling="squash", projection="none")
    for seed in (5, 6):
        data = data_of_arrays(X, y, Classes(np.unique(y)), seed=seed)
        prepare.prepare(data, config, torch.device("cpu"), seed=seed)
    keys = keys_of(5, "sample", np.arange(200))
    assert torch.equal(seen[0], torch.from_numpy(X[np.sort(np.argsort(keys)[:20])]))
    assert not torch.equal(*seen)
