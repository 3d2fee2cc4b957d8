"""The affine map before the network: chosen from moments of the training rows, and taken back."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from protopinv.features.moments import Moments, beyond_rounding, moments_of_chunk


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
        """The map on another device."""
        return self.from_tensors({name: t.to(device) for name, t in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor under a name, for a file."""
        named = {"mean": self.mean, "scale": self.scale}
        return named if self.basis is None else {**named, "basis": self.basis}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "FeatureMap":
        """The map that ``tensors`` came from."""
        return cls(tensors["mean"], tensors["scale"], tensors.get("basis"))


def fit_feature_map(
    moments: Moments, *, scaling: str, projection: str, n_components: int | None
) -> FeatureMap:
    """Scale, then project; rows are centred unless both are "none".

    "feature" gives every feature unit variance before the projection. "global" multiplies all by
    one factor, such that the projected features together have unit variance; it commutes with the
    projection.
    """
    ones = torch.ones_like(moments.x_mean)
    if scaling == "none" and projection == "none":
        return FeatureMap(torch.zeros_like(ones), ones)
    scale = _inverse_deviation(moments) if scaling == "feature" else ones
    scaled = moments.scaled(scale)
    most = len(ones) if n_components is None else n_components
    basis = None if projection == "none" else BASES[projection](scaled, most)
    if scaling == "global":
        scale = scale * _global_factor(scaled, basis)
    return FeatureMap(moments.x_mean, scale, basis)


def fit_wide_feature_map(
    X: Float[Tensor, "n d"],
    Y: Float[Tensor, "n k"],
    weight: Float[Tensor, " n"] | None = None,
    *,
    scaling: str,
    projection: str,
    n_components: int | None,
) -> FeatureMap:
    """The map for fewer rows than features, without any d-by-d matrix.

    The centred rows span at most n directions; in those coordinates the problem is a small one, and
    turning its basis back gives that of the whole.
    """
    moments = moments_of_chunk(X, Y, weight, diagonal=True)
    scale = _inverse_deviation(moments) if scaling == "feature" else torch.ones_like(X[0])
    centred = (X - moments.x_mean) * scale
    _, singular, directions = torch.linalg.svd(centred, full_matrices=False)
    negligible = singular[0] * max(X.shape) * torch.finfo(X.dtype).eps
    rank = max(1, int((singular > negligible).sum()))
    span = directions[:rank].T
    small = fit_feature_map(
        moments_of_chunk(centred @ span, Y, weight),
        scaling="none" if scaling == "feature" else scaling,
        projection=projection,
        n_components=n_components,
    )
    basis = span if small.basis is None else span @ small.basis
    # the span has no signs of its own either
    return FeatureMap(moments.x_mean, scale * small.scale[0], with_signs(basis))


def _inverse_deviation(moments: Moments) -> Float[Tensor, " d"]:
    """1 / standard deviation, and 1 for a feature that is constant up to rounding."""
    deviation = moments.variance.sqrt()
    varies = beyond_rounding(deviation, moments.x_mean, moments.n)
    return torch.reciprocal(torch.where(varies, deviation, 1.0))


def _global_factor(moments: Moments, basis: Tensor | None) -> Float[Tensor, ""]:
    """1 / sqrt(mean variance of the projected features), and 1 where nothing varies."""
    variance: Tensor = moments.variance
    if basis is not None:
        variance = (basis * (moments.x_scatter @ basis)).sum(0) / moments.n
    mean: Tensor = variance.mean()
    return torch.where(mean > 0, mean, torch.ones_like(mean)).rsqrt()


def pca_basis(moments: Moments, n_components: int) -> Float[Tensor, "d m"]:
    """The leading eigenvectors of the scatter matrix, as many as it has rank for (at least one)."""
    values, vectors = torch.linalg.eigh(moments.x_scatter)
    values, vectors = values.flip(0), vectors.flip(1)
    negligible = values[0].clamp_min(0) * len(values) * torch.finfo(values.dtype).eps
    rank = max(1, int((values > negligible).sum()))
    return with_signs(vectors[:, : min(n_components, rank)])


def with_signs(vectors: Float[Tensor, "d m"]) -> Float[Tensor, "d m"]:
    """Each column with its largest entry positive: eigenvectors have no sign of their own."""
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    # laid out as a file gives them back: products of other layouts round otherwise
    return (vectors * largest.sign()).contiguous()


def pls_basis(moments: Moments, n_components: int) -> Float[Tensor, "d m"]:
    """The rotations R of PLS2 regression, T = X R, from X'X and X'Y alone.

    Algorithm 2 of Dayal and MacGregor (1997): the same scores as NIPALS, no pass over the rows.
    """
    # On the host: hundreds of tiny steps, each of which reads a number.
    covariance, cross = moments.x_scatter.cpu(), moments.xy_scatter.cpu().clone()
    tolerance = len(cross) * torch.finfo(cross.dtype).eps
    start = cross.norm()
    rotations: list[Tensor] = []
    loadings: list[Tensor] = []
    for _ in range(min(n_components, len(cross))):
        _, directions = torch.linalg.eigh(cross.T @ cross)
        w = cross @ directions[:, -1]
        length = w.norm()
        if rotations and not length > tolerance * start:
            break
        w = w / length.clamp_min(torch.finfo(w.dtype).tiny)
        r = w
        for earlier, loading in zip(rotations, loadings, strict=True):
            r = r - (loading @ w) * earlier
        score = r @ covariance @ r
        if rotations and not score > 0:
            break
        loading = covariance @ r / score.clamp_min(torch.finfo(r.dtype).tiny)
        cross -= torch.outer(loading, r @ cross)
        rotations.append(r)
        loadings.append(loading)
    return with_signs(torch.stack(rotations, dim=1)).to(moments.x_mean.device)


BASES = {"pca": pca_basis, "pls": pls_basis}
