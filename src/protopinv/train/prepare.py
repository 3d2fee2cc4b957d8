"""From rows as they came to what training takes: a feature map, projected rows, first banks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
from protopinv.rows import RowSource
from protopinv.train.config import TrainConfig
from protopinv.train.data import Data, Some
from protopinv.train.ranks import Ranks
from protopinv.train.rows import AnyRows, Rows
from protopinv.train.survey import Split, Survey, survey
from protopinv.train.targets import Targets
from protopinv.train.view import PIECE_NUMBERS, View, seen_by_network

# A stem is made from so many rows at most.
STEM_ROWS = 5_000
# What is drawn apart from the first bank, from the same seed.
FOR_NOISE, FOR_COPIES, FOR_FRONT, FOR_RANKS = 1, 2, 3, 1_000


@dataclass(frozen=True)
class Prepared:
    """A fitted feature map, behind a front or not, and rows as the network sees them.

    ``masses`` are what all rows of each group count: weights of ``rows`` have a mean of one. First
    banks are made from ``sample``. ``judged`` are held-out rows, or some of them, by which the
    network is calibrated. ``cross`` gives the rows for folds beside so many members that see all,
    a sample and rows to judge, or None where there are too few rows for folds.
    """

    front: Front | None
    features: FeatureMap
    rows: AnyRows
    validation: AnyRows | None
    sample: Rows
    judged: Rows | None = None
    masses: Float[Tensor, " g"] | None = None
    cross: Callable[[int], tuple[AnyRows, Rows, Rows] | None] | None = None


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
    if fitted is None:
        front = fit_front(data.some(device), config, seed) if _has_front(config) else None
    else:
        front = None if fitted[0] is None else fitted[0].to(device)
    data = data.placed(device)
    features = fit_features(data, front, config, device) if fitted is None else fitted[1].to(device)
    exact, dtype = number_types(config)
    view = View(front, features, data.objective, dtype, device)
    rows: Any = data.rows(view, distortions_of(config, len(data.training), seed))
    sample, masses = data.sample(rows), data.masses()
    held: Any = data.held_rows(View(front, features, data.objective, exact, device))
    if held is not None:
        judged, rows = data.judged(held), data.resident(rows)
        return Prepared(front, features, rows, data.resident(held), sample, judged, masses)
    if config.early_stopping != "cross":
        return Prepared(front, features, data.resident(rows), None, sample, None, masses)
    cross = partial(_crossed, data, rows)
    return Prepared(front, features, rows, None, sample, None, masses, cross)


def _crossed(data: Data, rows: Any, n_full: int) -> tuple[AnyRows, Rows, Rows] | None:
    crossed: Any = data.cross(rows, n_full)
    return None if crossed is None else (data.resident(crossed[0]), *crossed[1:])


def surveyed(
    source: RowSource, targets: Targets, config: TrainConfig, *, seed: int, ranks: Ranks
) -> tuple[Survey, Objective]:
    """One pass over all rows; before it one over targets, where PLS must know them."""
    split = Split(seed, config.held_out)
    scatter = "diagonal" if config.projection == "none" else "full"
    if config.stem != "none" or source.n_features > source.n_rows:
        scatter = "none"
    against = None
    if config.projection == "pls" and scatter != "none":
        known = objective_of(survey(source, targets.fresh(), split, ranks, features=False))
        against = partial(_for_projection, known)
    facts = survey(source, targets, split, ranks, scatter=scatter, against=against)
    return facts, objective_of(facts)


def objective_of(facts: Survey) -> Objective:
    """What a survey says the network is to be trained for."""
    some = facts.sample
    return facts.targets.objective((some.y, some.weight))


def _for_projection(objective: Objective, y: Any) -> Tensor:
    return objective.for_projection(torch.from_numpy(objective.encode(y)))


def number_types(config: TrainConfig) -> tuple[torch.dtype, torch.dtype]:
    """The number types of what is trained, and of rows."""
    exact = getattr(torch, config.dtype)
    return exact, exact if config.row_dtype == "same" else getattr(torch, config.row_dtype)


def stream(seed: int, use: int) -> int:
    """A seed of its own for each use of a seed; torch's generator looks at 32 bits of it only."""
    return int(np.random.SeedSequence([seed, use]).generate_state(1)[0])


def noise_generator(seed: int, device: torch.device, rank: int | None = None) -> Generator:
    """What is drawn while training, apart from what was drawn for the start with this seed.

    For a ``rank`` it is what that one draws alone, for its own rows.
    """
    use = FOR_NOISE if rank is None else FOR_RANKS + rank
    return Generator(device).manual_seed(stream(seed, use))


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


def _has_front(config: TrainConfig) -> bool:
    return config.stem != "none" or config.compresses_tails


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
    n_features = data.n_features if front is None else front.n_outputs
    is_wide = not diagonal and len(data.training) < n_features
    if not (is_wide or isinstance(front, Bent)):
        moments = data.moments(front, against, device, diagonal=diagonal)
        check_range(moments.variance)
        return fit_feature_map(moments, **choices)
    X, targets, weight = data.some(device)
    X = seen_by_network(X, front)
    Y = data.objective.for_projection(targets) if against else X[:, :0]
    if is_wide:
        check_range(X.square().sum(0))
        return fit_wide_feature_map(X, Y, weight, **choices)
    size = max(1, PIECE_NUMBERS // X.shape[1])
    weights = [None] * -(-len(X) // size) if weight is None else weight.split(size)
    chunks = zip(X.split(size), Y.split(size), weights, strict=True)
    moments = measure_moments(chunks, diagonal=diagonal)
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
    weights: Sequence[Tensor | None] = [None] * len(seeds)
    if rows.weight is not None:
        weights = list(rows.weight.expand(len(seeds), -1))
    return population(
        [
            _first_bank(rows, objective, config, seed, weight)
            for seed, weight in zip(seeds, weights, strict=True)
        ]
    )


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
