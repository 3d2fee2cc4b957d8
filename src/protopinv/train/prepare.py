"""From rows of any number type to what the loop takes: a feature map, projected rows, a bank."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
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
    FeatureMap,
    fit_feature_map,
    fit_wide_feature_map,
    measure_moments,
)
from protopinv.train.config import TrainConfig
from protopinv.train.rows import Rows

# Rows are converted to float64 a piece at a time, about this many numbers.
PIECE_NUMBERS = 2**20


@dataclass(frozen=True)
class LabelledRows:
    """Rows on the host in the type they came in; only a piece at a time is moved and converted."""

    X: NDArray[Any]
    labels: NDArray[np.integer[Any]]
    n_classes: int

    def pieces(
        self, chosen: NDArray[np.integer[Any]], device: torch.device, width: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """(rows in float64, labels) of the chosen row numbers; ``width`` numbers a row are used."""
        n_pieces = max(1, -(-len(chosen) * width // PIECE_NUMBERS))
        for numbers in np.array_split(chosen, n_pieces):
            rows, labels = self.X[numbers], self.labels[numbers]
            yield torch.from_numpy(rows).to(device).double(), torch.from_numpy(labels).to(device)


def features_of(
    source: LabelledRows,
    chosen: NDArray[np.integer[Any]],
    config: TrainConfig,
    device: torch.device,
) -> FeatureMap:
    """The map that the configuration asks for, fitted on the chosen rows."""
    n, d, k = len(chosen), source.X.shape[1], source.n_classes
    rows = (
        (X, one_hot(y, k).double() if config.projection == "pls" else X[:, :0])
        for X, y in source.pieces(chosen, device, width=d + k)
    )
    choices: dict[str, Any] = {
        "scaling": config.scaling,
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
    config: TrainConfig,
    device: torch.device,
) -> Rows:
    """The chosen rows as the network sees them."""
    dtype = getattr(torch, config.dtype)
    Z = torch.empty(len(chosen), features.n_components, dtype=dtype, device=device)
    done = 0
    for X, _ in source.pieces(chosen, device, width=source.X.shape[1]):
        Z[done : done + len(X)] = features.project(X)
        done += len(X)
    return Rows(Z, torch.from_numpy(source.labels[chosen]).to(device))


def noise_generator(seed: int, device: torch.device) -> Generator:
    """What is drawn while training, apart from what was drawn for the start with this seed."""
    return Generator(device).manual_seed(seed + 2**31)


@dataclass(frozen=True)
class Prepared:
    """A fitted feature map, and rows as the network sees them."""

    features: FeatureMap
    rows: Rows
    validation: Rows | None


def prepare(
    source: LabelledRows,
    config: TrainConfig,
    device: torch.device,
    held_out: NDArray[np.integer[Any]] | None = None,
) -> Prepared:
    """Fit the map on all rows but ``held_out``, and project both."""
    everything = np.arange(len(source.X))
    kept = everything if held_out is None else np.setdiff1d(everything, held_out)
    features = features_of(source, kept, config, device)
    rows = project_rows(source, kept, features, config, device)
    if held_out is None:
        return Prepared(features, rows, None)
    return Prepared(features, rows, project_rows(source, held_out, features, config, device))


def first_bank(rows: Rows, n_classes: int, config: TrainConfig, generator: Generator) -> Bank:
    """Inputs, hidden targets and outputs as the configuration asks."""
    p = config.n_prototypes
    if config.input_init == "stratified":
        inputs = stratified_inputs(balanced_classes(p, n_classes), rows.X, rows.y, generator)
    else:
        inputs = normal_inputs(p, rows.X, generator)
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
