"""From rows as they came to what training takes: a feature map, projected rows, first banks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from protopinv.bank import (
    Bank,
    balanced_groups,
    normal_inputs,
    normal_outputs,
    pick_rows,
    population,
    start_bank,
)
from protopinv.errors import DataError
from protopinv.features import (
    Distortion,
    FeatureMap,
    Front,
    Stem,
    fit_clip,
    fit_feature_map,
    fit_squash,
    fit_stem,
    fit_wide_feature_map,
    measure_moments,
)
from protopinv.objective import Objective
from protopinv.train.config import TrainConfig
from protopinv.train.data import Data, Some
from protopinv.train.resolve import FOLDS
from protopinv.train.rows import AnyRows, Rows
from protopinv.train.streamed import PIECE_NUMBERS, View, behind_front

# A stem is made from so many rows at most.
STEM_ROWS = 5_000
# What is drawn apart from the first bank, from the same seed.
FOR_NOISE, FOR_COPIES, FOR_FRONT, FOR_RANKS = 1, 2, 3, 1_000


@dataclass(frozen=True)
class Prepared:
    """A fitted feature map, behind a front or not, and rows as the network sees them.

    First banks are made from ``sample``. ``judged`` are rows, held out or in folds, by which the
    network is calibrated. ``masses`` are what all rows of each group count: weights of ``rows``
    have a mean of one. With folds, ``rows`` are for ``n_full`` members that see all of them and one
    for each fold.
    """

    front: Front | None
    features: FeatureMap
    rows: AnyRows
    sample: Rows
    validation: AnyRows | None = None
    judged: Rows | None = None
    masses: Float[Tensor, " g"] | None = None
    n_full: int = 0


def prepare(
    data: Data,
    config: TrainConfig,
    device: torch.device,
    *,
    seed: int,
    fitted: tuple[Front | None, FeatureMap] | None = None,
) -> Prepared:
    """Fit front and map on the training rows, and project these and the held-out ones.

    With ``fitted``, front and map are these, for a bank that knows them already.
    """
    data = data.placed(device)
    if fitted is None:
        front = fit_front(data.some(device), config, seed) if config.has_front else None
        features = fit_features(data, front, config, device)
    else:
        front = None if fitted[0] is None else fitted[0].to(device)
        features = fitted[1].to(device)
    exact = getattr(torch, config.dtype)
    view = View(front, features, data.objective, exact, device)
    held = data.held_rows(view)
    n_full = max(1, config.n_members - FOLDS) if config.early_stopping == "cross" else 0
    if config.row_dtype != "same":
        view = View(front, features, data.objective, getattr(torch, config.row_dtype), device)
    distortions = distortions_of(config, data.n_training, seed)
    rows, sample, judged = data.rows(view, distortions, 0 if held else n_full)
    validation, judged = held or (None, judged)
    n_full = n_full if rows.held is not None else 0
    return Prepared(front, features, rows, sample, validation, judged, data.masses(), n_full)


def noise_generator(seed: int, device: torch.device, rank: int | None = None) -> Generator:
    """What is drawn while training, apart from what was drawn for the start with this seed.

    For a ``rank`` it is what that one draws alone, for its own rows.
    """
    use = FOR_NOISE if rank is None else FOR_RANKS + rank
    return Generator(device).manual_seed(stream(seed, use))


def stream(seed: int, use: int) -> int:
    """A seed of its own for each use of a seed; torch's generator looks at 32 bits of it only."""
    return int(np.random.SeedSequence([seed, use]).generate_state(1)[0])


def distortions_of(config: TrainConfig, n: int, seed: int) -> list[Distortion]:
    """One for each copy of n images that is asked for, all from one stream."""
    if not config.image_copies:
        return []
    generator = Generator().manual_seed(stream(seed, FOR_COPIES))
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


