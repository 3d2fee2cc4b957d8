"""What a GPU does in a step without asking its host, on a host: the check and Adam's update."""

from types import SimpleNamespace

import pytest
import torch
from torch import Generator

from protopinv.train.optimizer import Optimizer, ParameterGroup
from protopinv.train.step import SOLVE_TOLERANCE, TrainingStep


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed))


def test_updates_are_those_of_torch_and_a_skipped_one_leaves_no_trace() -> None:
    mine = normal(2, 1500)
    theirs = [member.clone().requires_grad_() for member in mine]
    optimizers = [
        torch.optim.AdamW([theirs[0]], lr=0.005, weight_decay=0.1),
        torch.optim.AdamW([theirs[1]], lr=0.02, weight_decay=0.0),
    ]
    optimizer, factor = Optimizer([ParameterGroup([mine])], 1.0), torch.tensor(0.5)
    optimizer._rates = [(torch.tensor([0.01, 0.04]), torch.tensor([0.1, 0.0]))]
    for step in range(4):
        gradient = normal(2, 1500, seed=step)
        skip = torch.tensor([False, step == 1])  # the second misses one step
        for member, other in enumerate(optimizers):
            if not skip[member]:
                theirs[member].grad = gradient[member]
                other.step()
        gradient[skip] = torch.nan
        optimizer._steps.add_(~skip)
        optimizer._factor = factor
        optimizer._update(0, gradient, skip)
    torch.testing.assert_close(mine, torch.stack(theirs).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("loss", "error", "gradient", "failures"),
    [
        (0.5, 0.1, 1.0, [0, 0]),
        (torch.nan, 0.1, 1.0, [0, 1]),
        (0.5, 0.1, torch.inf, [0, 1]),
        (0.5, 0.1, -torch.inf, [0, 1]),
        (0.5, 0.1, torch.nan, [0, 1]),
        (0.5, 0.1, 1e18, [0, 0]),
        (0.5, 0.1, 1e20, [0, 1]),
        (0.5, 0.4, 1.0, [1, 0]),
        (0.5, torch.inf, 1.0, [1, 0]),
        (torch.nan, torch.nan, torch.nan, [1, 0]),
    ],
)
def test_a_step_is_judged_member_by_member(
    loss: float, error: float, gradient: float, failures: list[int]
) -> None:
    step = SimpleNamespace(failures=torch.zeros(2, 2, dtype=torch.long))
    large = torch.zeros(2, 5000)
    large[1, 4500] = gradient
    errors = torch.tensor([[0.0, 0.1, 0.2], [0.0, error, 0.2]])
    gradients = [torch.ones(2, 2, 3), large]
    losses = torch.tensor([0.7, loss])
    for _ in range(2):
        skip, report = TrainingStep._checked(step, losses, errors, gradients)
    norm = torch.nn.utils.get_total_norm([g[1] for g in gradients])
    plain = not bool((losses[1] + norm).isfinite() & (errors[1] < SOLVE_TOLERANCE).all())
    assert skip is None or skip.tolist() == [False, plain]
    assert plain == any(failures) == (skip is not None)
    assert report.isnan().tolist() == [False, any(failures)]
    assert step.failures.tolist() == [[0, 0], [2 * number for number in failures]]
