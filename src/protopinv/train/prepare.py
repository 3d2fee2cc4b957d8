"""From rows of any number type to what the loop takes: a feature map, projected rows, banks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
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
    Bent,
    Distortion,
    FeatureMap,
    Front,
    fit_clip,
    fit_feature_map,
    fit_squash,
    fit_stem,
    fit_wide_feature_map,
    measure_moments,
)
from protopinv.objective import Objective
from protopinv.train.config import TrainConfig
from protopinv.train.cross import crossed, deal_folds
from protopinv.train.rows import AnyRows, Rows
from protopinv.train.settle import FOLDS
from protopinv.train.source import Source
from protopinv.train.survey import (
    Parts,
    sampled,
)

# A stem is made from so many rows at most.
STEM_ROWS = 5_000
# What is drawn apart from the first bank, from the same seed.
FOR_NOISE, FOR_COPIES, FOR_FRONT, FOR_RANKS = 1, 2, 3, 1_000


def features_of(
    source: Source, chosen: NDArray[np.integer[Any]], config: TrainConfig, device: torch.device
) -> FeatureMap:
    """The map that the configuration asks for, fitted on the chosen rows."""
    n, d, k = len(chosen), source.n_features, source.objective.n_outputs
    against = config.projection == "pls"
    rows = (
        (p.X, source.objective.for_projection(p.y) if against else p.X[:, :0], p.weight)
        for p in source.pieces(chosen, device, width=d + k)
    )
    choices = map_choices(config)
    if config.projection != "none" and n < d:
        Xs, Ys, _ = zip(*rows, strict=True)
        X = torch.cat(Xs)
        check_range(X.square().sum(0))
        return fit_wide_feature_map(X, torch.cat(Ys), source.weights_of(chosen, device), **choices)
    moments = measure_moments(rows, diagonal=config.projection == "none")
    check_range(moments.variance)
    return fit_feature_map(moments, **choices)


def map_choices(config: TrainConfig) -> dict[str, Any]:
    """What a feature map is fitted by."""
    return {
        "scaling": "feature" if config.bends_columns else config.scaling,
        "projection": config.projection,
        "n_components": config.n_components,
    }


def check_range(squares: Tensor) -> None:
    """Raise DataError for features that are too large to be squared."""
    overflowed = ~squares.isfinite()
    if bool(overflowed.any()):
        raise DataError(
            "Feature values must be small enough to be squared, at most about 1e150. "
            f"Column {int(overflowed.nonzero()[0])} holds larger ones. Rescale or drop it."
        )


def stream(seed: int, use: int) -> int:
    """A seed of its own for each use of a seed; torch's generator looks at 32 bits of it only."""
    return int(np.random.SeedSequence([seed, use]).generate_state(1)[0])


def distortions_of(config: TrainConfig, n: int, seed: int) -> list[Distortion]:
    """One for each copy of n images that is asked for, all from one stream."""
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


def noise_generator(seed: int, device: torch.device, rank: int | None = None) -> Generator:
    """What is drawn while training, apart from what was drawn for the start with this seed.

    For a ``rank`` it is what that one draws alone, for its own rows.
    """
    use = FOR_NOISE if rank is None else FOR_RANKS + rank
    return Generator(device).manual_seed(stream(seed, use))


@dataclass(frozen=True)
class Prepared:
    """A fitted feature map, behind a front or not, and rows as the network sees them.

    ``masses`` are what all rows of each group count: weights of ``rows`` have a mean of one. First
    banks are made from ``sample``. ``judged`` are rows that were held out, or some of them,
    to say how sure answers should be. ``cross`` gives the same for folds beside so many members
    that see all rows, or None where there are too few rows for that.
    """

    front: Front | None
    features: FeatureMap
    rows: AnyRows
    validation: AnyRows | None
    sample: Rows
    judged: Rows | None = None
    cross: "Callable[[int], Prepared | None] | None" = None
    masses: Float[Tensor, " g"] | None = None