def fit_front(some: Some, config: TrainConfig, seed: int) -> Front | None:
    """A stem, or a tail transform (None where no column has heavy tails), fitted to a sample."""
    if config.stem == "none":
        fit = fit_clip if config.scaling == "clip" else fit_squash
        return fit(some.X.double(), some.weight)
    n, generator = len(some.X), Generator().manual_seed(stream(seed, FOR_FRONT))
    likely = torch.ones(n, dtype=torch.float64) if some.weight is None else some.weight.cpu()
    n_images = min(int((likely > 0).sum()), STEM_ROWS)
    images = torch.multinomial(likely, n_images, generator=generator).to(some.X.device)
    return fit_stem(
        some.X[images].float(),
        config.image,
        kind=config.stem,
        n_filters=config.filters,
        patch=config.stem_patch,
        pool=config.stem_pool,
        generator=generator,
    )


def fit_features(
    data: Data, front: Front | None, config: TrainConfig, device: torch.device
) -> FeatureMap:
    """The feature map that the configuration asks for, fitted on the training rows.

    A sample tells mean and deviation of columns without tails well enough, and with more features
    than rows the sample is all of them.
    """
    choices: dict[str, Any] = {
        "scaling": "feature" if config.compresses_tails else config.scaling,
        "projection": config.projection,
        "n_components": config.n_components,
    }
    against, diagonal = config.projection == "pls", config.projection == "none"
    n_features = data.source.n_features if front is None else front.n_outputs
    is_wide = not diagonal and data.n_training < n_features
    if is_wide or not (front is None or isinstance(front, Stem)):
        X, targets, weight = data.some(device)
        X = behind_front(X, front)
        Y = data.objective.for_projection(targets) if against else X[:, :0]
        if is_wide:
            check_range(X.square().sum(0))
            return fit_wide_feature_map(X, Y, weight, **choices)
        size = max(1, PIECE_NUMBERS // X.shape[1])
        weights = [None] * -(-len(X) // size) if weight is None else weight.split(size)
        chunks = zip(X.split(size), Y.split(size), weights, strict=True)
        moments = measure_moments(chunks, diagonal=diagonal)
    else:
        moments = data.moments(front, against, device, diagonal=diagonal)
    check_range(moments.variance)
    return fit_feature_map(moments, **choices)


def check_range(squares: Tensor) -> None:
    """Raise DataError for features that are too large to be squared."""
    overflowed = ~squares.isfinite()
    if bool(overflowed.any()):
        raise DataError(
            "Feature values must be small enough to be squared, at most about 1e150. "
            f"Column {int(overflowed.nonzero()[0])} holds larger ones. Rescale or drop it."
        )


def first_banks(
    rows: Rows, objective: Objective, config: TrainConfig, seeds: Sequence[int]
) -> Bank:
    """A population of banks, each from its own seed and from the rows that it counts."""
    p, dtype = config.n_prototypes, getattr(torch, config.dtype)
    chosen_groups, groups = balanced_groups(p, objective.n_groups), objective.groups(rows.y)
    banks = []
    for number, seed in enumerate(seeds):
        generator = Generator().manual_seed(seed)
        weight = None if rows.weight is None else rows.weight[min(number, len(rows.weight) - 1)]
        picked = pick_rows(rows.X, chosen_groups, groups, generator, weight).to(rows.X.device)
        if config.input_init == "stratified":
            inputs = rows.X[picked]
        else:
            inputs = normal_inputs(p, rows.X, generator, weight)
        if config.output_init == "balanced":
            outputs = objective.first_outputs(chosen_groups.to(rows.y.device), rows.y[picked])
        else:
            outputs = normal_outputs(p, objective.n_outputs, generator)
        banks.append(
            start_bank(
                inputs.to(dtype),
                outputs,
                hidden_sizes=config.widths,
                hidden_scale=config.hidden_scale,
                ridge=config.ridges,
                learn_ridge=config.learned_ridges,
                generator=generator,
                learn_scale=config.learn_scale,
            )
        )
    return population(banks)
