"""From rows to a model: prepare, train, fold."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from protopinv.bank import Bank
from protopinv.errors import TrainingError
from protopinv.features import FeatureMap, Front
from protopinv.network import Network, solve_weights
from protopinv.train.bank_step import BankStep, architecture_of
from protopinv.train.config import TrainConfig
from protopinv.train.history import History
from protopinv.train.loop import EpochReport, Observer, train
from protopinv.train.prepare import LabelledRows, first_bank, noise_generator, prepare
from protopinv.train.step import SOLVE_TOLERANCE

FOLDS = 4
SMOOTHED = 9
# A fold ends when its lowest loss is this share of all epochs ago.
PATIENCE = 0.3
GPU_LOOKS = 10


@dataclass(frozen=True)
class Model:
    """A trained bank, the map before it, and the plain network both fold into.

    A front stands before the network and does not fold.
    """

    bank: Bank
    front: Front | None
    features: FeatureMap
    network: Network
    history: History


def train_classifier(
    source: LabelledRows,
    config: TrainConfig,
    *,
    seed: int,
    device: torch.device,
    clock: Callable[[], float],
    held_out: NDArray[np.integer[Any]] | None = None,
    observer: Observer | None = None,
) -> Model:
    """Train on all rows but ``held_out``, the row numbers to validate on.

    ``observer`` is shown the epochs of folds too; their reports have a name.

    With early_stopping="cross" and nothing held out, four folds say after how many epochs the
    loss on rows not seen is lowest; then all rows are trained on for as many.
    """

    def trained(
        rows: NDArray[np.integer[Any]] | None, show: Observer | None, epochs: int | None
    ) -> Model:
        return _train_once(source, config, seed, device, clock, rows, show, epochs)

    if config.early_stopping != "cross" or held_out is not None:
        return trained(held_out, observer, None)
    started = clock()
    losses = []
    folds = stratified_folds(source.labels, FOLDS, seed)
    if not folds:  # no class has rows enough
        return trained(None, observer, None)
    patience = max(1, round(PATIENCE * config.max_epochs))
    for number, rows in enumerate(folds, start=1):
        watch = _FoldWatch(observer, f"fold {number} of {len(folds)}", patience)
        model = trained(rows, watch, None)
        if model.history.ending == "interrupted":
            return model
        losses.append(model.history.validation_loss)
    model = trained(None, observer, best_length(losses))
    return replace(model, history=replace(model.history, seconds=clock() - started))


class _FoldWatch:
    """Shows a fold to an observer, and ends it when its loss on rows not seen has long risen."""

    def __init__(self, observer: Observer | None, name: str, patience: int) -> None:
        self._observer = observer
        self._name = name
        self._patience = patience
        self._best = (math.inf, 0)

    def __call__(self, report: EpochReport) -> bool:
        named = replace(report, fold=self._name)
        told_to_stop = self._observer is not None and bool(self._observer(named))
        return told_to_stop or self._has_risen(report)

    def _has_risen(self, report: EpochReport) -> bool:
        loss = report.validation_loss
        if loss is None or (loss.is_cuda and report.epoch % GPU_LOOKS):  # a look waits for it
            return False
        if float(loss) < self._best[0]:
            self._best = (float(loss), report.epoch)
        return report.epoch - self._best[1] >= self._patience


def _train_once(
    source: LabelledRows,
    config: TrainConfig,
    seed: int,
    device: torch.device,
    clock: Callable[[], float],
    held_out: NDArray[np.integer[Any]] | None,
    observer: Observer | None,
    epochs: int | None,
) -> Model:
    prepared = prepare(source, config, device, seed=seed, held_out=held_out)
    bank = first_bank(prepared.rows, source.n_classes, config, Generator().manual_seed(seed))
    step = BankStep(bank.leaves(), config, generator=noise_generator(seed, device))
    history = train(
        step,
        prepared.rows,
        clock=clock,
        validation=prepared.validation,
        observer=observer,
        epochs=epochs,
    )
    bank, features = step.state.to("cpu"), prepared.features.to("cpu")
    front = None if prepared.front is None else prepared.front.to("cpu")
    return Model(bank, front, features, fold(bank, features, config), history)


def stratified_folds(
    labels: NDArray[np.integer[Any]], n_folds: int, seed: int
) -> list[NDArray[np.integer[Any]]]:
    """Row numbers of each fold: every class is dealt out like cards, in a random order.

    Classes of fewer rows than folds are in none: a fold could not learn what it is judged by.
    """
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    dealt = shuffled[np.argsort(labels[shuffled], kind="stable")]
    common = np.bincount(labels) >= n_folds
    dealt = dealt[common[labels[dealt]]]
    folds = (np.sort(dealt[start::n_folds]) for start in range(n_folds))
    return [rows for rows in folds if 0 < len(rows) < len(labels)]


def best_length(losses: Sequence[Sequence[float]]) -> int:
    """Epochs with the lowest mean loss, smoothed so that one lucky epoch does not win.

    A fold that ended early had a rising loss; it counts with its last.
    """
    longest = max(map(len, losses))
    mean = np.mean([np.pad(curve, (0, longest - len(curve)), "edge") for curve in losses], axis=0)
    half = SMOOTHED // 2
    padded = np.pad(mean, half, mode="edge")
    smooth = np.convolve(padded, np.ones(SMOOTHED) / SMOOTHED, mode="valid")
    return int(np.argmin(np.where(np.isfinite(smooth), smooth, np.inf))) + 1


def fold(bank: Bank, features: FeatureMap, config: TrainConfig) -> Network:
    """Solve once in float64 and back-project: a plain network on original features."""
    exact = bank.to("cpu", torch.float64)
    architecture = architecture_of(config)
    solution = solve_weights(exact, architecture, form=config.solver)
    if not bool((solution.error < SOLVE_TOLERANCE).all()):
        solution = solve_weights(exact, architecture, form="svd")
    first, *others = (W.detach() for W in solution.weights)
    if not all(bool(W.isfinite().all()) for W in solution.weights):
        raise TrainingError(
            "The weights of a trained bank must be finite. They are not: its prototypes have grown "
            "too large. Lower lr, or raise ridge."
        )
    return Network((features.back_project(first), *others), config.activation)