def prepare(
    source: Source,
    config: TrainConfig,
    device: torch.device,
    *,
    seed: int,
    held_out: NDArray[np.integer[Any]] | None = None,
    fitted: tuple[Front | None, FeatureMap] | None = None,
) -> Prepared:
    """Fit front and map on all rows but ``held_out``, and project both.

    With ``fitted`` front and map are these, for who goes on with a bank that knows them.
    """
    everything = np.arange(len(source.X))
    kept = everything if held_out is None else np.setdiff1d(everything, held_out)
    chosen, uniform = sampled(Parts(seed).sample_keys(kept), source.groups()[kept])
    some = kept[chosen[uniform]]
    if fitted is None:
        front = front_of(source, kept, some, config, device, seed)
    else:
        front = None if fitted[0] is None else fitted[0].to(device)
    source = replace(source, front=front).placed(device)
    if fitted is None:
        # a few rows tell mean and deviation of columns without tails well enough
        looked_at = some if isinstance(front, Bent) else kept
        features = features_of(source, looked_at, config, device)
    else:
        features = fitted[1].to(device)
    distortions = distortions_of(config, len(kept), seed)
    masses = source.masses(kept)
    same, dtype = number_types(config)
    rows = source.projected(kept, features, dtype, device, distortions)
    first = rows if len(chosen) == len(rows) else rows.taken(torch.from_numpy(chosen).to(device))
    if held_out is not None:
        validation = source.projected(held_out, features, same, device)
        return Prepared(front, features, rows, validation, first, validation, masses=masses)

    def cross(n_full: int) -> Prepared | None:
        fold = deal_folds(source.groups(), FOLDS, seed)
        if fold.max() < FOLDS - 1:  # no group has rows enough
            return None
        # distorted copies stay in the fold of their original
        repeated = torch.from_numpy(fold).repeat(1 + config.image_copies).to(device)
        both = crossed(rows, repeated, n_full, len(fold))
        some = both if first is rows else both.taken(torch.from_numpy(chosen).to(device))
        return Prepared(front, features, both, None, some, both)

    return Prepared(front, features, rows, None, first, cross=cross, masses=masses)


def number_types(config: TrainConfig) -> tuple[torch.dtype, torch.dtype]:
    """Of what is trained, and of rows."""
    same = getattr(torch, config.dtype)
    return same, same if config.row_dtype == "same" else getattr(torch, config.row_dtype)


def front_of(
    source: Source,
    chosen: NDArray[np.integer[Any]],
    some: NDArray[np.integer[Any]],
    config: TrainConfig,
    device: torch.device,
    seed: int,
) -> Front | None:
    """What the configuration asks for: from ``some`` of the chosen rows, or as many as it needs."""
    if config.stem == "none" and not config.bends_columns:
        return None
    if config.stem == "none":
        X = torch.from_numpy(source.X[some]).to(device)
        return bent(X, source.weights_of(some, device), config)
    weight = source.weights_of(chosen, torch.device("cpu"))
    generator = Generator().manual_seed(stream(seed, FOR_FRONT))
    few = chosen[stem_rows(len(chosen), weight, generator)]
    return stem(torch.from_numpy(source.X[few]).to(device), config, generator)


def bent(X: Tensor, weight: Tensor | None, config: TrainConfig) -> Front | None:
    """Columns with their tails brought in, or None where none has any."""
    fit = fit_clip if config.scaling == "clip" else fit_squash
    return fit(X.double(), weight)


def stem_rows(n: int, weight: Tensor | None, generator: Generator) -> NDArray[np.int64]:
    """Which of so many rows a stem is made from."""
    likely = torch.ones(n, dtype=torch.float64) if weight is None else weight
    n_some = min(int((likely > 0).sum()), STEM_ROWS)
    numbers: NDArray[np.int64] = torch.multinomial(likely, n_some, generator=generator).numpy()
    return numbers


def stem(X: Tensor, config: TrainConfig, generator: Generator) -> Front:
    """Filters from some images."""
    return fit_stem(
        X.float(),
        config.image,
        kind=config.stem,
        n_filters=config.filters,
        patch=config.stem_patch,
        pool=config.stem_pool,
        generator=generator,
    )


def first_banks(
    rows: Rows, objective: Objective, configs: Sequence[TrainConfig], seeds: Sequence[int]
) -> Bank:
    """A population of banks, each from its own seed and from the rows that it counts."""
    weights: list[Tensor | None] = [None] * len(seeds)
    if rows.weight is not None:
        weights = list(rows.weight.expand(len(seeds), -1))
    every = zip(configs, seeds, weights, strict=True)
    return population([_first_bank(rows, objective, *each) for each in every])


def _first_bank(
    rows: Rows,
    objective: Objective,
    config: TrainConfig,
    seed: int,
    weight: Float[Tensor, " n"] | None,
) -> Bank:
    """Inputs, hidden targets and outputs as the configuration asks."""
    p, generator = config.n_prototypes, Generator().manual_seed(seed)
    wanted = balanced_groups(p, objective.n_groups)
    groups = objective.groups(rows.y)
    picked = pick_rows(rows.X, wanted, groups, generator, weight).to(rows.X.device)
    if config.input_init == "stratified":
        inputs = rows.X[picked]
    else:
        inputs = normal_inputs(p, rows.X, generator, weight)
    inputs = inputs.to(getattr(torch, config.dtype))
    if config.output_init == "balanced":
        outputs = objective.first_outputs(wanted.to(rows.y.device), rows.y[picked])
    else:
        outputs = normal_outputs(p, objective.n_outputs, generator)
    return start_bank(
        inputs,
        outputs,
        hidden_sizes=config.widths,
        hidden_scale=config.hidden_scale,
        ridge=config.ridges,
        learn_ridge=config.learned_ridges,
        generator=generator,
        learn_scale=config.learn_scale,
    )
