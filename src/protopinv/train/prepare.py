"""From rows as they came to what training takes: a feature map, projected rows, first banks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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
    Clip,
    Distortion,
    FeatureMap,
    Front,
    Moments,
    Squash,
    Stem,
    Steps,
    fit_feature_map,
    fit_stem,
    fit_wide_feature_map,
    merged_moments,
    moments_of_chunk,
)
from protopinv.objective import Classes, Objective
from protopinv.train.config import TrainConfig
from protopinv.train.data import Data, StreamedRows
from protopinv.train.resolve import FOLDS
from protopinv.train.rows import (
    AnyRows,
    Rows,
    View,
    as_tensor,
    behind_front,
    joined_rows,
    piece_rows,
    rows_at,
)
from protopinv.train.survey import SAMPLE_ROWS, pieces_of
from protopinv.train.targets import LabelCounts

# A stem is made from so many rows at most.
STEM_ROWS = 5_000
# What is drawn apart from the first bank, from the same seed.
FOR_NOISE, FOR_COPIES, FOR_FRONT, FOR_RANKS = 1, 2, 3, 1_000


class Some(NamedTuple):
    """Rows as they came, encoded targets, and what each row counts (None: once each)."""

    X: Tensor
    targets: Tensor
    weight: Float[Tensor, " n"] | None


@dataclass(frozen=True)
class Prepared:
    """A fitted feature map, behind a front or not, and rows as the network sees them.

    First banks are made from ``sample``. ``judged`` are rows, held out or in folds, by which the
    network is calibrated. With folds, ``rows`` are for ``n_full`` members that see all of them and
    one for each fold. Behind the map numbers may become ``steps``, but for those marked in
    ``without_steps``.
    """

    front: Front | None
    features: FeatureMap
    rows: AnyRows
    sample: Rows
    validation: AnyRows | None = None
    judged: Rows | None = None
    n_full: int = 0
    steps: Steps | None = None
    without_steps: tuple[bool, ...] = ()

    def encoded(self, encoding: str) -> "Prepared":
        """With numbers encoded as a candidate asks; as they are where no column has steps."""
        if encoding == "raw":
            return self
        weight = None if self.sample.weight is None else self.sample.weight[0]
        alone, but = encoding == "steps", self.without_steps
        return self.with_steps(Steps.fit(self.sample.X, weight, alone=alone, but=but))

    def with_steps(self, steps: Steps | None) -> "Prepared":
        """With these steps in place of numbers."""
        if steps is None:
            return self
        steps = steps.to(self.sample.X.device)
        several = (self.rows, self.sample, self.validation, self.judged)
        seen = {id(rows): _stepped(rows, steps) for rows in several}  # what is the same stays so
        rows, sample, validation, judged = (seen[id(each)] for each in several)
        return Prepared(
            self.front, self.features, rows, sample, validation, judged, self.n_full, steps
        )


def _stepped(rows: Any, steps: Steps) -> Any:
    """Rows with steps, in memory or whenever they are read."""
    if isinstance(rows, StreamedRows):
        return replace(rows, view=replace(rows.view, steps=steps))
    return rows if rows is None else replace(rows, X=steps(rows.X))


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
        has_front = config.stem != "none" or config.compresses_tails
        front = fit_front(sampled(data, device), config, seed) if has_front else None
        features = fit_features(data, front, config, device)
    else:
        front = None if fitted[0] is None else fitted[0].to(device)
        features = fitted[1].to(device)
    view = View(front, features, data.objective, getattr(torch, config.dtype), device)
    facts, validation, judged, n_full = data.survey, None, None, 0
    if facts.samples[1] is not None:
        held = StreamedRows(data, view, held_out=True)
        validation = held.resident()
        judged = held.judged(validation)
    elif config.early_stopping == "cross" and bool((facts.fold_masses > 0).all()):
        n_full = max(1, config.n_members - FOLDS)
    if config.row_dtype != "same":
        view = replace(view, dtype=getattr(torch, config.row_dtype))
    training = StreamedRows(data, view, n_full=n_full)
    rows = training.resident()
    sample = training.first_rows(rows)
    judged = training.judged(rows) if n_full else judged
    if config.image_copies and isinstance(rows, Rows):
        n, rows = len(rows), joined_rows([rows, *_copies(training, config, seed)])
        if rows.held is not None:
            rows.held[:, n:] = 0  # no fold is judged by copies of images
    return Prepared(front, features, rows, sample, validation, judged, n_full)


def class_masses(data: Data) -> Float[Tensor, " g"]:
    """What the training rows of every class count; held-out rows are as many of each."""
    shares = torch.ones(1, dtype=torch.float64)
    if isinstance(data.objective, Classes) and isinstance(data.survey.targets, LabelCounts):
        shares = torch.from_numpy(data.survey.targets.masses_of(data.objective.labels))
    return shares / shares.sum() * float(data.survey.masses[0])


def noise_generator(seed: int, device: torch.device, rank: int | None = None) -> Generator:
    """What is drawn while training, apart from what was drawn for the start with this seed.

    For a ``rank`` it is what that one draws alone, for its own rows.
    """
    use = FOR_NOISE if rank is None else FOR_RANKS + rank
    return Generator(device).manual_seed(stream(seed, use))


def stream(seed: int, use: int) -> int:
    """A seed of its own for each use of a seed; torch's generator looks at 32 bits of it only."""
    return int(np.random.SeedSequence([seed, use]).generate_state(1)[0])


