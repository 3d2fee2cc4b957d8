"""Noise and mixup: what rows look like while training."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from protopinv import ProtoPINVClassifier
from protopinv.objective import Classes
from protopinv.train.rows import POOL_ROWS, Augment, Rows
from protopinv.train.state import Average


def rows_of(n: int, d: int = 6) -> Rows:
    return Rows(torch.zeros(n, d), torch.arange(n) % 3)


def augment(generator: torch.Generator, mixup: float = 0.0, input_noise: float = 0.0) -> Augment:
    return Augment(mixup, input_noise, Classes(np.arange(3)), generator)


@pytest.mark.parametrize("n", [100, 1024, POOL_ROWS, 3 * POOL_ROWS + 5])
def test_noise_has_the_deviation_asked_for_and_leaves_the_rows(
    n: int, generator: torch.Generator
) -> None:
    rows, noisy = rows_of(n), augment(generator, input_noise=0.5)
    seen = noisy(rows)
    assert seen.X.shape == rows.X.shape
    assert seen.X.std() == pytest.approx(0.5, rel=0.1)
    assert seen.X.mean() == pytest.approx(0, abs=0.08)
    assert (rows.X == 0).all()
    assert seen.y is rows.y


def test_noise_is_new_every_time_and_renewed(generator: torch.Generator) -> None:
    rows, noisy = rows_of(512), augment(generator, input_noise=1.0)
    draws = [noisy(rows).X for _ in range(300)]
    assert all(not torch.equal(a, b) for a, b in pairwise(draws))
    # 300 draws of 512 rows renew the pool of 8192 twice over: nothing of the first is left
    first, last = ({*draw[:, 0].tolist()} for draw in (draws[0], draws[-1]))
    assert not first & last
    spread = torch.stack(draws[:64]).flatten(0, 1).std(dim=0)
    torch.testing.assert_close(spread, torch.ones(6), rtol=0.1, atol=0.1)


def test_rows_are_mixed_within_their_fold_and_never_with_one_that_does_not_count(
    generator: torch.Generator,
) -> None:
    n = 600
    fold = torch.arange(n) % 4 - 1  # -1: in no fold
    weight = (torch.arange(n) % 3 > 0).float()[None]
    X = torch.stack([fold.float(), weight[0]], dim=1)  # rows that tell their fold and weight
    seen = augment(generator, mixup=0.9)(Rows(X, torch.arange(n) % 3, weight, None, fold))
    assert torch.equal(seen.X[:, 0], X[:, 0])
    counted = weight[0] > 0
    assert (seen.X[counted, 1] == 1).all()
    assert (seen.X[~counted, 1] > 0).float().mean() > 0.9  # a partner that counts
    assert torch.equal(seen.weight, weight)


def test_mixup_takes_a_share_of_another_row_and_of_its_label(generator: torch.Generator) -> None:
    y = torch.arange(300) % 3
    rows = Rows(torch.nn.functional.one_hot(y, 3).float(), y)  # features that tell the label
    seen = augment(generator, mixup=0.4)(rows)
    torch.testing.assert_close(seen.X, seen.y)
    torch.testing.assert_close(seen.y.sum(1), torch.ones(300))
    own = seen.y.gather(1, y[:, None])
    assert own.min() >= 0.6
    mixed = own[own < 1]
    assert len(mixed) > 150
    assert mixed.mean() == pytest.approx(0.8, abs=0.03)


def test_shares_of_one_class_cost_what_its_label_costs(generator: torch.Generator) -> None:
    outputs, labels = torch.randn(50, 3, generator=generator), torch.arange(50) % 3
    shares = torch.nn.functional.one_hot(labels, 3).float()
    for smoothing in (0.0, 0.1):
        objective = Classes(np.arange(3), smoothing)
        one, other = (objective.judge(outputs.T[None].clone(), y) for y in (shares, labels))
        torch.testing.assert_close(one.losses, other.losses)
        torch.testing.assert_close(one.gradient, other.gradient)
        torch.testing.assert_close(one.plain, other.plain)


def test_an_average_forgets_the_start_and_follows_the_steps() -> None:
    values = [torch.tensor([float(step)]) for step in range(200)]
    average = Average([values[0]], decay=0.9)
    for value in values:
        average.update([value])
    # an exponential average of a line lags by decay / (1 - decay) = 9 steps
    assert float(average.tensors[0]) == pytest.approx(199 - 9, abs=0.1)


@pytest.mark.parametrize(
    "options", [{"mixup": 0.3}, {"averaging": 0.9}, {"input_noise": 0.3}, {"optimizer": "muon"}]
)
def test_every_recipe_learns(blobs, options: dict[str, object]) -> None:
    X, y = blobs
    model = ProtoPINVClassifier(
        n_prototypes=15, hidden_sizes=12, max_epochs=60, random_state=0, **options
    )
    assert model.fit(X, y).score(X, y) == 1


def test_the_average_is_what_is_kept_and_validated(blobs) -> None:
    X, y = blobs
    chosen = {"hidden_sizes": 12, "max_epochs": 30, "schedule": "constant", "random_state": 0}
    chosen["early_stopping"] = False
    states = []
    model = ProtoPINVClassifier(n_prototypes=15, averaging=0.8, validation_fraction=0.2, **chosen)
    model.fit(X, y, observer=lambda report: states.append(report.state.inputs.detach().clone()))
    plain = ProtoPINVClassifier(n_prototypes=15, validation_fraction=0.2, **chosen).fit(X, y)
    torch.testing.assert_close(plain.bank_.inputs, states[-1], rtol=1e-4, atol=1e-4)
    average = Average([states[0]], 0.8)
    assert not torch.allclose(model.bank_.inputs, states[-1], rtol=1e-3)
    for state in states:
        average.update([state])
    torch.testing.assert_close(model.bank_.inputs, average.tensors[0], rtol=0.05, atol=0.05)
