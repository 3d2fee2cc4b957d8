"""The same for rows that are not in memory: survey them, then fit front and map."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from protopinv.features import (
    FeatureMap,
    Front,
    Moments,
    Stem,
    fit_feature_map,
    fit_wide_feature_map,
    measure_moments,
    moments_of_chunk,
)
from protopinv.objective import Classes, Objective
from protopinv.rows import RowSource
from protopinv.train.config import TrainConfig
from protopinv.train.prepare import (
    FOR_FRONT,
    Prepared,
    bent,
    check_range,
    map_choices,
    number_types,
    stem,
    stem_rows,
    stream,
)
from protopinv.train.ranks import Ranks
from protopinv.train.rows import AnyRows
from protopinv.train.source import MOST_OF_FREE, piece_rows
from protopinv.train.streamed import StreamedRows, streamed
from protopinv.train.summary import LabelCounts, Summary
from protopinv.train.survey import (
    SAMPLE_ROWS,
    Parts,
    Sample,
    Survey,
    as_tensor,
    pieces_of,
    survey,
)
from protopinv.train.view import View


def surveyed(
    source: RowSource,
    targets: Summary,
    objective_of: Callable[[Survey], Objective],
    config: TrainConfig,
    *,
    seed: int,
    ranks: Ranks,
) -> tuple[Survey, Objective]:
    """One pass over all rows; before it one over targets, where PLS must know them."""
    parts = Parts(seed, config.held_out)
    scatter = "diagonal" if config.projection == "none" else "full"
    if config.stem != "none" or source.n_features > source.n_rows:
        scatter = "none"
    if config.projection != "pls" or scatter == "none":
        found = survey(source, targets, parts, ranks, scatter=scatter)
        return found, objective_of(found)
    known = objective_of(survey(source, targets.fresh(), parts, ranks, features=False))

    def against(y: NDArray[Any]) -> Tensor:
        return known.for_projection(torch.from_numpy(known.encode(y)))

    found = survey(source, targets, parts, ranks, scatter=scatter, against=against)
    return found, objective_of(found)


def prepare_stream(
    source: RowSource,
    objective: Objective,
    config: TrainConfig,
    device: torch.device,
    *,
    seed: int,
    found: Survey,
    ranks: Ranks,
) -> Prepared:
    """The same for rows that are not in memory, after a survey of them."""
    parts = Parts(seed, config.held_out)
    sample = found.sample
    if sample is None:
        raise AssertionError("a survey without rows is refused")
    some = sample.lowest(SAMPLE_ROWS)
    front = _front_of_sample(some, config, device, seed)
    features = _features_of_survey(
        source, objective, config, front, some, found, device, ranks, seed
    )
    same, dtype = number_types(config)
    view = View(front, features.to(device), objective, dtype, device)
    rows, validation = streamed(source, view, parts, ranks, found)
    masses = _masses(objective, found)

    def kept(given: StreamedRows) -> AnyRows:
        """In memory, where this rank's part has room there."""
        size = given.n_total / ranks.size * features.n_components * dtype.itemsize
        room = source.memory
        if device.type == "cuda":
            room = int(MOST_OF_FREE * torch.cuda.mem_get_info(device)[0]) if room else 0
        # all or none: ranks that keep their rows exchange how many these are
        (too_large,) = ranks.agree(size > room)
        return given if too_large else given.resident()

    if validation is not None:
        watched = replace(validation, view=replace(view, dtype=same))
        held = found.held_sample
        judged = None if held is None else watched.of_sample(held)
        first = rows.of_sample(sample)
        return Prepared(front, features, kept(rows), kept(watched), first, judged, masses=masses)

    def cross(n_full: int) -> Prepared | None:
        if (found.fold_masses <= 0).any():
            return None
        both = rows.crossed(n_full, found.fold_masses.tolist())
        first, judged = both.of_sample(sample), both.of_sample(some)
        return Prepared(front, features, kept(both), None, first, judged)

    if config.early_stopping == "cross":
        first = rows.of_sample(sample)
        return Prepared(front, features, rows, None, first, cross=cross, masses=masses)
    return Prepared(front, features, kept(rows), None, rows.of_sample(sample), masses=masses)