def _copies(training: StreamedRows, config: TrainConfig, seed: int) -> Iterator[Rows]:
    """All images once more for each copy that is asked for, distorted by numbers of one stream."""
    generator = Generator().manual_seed(stream(seed, FOR_COPIES))
    for _ in range(config.image_copies):
        distortion = Distortion(
            training.n_total,
            config.image,
            shift=config.copy_shift,
            bend=config.copy_bend,
            mirror=config.copy_mirror,
            generator=generator,
        )
        yield replace(training, view=replace(training.view, distortion=distortion)).at_once()


def fit_front(some: Some, config: TrainConfig, seed: int) -> Front | None:
    """A stem, or a tail transform (None where no column has heavy tails), fitted to a sample."""
    if config.stem == "none":
        kind = Clip if config.scaling == "clip" else Squash
        return kind.fit(some.X.double(), some.weight)
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


def sampled(data: Data, device: torch.device) -> Some:
    """A uniform sample of the rows to train on."""
    sample = data.survey.sample.lowest(SAMPLE_ROWS)
    weight = sample.weight if data.survey.is_weighted else None
    return _encoded(data, as_tensor(sample.X), sample.y, weight, device)


def _encoded(
    data: Data, X: Tensor, y: Any, weight: NDArray[np.float64] | None, device: torch.device
) -> Some:
    """Rows on a device; weights have a mean of about one, so that no sum of them overflows."""
    targets = torch.from_numpy(np.ascontiguousarray(data.objective.encode(np.asarray(y))))
    if weight is not None:
        weight = weight / (data.survey.masses.sum() / data.survey.counts.sum())
    mass = None if weight is None else torch.from_numpy(weight).to(device)
    return Some(X.to(device), targets.to(device), mass)


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
    is_wide = not diagonal and data.survey.counts[0] < n_features
    if is_wide or not (front is None or isinstance(front, Stem)):
        X, targets, weight = sampled(data, device)
        X = behind_front(X, front)
        Y = data.objective.for_projection(targets) if against else X[:, :0]
        if is_wide:
            check_range(X.square().sum(0))
            return fit_wide_feature_map(X, Y, weight, **choices)
        moments = moments_of_chunk(X, Y, weight, diagonal=diagonal)
    elif front is None and data.survey.moments is not None:
        moments = data.survey.moments
    else:
        moments = _moments_of_all(data, front, against, device, diagonal=diagonal)
    check_range(moments.variance)
    return fit_feature_map(moments, **choices)


def _moments_of_all(
    data: Data, front: Front | None, against: bool, device: torch.device, *, diagonal: bool
) -> Moments:
    """Moments of all training rows behind a front, from another pass over them."""
    chunks = _chunks(data, front, against, device)
    own = merged_moments(moments_of_chunk(*chunk, diagonal=diagonal) for chunk in chunks)
    if data.ranks.size > 1:  # a rank may have no rows, and a GPU of another rank is not ours
        parts = data.ranks.gather(None if own is None else own.to("cpu"))
        own = merged_moments(None if part is None else part.to(device) for part in parts)
    if own is None:
        raise AssertionError("no row is trained on")
    return own


def _chunks(
    data: Data, front: Front | None, against: bool, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """This rank's training rows behind the front, what to correlate them with, and weights."""
    width = data.source.n_features if front is None else front.n_outputs
    size = piece_rows(width + data.objective.n_outputs, front, device)
    for block, piece in pieces_of(data.source, data.ranks.share(data.source.blocks)):
        side = data.split.side(block, piece, held_out=False)
        numbers = np.arange(len(piece.y)) if side is None else side
        for chosen in np.array_split(numbers, -(-len(numbers) // size)) if len(numbers) else ():
            X, weight = rows_at(piece.X, chosen), None
            if piece.weight is not None:
                weight = piece.weight[chosen]
            X = X if isinstance(X, Tensor) else as_tensor(X)
            rows = _encoded(data, X, np.asarray(piece.y)[chosen], weight, device)
            X = behind_front(rows.X, front)
            Y = data.objective.for_projection(rows.targets) if against else X[:, :0]
            yield X, Y, rows.weight


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
