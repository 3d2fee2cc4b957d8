"""Laws of the kernels, run by Triton's interpreter where there is no GPU.

Triton reads the interpreter's switch when it is imported, so nothing may import it before.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Generator

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="needs Triton, which has no build for this system")

from protopinv.kernels import switched_off, usable
from protopinv.kernels.head import last_layer
from protopinv.kernels.sweep import sweep_inverse
from protopinv.kernels.update import adam_update, check_step
from protopinv.network import ACTIVATIONS
from protopinv.solve.systems import invert
from protopinv.train.data_pass import IN_PLACE

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed)).to(DEVICE)


@pytest.mark.parametrize("n", [1, 7, 32, 45])
def test_the_inverse_and_its_error_are_those_of_cholesky(n: int) -> None:
    A = normal(2, n, 60)
    systems = A @ A.mT / 60 + 0.1 * torch.eye(n, device=DEVICE)
    inverse, error = sweep_inverse(systems)
    with switched_off():
        expected, expected_error = invert(systems)
    torch.testing.assert_close(inverse, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(error, expected_error, rtol=1e-3, atol=0)


@pytest.mark.parametrize("fault", [-3.0, torch.nan, torch.inf])
def test_a_matrix_that_is_not_positive_definite_is_told(fault: float) -> None:
    systems = torch.eye(9, device=DEVICE).repeat(2, 1, 1)
    systems[1, 4, 4] = fault
    _, error = sweep_inverse(systems)
    assert error[0] < 1e-5
    assert error[1] == torch.inf


@pytest.mark.parametrize("activation", IN_PLACE)
@pytest.mark.parametrize(("n", "h", "k"), [(64, 64, 10), (70, 33, 3), (5, 80, 70)])
@pytest.mark.parametrize("members", [1, 3])
def test_the_last_layer_is_that_of_autograd(
    activation: str, n: int, h: int, k: int, members: int
) -> None:
    Z, W = normal(n, members * h), 0.2 * normal(members, h + 1, k, seed=1)
    weight = None if members == 1 else normal(members, n, seed=2).abs()
    smoothing = 0.1 if members == 1 else 0.0
    labels = torch.arange(n, device=DEVICE) % k
    z, w = Z.clone().requires_grad_(), W.clone().requires_grad_()
    hidden = ACTIVATIONS[activation](z).view(n, members, h).transpose(0, 1)
    logs = torch.log_softmax(hidden @ w[:, 1:] + w[:, :1], dim=-1)
    right = logs[:, torch.arange(n), labels]
    losses = -(1 - smoothing) * right - smoothing * logs.mean(-1)
    expected = (losses if weight is None else losses * weight).sum(1) / n
    expected.sum().backward()
    given = {"smoothing": smoothing, "scale": 1 / n}
    last = last_layer(Z, W, labels, weight, activation, **given)
    dW, room = torch.full_like(W, torch.nan), torch.full((members, 2, h), torch.nan, device=DEVICE)
    sums = room[:, 0]  # as the bias lies in the gradient of a layer
    close = {"rtol": 1e-4, "atol": 1e-6}
    loss = last.finish(dW, sums)
    torch.testing.assert_close(loss, expected.detach(), **close)
    torch.testing.assert_close(dW, w.grad, **close)
    torch.testing.assert_close(sums, z.grad.sum(0).view(members, h), **close)
    torch.testing.assert_close(Z, z.grad, **close)


def test_updates_are_those_of_torch_and_a_skipped_one_leaves_no_trace() -> None:
    mine = normal(2, 1500)
    theirs = [member.clone().requires_grad_() for member in mine]
    optimizers = [
        torch.optim.AdamW([theirs[0]], lr=0.005, weight_decay=0.1),
        torch.optim.AdamW([theirs[1]], lr=0.02, weight_decay=0.0),
    ]
    mean, square = torch.zeros_like(mine), torch.zeros_like(mine)
    steps, factor = torch.zeros(2, device=DEVICE), torch.full((), 0.5, device=DEVICE)
    rates, decays = torch.tensor([[0.01, 0.04], [0.1, 0.0]], device=DEVICE)
    options = {"rates": rates, "decays": decays, "betas": (0.9, 0.999), "eps": 1e-8}
    for step in range(4):
        gradient = normal(2, 1500, seed=step)
        skip = torch.tensor([False, step == 1], device=DEVICE)  # the second misses one step
        for member, optimizer in enumerate(optimizers):
            if not skip[member]:
                theirs[member].grad = gradient[member]
                optimizer.step()
        gradient[skip] = torch.nan
        steps.add_(~skip)
        tensors = (mine, gradient, mean, square)
        adam_update(*tensors, steps=steps, skip=skip, factor=factor, **options)
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
def test_a_step_is_judged_as_without_kernels_member_by_member(
    loss: float, error: float, gradient: float, failures: list[int]
) -> None:
    counted = torch.zeros(2, 2, dtype=torch.long, device=DEVICE)
    large = torch.zeros(2, 5000, device=DEVICE)
    large[1, 4500] = gradient
    errors = torch.tensor([[0.0, 0.1, 0.2], [0.0, error, 0.2]], device=DEVICE)
    gradients = [torch.ones(2, 2, 3, device=DEVICE), large]
    given = torch.tensor([0.7, loss], device=DEVICE)
    for _ in range(2):
        skip, report = check_step(given, errors, gradients, counted, tolerance=0.3)
    norm = torch.nn.utils.get_total_norm([g[1] for g in gradients])
    plain = not bool((given[1] + norm).isfinite() & (errors[1] < 0.3).all())
    assert skip.tolist() == [False, plain]
    assert plain == any(failures)
    assert report.isnan().tolist() == [False, any(failures)]
    assert counted.tolist() == [[0, 0], [2 * number for number in failures]]


def test_every_kernel_can_be_compiled_for_a_gpu() -> None:
    """In a process of its own: where it is not interpreted."""
    program = Path(__file__).with_name("compile_all.py")
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == 11


def test_without_a_gpu_no_kernel_is_used() -> None:
    assert not usable(torch.zeros(1))
    with switched_off():
        assert not usable(torch.zeros(1, device=DEVICE))