def _masses(objective: Objective, found: Survey) -> Tensor:
    """What rows to train on count, by group; held-out rows are as many of each."""
    shares = torch.ones(1, dtype=torch.float64)
    if isinstance(objective, Classes) and isinstance(found.targets, LabelCounts):
        by_label = found.targets.mass
        each = [by_label[label] for label in objective.labels.tolist()]
        shares = torch.tensor(each, dtype=torch.float64)
    return shares / shares.sum() * float(found.masses[0])


def _front_of_sample(
    some: Sample, config: TrainConfig, device: torch.device, seed: int
) -> Front | None:
    if config.stem == "none" and not config.bends_columns:
        return None
    X = as_tensor(some.X).to(device)
    weight = torch.from_numpy(some.weight)
    even = bool((weight == 1).all())
    if config.stem == "none":
        return bent(X, None if even else weight.to(device), config)
    generator = Generator().manual_seed(stream(seed, FOR_FRONT))
    few = stem_rows(len(some), None if even else weight, generator)
    return stem(X[torch.from_numpy(few).to(device)], config, generator)


def _features_of_survey(
    source: RowSource,
    objective: Objective,
    config: TrainConfig,
    front: Front | None,
    some: Sample,
    found: Survey,
    device: torch.device,
    ranks: Ranks,
    seed: int,
) -> FeatureMap:
    choices = map_choices(config)
    wide = config.projection != "none" and int(found.counts[0]) < some.X.shape[1]
    if front is None and not wide and found.moments is not None:
        moments = found.moments
    elif isinstance(front, Stem):
        moments = _stem_moments(source, objective, config, front, device, ranks, seed)
    else:
        X = as_tensor(some.X).to(device)
        X = X.double() if front is None else front.features(X)
        Y = X[:, :0]
        if config.projection == "pls":
            Y = objective.for_projection(torch.from_numpy(objective.encode(some.y))).to(device)
        weight = torch.from_numpy(some.weight).to(device) if found.is_weighted else None
        if wide:
            check_range(X.square().sum(0))
            return fit_wide_feature_map(X, Y, weight, **choices)
        moments = measure_moments([(X, Y, weight)], diagonal=config.projection == "none")
    check_range(moments.variance)
    return fit_feature_map(moments, **choices)


def _stem_moments(
    source: RowSource,
    objective: Objective,
    config: TrainConfig,
    front: Stem,
    device: torch.device,
    ranks: Ranks,
    seed: int,
) -> Moments:
    """Of the maps of a stem, by a pass of its own: they are not known before the stem is."""
    parts, whole = Parts(seed, config.held_out), None
    for block, piece in pieces_of(source, ranks.share(source.blocks)):
        kept = ~parts.held(block, piece)
        if piece.weight is not None:
            kept &= piece.weight > 0
        size = piece_rows(front.n_outputs, front, device)
        for rows in np.array_split(np.flatnonzero(kept), max(1, -(-int(kept.sum()) // size))):
            if len(rows) == 0:
                continue
            X = front.features(as_tensor(piece.X[rows]).to(device))
            Y = X[:, :0]
            if config.projection == "pls":
                encoded = objective.encode(np.asarray(piece.y)[rows])
                Y = objective.for_projection(torch.from_numpy(encoded)).to(device)
            weight = None if piece.weight is None else torch.from_numpy(piece.weight[rows])
            diagonal = config.projection == "none"
            weight = None if weight is None else weight.to(device)
            some = moments_of_chunk(X, Y, weight, diagonal=diagonal)
            whole = some if whole is None else whole.merge(some)
    mine = None if whole is None else whole.to("cpu")  # a GPU of another rank is not ours
    found = [moments.to(device) for moments in ranks.gather(mine) if moments is not None]
    total = found[0]
    for moments in found[1:]:
        total = total.merge(moments)
    return total
