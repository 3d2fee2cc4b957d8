"""From rows of any number type to what the loop takes: a feature map, projected rows, a bank."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from protopinv.bank import (
    Bank,
    balanced_classes,
    balanced_outputs,
    normal_inputs,
    normal_outputs,
    start_bank,
    stratified_inputs,
)
from protopinv.errors import DataError
from protopinv.features import (
    Distortion,
    FeatureMap,
    Front,
    Stem,
    fit_feature_map,
    fit_squash,
    fit_stem,
    fit_wide_feature_map,
    measure_moments,
)
from protopinv.train.config import TrainConfig
from protopinv.train.rows import Rows
from protopinv.train.settle import DataShape

# Rows are converted to float64 a piece at a time, about this many numbers; larger pieces are not
# faster, and leave memory behind.
PIECE_NUMBERS = 2**18
GPU_PIECE_NUMBERS = 2**23
# All rows are moved to a GPU, once for a training, if they take at most this share of its memory.
MOST_OF_FREE = 0.25
# Pieces for the maps of a stem.
STEM_NUMBERS = 2**21
GPU_STEM_NUMBERS = 2**28
# A front is made from so many rows at most.
SQUASH_ROWS = 20_000
STEM_ROWS = 5_000
# Streams that must not repeat what was drawn for the start.
FOR_NOISE = 2**31
FOR_COPIES = 2**32


@dataclass(frozen=True)
class LabelledRows:
    """Rows on the host in the type they came in; only a piece at a time is converted.

    ``moved`` holds all of them on a GPU, where that is not too much; else pieces are moved as well.
    """

    X: NDArray[Any]
    labels: NDArray[np.integer[Any]]
    n_classes: int
    front: Front | None = None
    moved: Tensor | None = None

    def shape(self, device: torch.device) -> DataShape:
        """What the rules for "auto" look at."""
        n, d = self.X.shape
        fast = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
        return DataShape(n, d, self.n_classes, fast_bfloat16=fast)

    @property
    def n_features(self) -> int:
        """Features a row has, behind the front if there is one."""
        return self.X.shape[1] if self.front is None else self.front.n_outputs

    def pieces(
        self,
        chosen: NDArray[np.integer[Any]],
        device: torch.device,
        width: int,
        distortion: Distortion | None = None,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """(rows in float64, labels) of the chosen row numbers; ``width`` numbers a row are used.

        A ``distortion`` comes before anything else.
        """
        size, done = piece_rows(width, self.front, device), 0
        for numbers in np.array_split(chosen, max(1, -(-len(chosen) // size))):
            rows = self._taken(numbers, device)
            if distortion is not None:
                rows = distortion(rows, done)
            done += len(rows)
            yield (
                seen_by_network(rows, self.front),
                torch.from_numpy(self.labels[numbers]).to(device),
            )

    def _taken(self, numbers: NDArray[np.integer[Any]], device: torch.device) -> Tensor:
        if self.moved is None:
            return torch.from_numpy(self.X[numbers]).to(device)
        return self.moved[torch.from_numpy(numbers).to(device)]


def moved_to(device: torch.device, X: NDArray[Any]) -> Tensor | None:
    """All rows on a GPU, in the type they came in; None where it has no room to spare for them."""
    # torch cannot pick rows of long unsigned integers there
    if device.type != "cuda" or (X.dtype.kind == "u" and X.dtype.itemsize > 1):
        return None
    if X.nbytes > MOST_OF_FREE * torch.cuda.mem_get_info(device)[0]:
        return None
    moved = torch.from_numpy(np.empty(0, X.dtype)).new_empty(X.shape, device=device)
    size = max(1, GPU_PIECE_NUMBERS // X.shape[1])
    for start in range(0, len(X), size):
        # torch takes neither reversed nor read-only arrays as they are
        piece = np.require(X[start : start + size], requirements=["C", "W"])
        moved[start : start + size] = torch.from_numpy(piece)
    return moved


def piece_rows(width: int, front: Front | None, device: torch.device | str) -> int:
    """Rows to take at a time; the maps of a stem get more room, or convolutions would crawl."""
    on_cpu = torch.device(device).type == "cpu"
    if not isinstance(front, Stem):
        return max(1, (PIECE_NUMBERS if on_cpu else GPU_PIECE_NUMBERS) // width)
    room = STEM_NUMBERS if on_cpu else GPU_STEM_NUMBERS
    return max(1, room // max(front.widest, width))


def seen_by_network(X: Tensor, front: Front | None) -> Float[Tensor, "n d"]:
    """Rows in float64, behind the front if there is one."""
    return X.double() if front is None else front.features(X)


def features_of(
    source: LabelledRows,
    chosen: NDArray[np.integer[Any]],
    config: TrainConfig,
    device: torch.device,
) -> FeatureMap:
    """The map that the configuration asks for, fitted on the chosen rows."""
    n, d, k = len(chosen), source.n_features, source.n_classes
    rows = (
        (X, one_hot(y, k).double() if config.projection == "pls" else X[:, :0])
        for X, y in source.pieces(chosen, device, width=d + k)
    )
    choices: dict[str, Any] = {
        "scaling": "feature" if config.scaling == "squash" else config.scaling,
        "projection": config.projection,
        "n_components": config.n_components,
    }
    if config.projection != "none" and n < d:
        X, Y = map(torch.cat, zip(*rows, strict=True))
        _check_range(X.square().sum(0))
        return fit_wide_feature_map(X, Y, **choices)
    moments = measure_moments(rows, diagonal=config.projection == "none")
    _check_range(moments.variance)
    return fit_feature_map(moments, **choices)


def _check_range(squares: Tensor) -> None:
    overflowed = ~squares.isfinite()
    if bool(overflowed.any()):
        raise DataError(
            "Feature values must be small enough to be squared, at most about 1e150. "
            f"Column {int(overflowed.nonzero()[0])} holds larger ones. Rescale or drop it."
        )


def project_rows(
    source: LabelledRows,
    chosen: NDArray[np.integer[Any]],
    features: FeatureMap,
    dtype: torch.dtype,
    device: torch.device,
    distortions: Sequence[Distortion] = (),
) -> Rows:
    """The chosen rows as the network sees them, and after them a copy for each distortion."""
    n = len(chosen) * (1 + len(distortions))
    Z = torch.empty(n, features.n_components, dtype=dtype, device=device)
    done = 0
    for distortion in (None, *distortions):
        for X, _ in source.pieces(chosen, device, source.n_features, distortion):
            Z[done : done + len(X)] = features.project(X)
            done += len(X)
    labels = torch.from_numpy(source.labels[chosen]).to(device)
    return Rows(Z, labels.repeat(1 + len(distortions)))


def distortions_of(config: TrainConfig, n: int, seed: int) -> list[Distortion]:
    """One for each copy of n images that is asked for, all from one stream."""
    generator = Generator().manual_seed(seed + FOR_COPIES)
    return [
        Distortion(
            n,
            config.image,
            shift=config.copy_shift,
            bend=config.copy_bend,
            mirror=config.copy_mirror,
            generator=generator,
        )
        for _ in range(config.image_copies)
    ]


def noise_generator(seed: int, device: torch.device) -> Generator:
    """What is drawn while training, apart from what was drawn for the start with this seed."""
    return Generator(device).manual_seed(seed + FOR_NOISE)


@dataclass(frozen=True)
class Prepared:
    """A fitted feature map, behind a front or not, and rows as the network sees them."""

    front: Front | None
    features: FeatureMap
    rows: Rows
    validation: Rows | None


def prepare(
    source: LabelledRows,
    config: TrainConfig,
    device: torch.device,
    *,
    seed: int,
    held_out: NDArray[np.integer[Any]] | None = None,
) -> Prepared:
    """Fit front and map on all rows but ``held_out``, and project both."""
    everything = np.arange(len(source.X))
    kept = everything if held_out is None else np.setdiff1d(everything, held_out)
    front = front_of(source, kept, config, device, seed)
    source = replace(source, front=front, moved=moved_to(device, source.X))
    features = features_of(source, kept, config, device)
    distortions = distortions_of(config, len(kept), seed)
    same = getattr(torch, config.dtype)
    dtype = same if config.row_dtype == "same" else getattr(torch, config.row_dtype)
    rows = project_rows(source, kept, features, dtype, device, distortions)
    if held_out is None:
        return Prepared(front, features, rows, None)
    validation = project_rows(source, held_out, features, same, device)
    return Prepared(front, features, rows, validation)


def front_of(
    source: LabelledRows,
    chosen: NDArray[np.integer[Any]],
    config: TrainConfig,
    device: torch.device,
    seed: int,
) -> Front | None:
    """What the configuration asks for, from some of the chosen rows."""
    if config.stem == "none" and config.scaling != "squash":
        return None
    generator = Generator().manual_seed(seed)
    most = SQUASH_ROWS if config.stem == "none" else STEM_ROWS
    order = torch.randperm(len(chosen), generator=generator)[:most]
    X = torch.from_numpy(source.X[chosen[order.numpy()]]).to(device)
    if config.stem == "none":
        return fit_squash(X.double())
    return fit_stem(
        X.float(),
        config.image,
        kind=config.stem,
        n_filters=config.filters,
        patch=config.stem_patch,
        pool=config.stem_pool,
        generator=generator,
    )


def first_bank(rows: Rows, n_classes: int, config: TrainConfig, generator: Generator) -> Bank:
    """Inputs, hidden targets and outputs as the configuration asks."""
    p = config.n_prototypes
    if config.input_init == "stratified":
        inputs = stratified_inputs(balanced_classes(p, n_classes), rows.X, rows.y, generator)
    else:
        inputs = normal_inputs(p, rows.X, generator)
    inputs = inputs.to(getattr(torch, config.dtype))
    if config.output_init == "balanced":
        outputs = balanced_outputs(p, n_classes)
    else:
        outputs = normal_outputs(p, n_classes, generator)
    return start_bank(
        inputs,
        outputs,
        hidden_sizes=config.widths,
        hidden_scale=config.hidden_scale,
        ridge=config.ridges,
        learn_ridge=config.learned_ridges,
        generator=generator,
    )
