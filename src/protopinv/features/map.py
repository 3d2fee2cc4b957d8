"""The affine map before the network, and how to take it back."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class FeatureMap:
    """z = ((x - mean) * scale) U: centring, one factor a feature, and a projection (or none)."""

    mean: Float[Tensor, " d"]
    scale: Float[Tensor, " d"]
    basis: Float[Tensor, "d m"] | None = None

    @property
    def n_components(self) -> int:
        """The number of features the network sees."""
        return len(self.mean) if self.basis is None else self.basis.shape[1]

    def project(self, X: Float[Tensor, "n d"]) -> Float[Tensor, "n m"]:
        """z = ((x - mean) * scale) U."""
        Z = (X - self.mean).mul_(self.scale)
        return Z if self.basis is None else Z @ self.basis

    def unproject(self, Z: Float[Tensor, "n m"]) -> Float[Tensor, "n d"]:
        """Rows that ``project`` makes Z of, the nearest to the mean: x = mean + (z U^+) / scale.

        A feature that does not count, with a scale of zero, has its mean.
        """
        rows = Z if self.basis is None else Z @ torch.linalg.pinv(self.basis)
        return self.mean + torch.where(self.scale == 0, 0, rows / self.scale)

    def back_project(self, W: Float[Tensor, "m_plus_1 h"]) -> Float[Tensor, "d_plus_1 h"]:
        """V with [1, x] V = [1, project(x)] W exactly; the mean is absorbed by the bias row."""
        rows = W[1:] if self.basis is None else self.basis @ W[1:]
        rows = self.scale[:, None] * rows
        return torch.cat([W[:1] - self.mean @ rows, rows])

    def widened(
        self, places: Int[Tensor, " d"], scale: Float[Tensor, " n"]
    ) -> tuple["FeatureMap", Int[Tensor, " m"]]:
        """Feature i is feature ``places[i]`` of n, with these factors; others are as they come.

        These have a mean of zero and, after a projection, a component each. Says too where every
        component is now: whoever is zero in all new features is zero in all new components.
        """
        n = len(scale)
        mean = scale.new_zeros(n).index_copy_(0, places, self.mean)
        if self.basis is None:
            return FeatureMap(mean, scale), places
        old = scale.new_zeros(n, self.n_components).index_copy_(0, places, self.basis)
        alone = torch.eye(n).to(old)[:, ~torch.isin(torch.arange(n), places)]
        return FeatureMap(mean, scale, torch.cat([old, alone], 1)), torch.arange(old.shape[1])

    def to(self, device: torch.device | str) -> "FeatureMap":
        """The same map on another device."""
        basis = None if self.basis is None else self.basis.to(device)
        return FeatureMap(self.mean.to(device), self.scale.to(device), basis)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor under a name, for a file."""
        named = {"mean": self.mean, "scale": self.scale}
        return named if self.basis is None else {**named, "basis": self.basis}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "FeatureMap":
        """The map that ``tensors`` came from."""
        return cls(tensors["mean"], tensors["scale"], tensors.get("basis"))
