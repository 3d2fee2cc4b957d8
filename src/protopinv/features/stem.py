"""A convolutional stem without gradients: fixed filters, two-sided rectification, pooling."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn import functional

from protopinv.features.map import with_signs

Images = Float[Tensor, "n c h w"]

# Patches that the filters are made from, and added to their mean variance before whitening.
PATCHES = 40_000
WHITENING_FLOOR = 0.05
# Added to the variance of a patch before its contrast is normalised, in units of the mean variance.
CONTRAST_FLOOR = 0.1
KMEANS_ROUNDS = 10
LATER_PATCH = 3
# A file whose maps have more numbers for one image is not one of ours.
MOST_NUMBERS = 2**22
MOST_WORK = 2**28


@dataclass(frozen=True)
class Stage:
    """r = filters * x, divided by the contrast of the patch; out come pooled relu(r), relu(-r)."""

    filters: Float[Tensor, "m c k k"]
    floor: Float[Tensor, ""]

    def __call__(self, X: Images, pool: int = 0) -> Float[Tensor, "n maps rows columns"]:
        """Twice as many maps as filters, without padding, averaged.

        Over a grid of ``pool`` x ``pool`` fields, or over 2 x 2 pixels where that is 0. As
        relu(-r) = relu(r) - r, and the same holds for averages, only r and relu(r) are pooled.
        """
        responses = functional.conv2d(X, self.filters).mul_(self._contrast(X))
        average = partial(functional.avg_pool2d, kernel_size=2)
        if pool:
            average = partial(functional.adaptive_avg_pool2d, output_size=pool)
        mean = average(responses)
        # in place where nobody asks for a gradient: these maps are the largest numbers there are
        positive = average(responses.relu() if responses.requires_grad else responses.relu_())
        return torch.cat([positive, positive - mean], dim=1)

    def _contrast(self, X: Images) -> Float[Tensor, "n 1 rows columns"]:
        """1 / sqrt(variance of the patch + floor)."""
        size = self.filters.shape[-1]
        means = [functional.avg_pool2d(Z.mean(1, keepdim=True), size, 1) for Z in (X, X.square())]
        variance = (means[1] - means[0].square()).clamp_min(0)
        return (variance + self.floor).rsqrt()


@dataclass(frozen=True)
class Stem:
    """Rows of pixels, row by row and channels last, to the pooled maps of the last stage.

    Between stages maps are averaged over 2 x 2 pixels; at the end over a grid of ``pool`` x
    ``pool`` fields.
    """

    image_shape: tuple[int, int, int]
    stages: tuple[Stage, ...]
    pool: int

    @property
    def n_outputs(self) -> int:
        """Features that come out."""
        return 2 * len(self.stages[-1].filters) * self.pool**2

    @property
    def n_inputs(self) -> int:
        """Numbers of an image."""
        return math.prod(self.image_shape)

    @property
    def widest(self) -> int:
        """Numbers an image has at its largest, in the maps of the first stage."""
        filters = self.stages[0].filters
        size = filters.shape[-1] - 1
        height, width, _ = self.image_shape
        return max(self.n_inputs, len(filters) * (height - size) * (width - size))

    @property
    def n_numbers(self) -> int:
        """Numbers that must be stored."""
        return sum(stage.filters.numel() + 1 for stage in self.stages)

    def __call__(self, X: Float[Tensor, "n d"]) -> Float[Tensor, "n f"]:
        """One row of features for each row of pixels."""
        Z = self.images(X)
        for stage in self.stages[:-1]:
            Z = stage(Z)
        return self.stages[-1](Z, self.pool).flatten(1)

    def features(self, X: Tensor) -> Float[Tensor, "n f"]:
        """Features in float64 of rows of any number type; the filters work in float32."""
        return self(X.float()).double()

    def images(self, X: Float[Tensor, "n d"]) -> Images:
        """Rows as images, channels first."""
        return X.view(len(X), *self.image_shape).permute(0, 3, 1, 2)

    def to(self, device: torch.device | str) -> "Stem":
        """The stem on another device."""
        return self.from_tensors({name: t.to(device) for name, t in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor under a name, for a file."""
        named: dict[str, Tensor] = {}
        for index, stage in enumerate(self.stages):
            named |= {f"{index}.filters": stage.filters, f"{index}.floor": stage.floor}
        shape, pool = torch.tensor(self.image_shape), torch.tensor(self.pool)
        return {**named, "image_shape": shape, "pool": pool}

    def fault(self) -> str | None:
        """What does not fit together, or None."""
        if not self.stages or min(self.image_shape) < 1 or self.pool < 1:
            return "a stem without stages, pixels or fields"
        height, width, maps = self.image_shape
        for number, stage in enumerate(self.stages):
            shape = stage.filters.shape
            if len(shape) != 4 or 0 in shape or shape[1] != maps or shape[2] != shape[3]:
                return "the filters of a stem do not fit its maps"
            if stage.floor.ndim != 0 or not float(stage.floor) > 0:
                return "a stage of the stem without a floor"
            if stage.filters.dtype != torch.float32 or stage.floor.dtype != torch.float32:
                return "a stem that is not in float32"
            if number > 0:
                height, width = height // 2, width // 2
            height, width, maps = height - shape[2] + 1, width - shape[3] + 1, 2 * shape[0]
            work = stage.filters.numel() * max(height, 1) * max(width, 1)
            if min(height, width) < self.pool or maps * height * width > MOST_NUMBERS:
                return "a stem whose maps are smaller than its fields, or far too large"
            if max(work, shape[2] ** 2 * height * width) > MOST_WORK:
                return "a stem that takes far too long"
        return None

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "Stem":
        """The stem that ``tensors`` came from."""
        stages = tuple(
            Stage(tensors[f"{index}.filters"], tensors[f"{index}.floor"])
            for index in range((len(tensors) - 2) // 2)
        )
        height, width, channels = tensors["image_shape"].tolist()
        return cls((height, width, channels), stages, int(tensors["pool"]))


def fit_stem(
    X: Float[Tensor, "n d"],
    image_shape: tuple[int, int, int],
    *,
    kind: str,
    n_filters: tuple[int, ...],
    patch: int,
    pool: int,
    generator: Generator,
) -> Stem:
    """Filters from patches of these images, stage after stage."""
    stem = Stem(image_shape, (), pool)
    Z = stem.images(X)
    for index, n in enumerate(n_filters):
        if index > 0:
            Z = stem.stages[-1](Z)
        stage = fit_stage(Z, kind, n, patch_side(patch, index), generator)
        stem = replace(stem, stages=(*stem.stages, stage))
    return stem


def patch_side(patch: int, stage: int) -> int:
    """Later stages see maps of half the size, and smaller patches of them."""
    return patch if stage == 0 else min(patch, LATER_PATCH)


def map_side(side: int, patch: int, n_stages: int) -> int:
    """Pixels on a side of the last stage's maps; zero or less where the images are too small."""
    for stage in range(n_stages):
        side = (side if stage == 0 else side // 2) - patch_side(patch, stage) + 1
    return side


def fit_stage(Z: Images, kind: str, n_filters: int, size: int, generator: Generator) -> Stage:
    """Whitened filters, the whitening folded in."""
    P = sample_patches(Z, size, generator)
    variance = P.var(dim=1, unbiased=False)
    floor = CONTRAST_FLOOR * variance.mean()
    P = P * (variance + floor).rsqrt()[:, None]
    mean = P.mean(0)
    values, vectors = torch.linalg.eigh((P - mean).T @ (P - mean) / len(P))
    vectors = with_signs(vectors)
    whiten = vectors * (values.clamp_min(0) + WHITENING_FLOOR * values.mean()).rsqrt()
    white = (P - mean) @ whiten
    if kind == "pca":
        filters = torch.eye(len(values), dtype=P.dtype, device=P.device).flip(0)[:n_filters]
    else:
        filters = functional.normalize(white[:n_filters])
        if kind == "kmeans":
            filters = spherical_kmeans(functional.normalize(white), filters)
    folded = filters @ whiten.T
    return Stage(folded.view(-1, Z.shape[1], size, size).contiguous(), floor)


def sample_patches(Z: Images, size: int, generator: Generator) -> Float[Tensor, "q f"]:
    """Patches from random places of random images."""
    n, _, height, width = Z.shape
    image, top, left = (
        torch.randint(high, (PATCHES,), generator=generator).to(Z.device)
        for high in (n, height - size + 1, width - size + 1)
    )
    offsets = torch.arange(size, device=Z.device)
    rows = (top[:, None] + offsets)[:, :, None]
    columns = (left[:, None] + offsets)[:, None, :]
    # (q, k, k, c): images first, so that the three indices run together
    patches = Z.permute(0, 2, 3, 1)[image[:, None, None], rows, columns]
    return patches.permute(0, 3, 1, 2).flatten(1)


def spherical_kmeans(points: Float[Tensor, "q f"], centres: Float[Tensor, "m f"]) -> Tensor:
    """Unit centres that points are most aligned with, sign apart."""
    for _ in range(KMEANS_ROUNDS):
        similarity = points @ centres.T
        nearest = similarity.abs().argmax(dim=1)
        sign = similarity.gather(1, nearest[:, None]).sign()
        sums = torch.zeros_like(centres).index_add_(0, nearest, points * sign)
        empty = sums.norm(dim=1) == 0
        centres = torch.where(empty[:, None], centres, functional.normalize(sums))
    return centres
