"""Activations into buffers, and the way back, are those of autograd."""

import pytest
import torch
from torch import Generator

from protopinv.network import ACTIVATIONS
from protopinv.train.data_pass import IN_PLACE


@pytest.mark.parametrize("activation", IN_PLACE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_activation_fills_a_buffer_with_gaps(activation: str, dtype: torch.dtype) -> None:
    """As the hidden part of a design is: its first column belongs to the ones."""
    Z = torch.randn(3, 7, 9, dtype=dtype, generator=Generator().manual_seed(0))
    design = torch.ones(3, 7, 10, dtype=dtype)
    IN_PLACE[activation].forward(Z, design[..., 1:])
    torch.testing.assert_close(design[..., 1:], ACTIVATIONS[activation](Z))
    assert (design[..., 0] == 1).all()


@pytest.mark.parametrize("activation", IN_PLACE)
def test_a_gradient_goes_back_in_place(activation: str) -> None:
    Z = torch.randn(3, 7, 9, dtype=torch.float64, generator=Generator().manual_seed(0))
    Z.requires_grad_()
    A = ACTIVATIONS[activation](Z)
    wide = torch.randn(3, 7, 10, dtype=torch.float64, generator=Generator().manual_seed(1))
    (expected,) = torch.autograd.grad((A * wide[..., 1:]).sum(), Z)
    act, G = IN_PLACE[activation], wide[..., 1:]
    act.backward(G, A.detach() if act.from_output else Z.detach())
    torch.testing.assert_close(G, expected)
