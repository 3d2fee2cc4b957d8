"""From rows to a model: feature map, first bank, training, folded network."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from protopinv.bank import Bank, balanced_classes, normal_inputs, start_bank, stratified_inputs
from protopinv.errors import DataError
from protopinv.features import FeatureMap, Moments, fit_feature_map, measure_moments
from protopinv.network import Architecture, Network, solve_weights
from protopinv.train.config import TrainConfig
from protopinv.train.history import History
from protopinv.train.loop import EpochReport, train
from protopinv.train.losses import CrossEntropy
from protopinv.train.rows import Rows
from protopinv.train.step import SOLVE_TOLERANCE

# Rows are converted to float64 for the moments a piece at a time, about this many numbers.
PIECE_NUMBERS = 2**20


@dataclass(frozen=True)
class Model:
    """A trained bank, the map before it, and the plain network both fold into."""

    bank: Bank
    features: FeatureMap
    network: Network
    history: History


def train_classifier(
    X: np.ndarray,
    labels: np.ndarray,
    n_classes: int,
    config: TrainConfig,
    *,
    seed: int,
    device: torch.device,
    clock: Callable[[], float],
    held_out: np.ndarray | None = None,
    observer: Callable[[EpochReport], None] | None = None,
) -> Model:
    """Train on the rows of ``X`` (any number type), validating on the row numbers ``held_out``."""
    on_host = Generator().manual_seed(seed)
    on_device = Generator(device).manual_seed(seed)
    everything = np.arange(len(X))
    kept = everything if held_out is None else np.setdiff1d(everything, held_out)
    moments = measure_moments(_pieces(X, labels, kept, n_classes, device))
    _check_range(moments)
    features = fit_feature_map(
        moments,
        scaling=config.scaling,
        projection=config.projection,
        n_components=config.n_components,
    )
    rows = _project(X, labels, kept, features, config, device)
    validation = (
        None if held_out is None else _project(X, labels, held_out, features, config, device)
    )
    bank, history = train(
        _first_bank(rows, n_classes, config, on_host),
        rows,
        config,
        loss=CrossEntropy(config.label_smoothing),
        architecture=architecture_of(config),
        generator=on_device,
        clock=clock,
        validation=validation,
        observer=observer,
    )
    bank, features = bank.to("cpu"), features.to("cpu")
    return Model(bank, features, fold(bank, features, config), history)


def architecture_of(config: TrainConfig) -> Architecture:
    """The part of the configuration that a bank needs to become weights."""
    return Architecture(config.activation, config.temperature, config.normalize_inputs)


def fold(bank: Bank, features: FeatureMap, config: TrainConfig) -> Network:
    """Solve once in float64 and back-project: a plain network on original features."""
    exact = bank.to("cpu", torch.float64)
    architecture = architecture_of(config)
    solution = solve_weights(exact, architecture, form=config.solver)
    if not bool((solution.error < SOLVE_TOLERANCE).all()):
        solution = solve_weights(exact, architecture, form="svd")
    first, *others = (W.detach() for W in solution.weights)
    return Network((features.back_project(first), *others), config.activation)


def _pieces(
    X: np.ndarray, labels: np.ndarray, chosen: np.ndarray, n_classes: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """(rows, one-hot labels) of the chosen rows, a piece at a time, in the type they came in."""
    for numbers in np.array_split(chosen, _n_pieces(len(chosen), X.shape[1])):
        y = torch.from_numpy(labels[numbers]).to(device)
        yield torch.from_numpy(X[numbers]).to(device), torch.nn.functional.one_hot(y, n_classes)


def _project(
    X: np.ndarray,
    labels: np.ndarray,
    chosen: np.ndarray,
    features: FeatureMap,
    config: TrainConfig,
    device: torch.device,
) -> Rows:
    """The chosen rows as the network sees them; besides the result one piece is in memory."""
    dtype = getattr(torch, config.dtype)
    Z = torch.empty(len(chosen), features.n_components, dtype=dtype, device=device)
    pieces = np.array_split(chosen, _n_pieces(len(chosen), X.shape[1]))
    for numbers, part in zip(pieces, Z.split([len(piece) for piece in pieces]), strict=True):
        part.copy_(features.project(torch.from_numpy(X[numbers]).to(device).double()))
    return Rows(Z, torch.from_numpy(labels[chosen]).to(device))


def _n_pieces(n: int, d: int) -> int:
    return max(1, -(-n * d // PIECE_NUMBERS))


def _check_range(moments: Moments) -> None:
    if not bool(moments.x_scatter.isfinite().all()):
        raise DataError(
            "Feature values must be small enough to be squared, at most about 1e150. "
            f"Column {_worst_column(moments.x_scatter)} holds larger ones. Rescale or drop it."
        )


def _worst_column(scatter: Float[Tensor, "d d"]) -> int:
    return int((~scatter.isfinite()).sum(0).argmax())


def _first_bank(rows: Rows, n_classes: int, config: TrainConfig, generator: Generator) -> Bank:
    classes = balanced_classes(config.n_prototypes, n_classes)
    if config.input_init == "stratified":
        inputs = stratified_inputs(classes, rows.X, rows.y, generator)
    else:
        inputs = normal_inputs(config.n_prototypes, rows.X, generator)
    return start_bank(
        inputs,
        torch.nn.functional.one_hot(classes, n_classes),
        hidden_sizes=config.widths,
        hidden_scale=config.hidden_scale,
        ridge=config.ridges,
        learn_ridge=config.learned_ridges,
        generator=generator,
    )
