"""What the cell of a run keeps: its accuracy always, and the rest where somebody asks for it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.paper.splits import SplitRows
from protopinv.bank import Bank
from protopinv.bench.together import outputs_of
from protopinv.diagnose import (
    Diagnosis,
    LayerDiagnosis,
    Outputs,
    TracePoint,
    diagnose,
    measure_allocation,
    measure_generalisation,
)
from protopinv.network import ACTIVATIONS, solve_weights, with_bias
from protopinv.train.bank_step import architecture_of
from protopinv.train.config import TrainConfig
from protopinv.train.history import History
from protopinv.train.model import Model

CURVE_MARKS = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 250)
EARLY_EPOCHS = 50


@dataclass(frozen=True)
class Kept:
    """What a cell keeps beside the accuracy."""

    curves: bool = False
    trace: bool = False
    gaps: bool = False
    layers: bool = False
    allocation: bool = False


def told(
    model: Model,
    rows: SplitRows,
    split: int,
    kept: Kept,
    device: str,
    first: Tensor | None = None,
    trace: Sequence[TracePoint] = (),
) -> dict[str, Any]:
    """The cell of a run on a split; the test set has no part in it."""
    train_rows, held_rows = rows.parts(split)
    held_out = _outputs(model, rows, held_rows, device)
    bank = model.bank.member(0)
    cell = {
        "held_out": 1 - held_out.error,
        "trained": bank.n_trained,
        "ridge": bank.ridge.tolist(),
        **_of_history(model.history),
    }
    if kept.curves:
        cell["every_epoch"] = [round(score, 4) for score in model.history.validation_score]
    if kept.gaps:
        diagnosis = diagnose(bank, architecture_of(model.config))
        train = _outputs(model, rows, train_rows, device)
        found = measure_generalisation(model.network, diagnosis, train, held_out)
        cell |= {"train": 1 - train.error, "layers": _summaries(diagnosis)}
        cell["generalisation"] = asdict(found)
    if kept.layers:
        cell["misses"] = layer_misses(bank, model.config)
    if kept.allocation and first is not None:
        found_classes = measure_allocation(first, bank.outputs, _confusion(held_out))
        cell["allocation"] = asdict(found_classes)
    if trace:
        cell["trace"] = [
            {"epoch": p.epoch + 1, "counts": p.counts, "layers": _summaries(p.diagnosis)}
            for p in trace
        ]
    return cell


def _of_history(history: History) -> dict[str, Any]:
    scores = history.validation_score
    return {
        "best_held_out": max(scores),
        "early_roughness": _roughness(history.validation_loss[:EARLY_EPOCHS]),
        "curve": {str(m): round(scores[m - 1], 5) for m in CURVE_MARKS if m <= history.n_epochs},
        "skipped_steps": history.skipped_steps,
        "rate_cuts": history.rate_cuts,
    }


def layer_misses(bank: Bank, config: TrainConfig) -> dict[str, list[float]]:
    """How far prototypes miss the targets of every layer, as shares of the size of the targets.

    ``own`` is what the layer's ridge leaves, given exact targets before it; ``all`` is what has
    gathered on the way from the prototype inputs.
    """
    architecture = architecture_of(config)
    exact = bank.to("cpu", torch.float64)
    weights = solve_weights(exact, architecture).weights
    activate = ACTIVATIONS[config.activation]
    gathered = given = exact.inputs
    misses: dict[str, list[float]] = {"own": [], "all": []}
    for W, H in zip(weights, exact.hidden, strict=False):
        for name, before in (("own", given), ("all", gathered)):
            miss = (with_bias(before) @ W - H).norm() / H.norm()
            misses[name].append(float(f"{float(miss):.4g}"))
        gathered, given = activate(with_bias(gathered) @ W), activate(H)
    return misses


def _outputs(model: Model, rows: SplitRows, some: NDArray[np.int64], device: str) -> Outputs:
    values = outputs_of(model, rows.source.X[some], device)
    return Outputs(values, torch.from_numpy(rows.source.targets[some]))


def _roughness(losses: list[float]) -> float:
    """The mean absolute second difference: zero for a straight line."""
    return float(np.abs(np.diff(losses, 2)).mean()) if len(losses) > 2 else 0.0


def _summaries(diagnosis: Diagnosis) -> list[dict[str, float]]:
    return [_summary(layer) for layer in diagnosis.layers]


def _summary(layer: LayerDiagnosis) -> dict[str, float]:
    numbers = asdict(layer)
    del numbers["singular_values"]
    numbers |= numbers.pop("sensitivity")
    return {name: float(f"{value:.5g}") for name, value in numbers.items()}


def _confusion(outputs: Outputs) -> list[list[int]]:
    k = outputs.values.shape[1]
    pairs = outputs.labels * k + outputs.values.argmax(dim=1)
    counts: list[list[int]] = pairs.bincount(minlength=k * k).view(k, k).tolist()
    return counts
