"""The paper's own training step, as printed: primal solves by LU, everything through autograd."""

import torch
from torch import Tensor
from torch.nn import functional


class PaperListing:
    """One full-batch epoch of the listing in "Implementation Details (PyTorch)"."""

    def __init__(self, X: Tensor, y: Tensor, *, p: int, h: int, k: int, lam: float) -> None:
        self.X, self.y, self.lam = X, y, lam
        self.Xp = torch.randn(p, X.shape[1]).to(X).requires_grad_()
        self.Hp = torch.randn(p, h).to(X).requires_grad_()
        self.Yp = torch.eye(k).repeat(-(-p // k), 1)[:p].to(X).requires_grad_()
        self.optimizer = torch.optim.Adam([self.Xp, self.Hp, self.Yp], lr=1e-3)

    def epoch(self) -> float:
        """W1, W2 from explicit pseudo-inverses, all rows forward, backward, Adam."""
        W1 = pinv_ridge(add_bias(self.Xp), self.lam) @ self.Hp
        W2 = pinv_ridge(add_bias(torch.relu(self.Hp)), self.lam) @ self.Yp
        H1 = add_bias(torch.relu(add_bias(self.X) @ W1))
        loss = functional.cross_entropy(H1 @ W2, self.y)
        loss = loss + 1e-6 * (W1.norm() ** 2 + W2.norm() ** 2)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


def pinv_ridge(A: Tensor, lam: float) -> Tensor:
    """(A'A + lam I)^-1 A'."""
    At = A.transpose(0, 1)
    identity = torch.eye(A.shape[1], device=A.device, dtype=A.dtype)
    pseudo_inverse: Tensor = torch.linalg.solve(At @ A + lam * identity, At)
    return pseudo_inverse


def add_bias(Z: Tensor) -> Tensor:
    """[1, Z]."""
    return torch.cat([torch.ones(len(Z), 1, device=Z.device, dtype=Z.dtype), Z], dim=1)
