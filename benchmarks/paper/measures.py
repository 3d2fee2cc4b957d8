"""What the cell of a run keeps: its accuracy always, and the rest where a sweep asks for it.

That is the gap between training and held-out rows next to what is said to predict it, how far the
layers miss their targets, and which classes the prototypes stand for. Proposition 1 bounds the gap
by kappa C / sqrt(N) + sqrt(log(1 / delta) / 2N) with a constant C that it leaves open. So its first
term, without C, is a diagnostic to compare runs and no guarantee.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.paper.splits import SplitRows
from protopinv.bank import Bank
from protopinv.diagnose import Diagnosis, LayerDiagnosis, TracePoint, diagnose
from protopinv.model import Model
from protopinv.network import ACTIVATIONS, Network, dense, solve_weights, with_bias
from protopinv.train.config import TrainConfig
from protopinv.train.history import History

CURVE_MARKS = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 250)
EARLY_EPOCHS = 50
MARGIN_QUANTILE = 0.1


@dataclass(frozen=True)
class Extras:
    """What the cell of a run has besides its accuracy."""

    curves: bool = False
    trace: bool = False
    gaps: bool = False
    layers: bool = False
    allocation: bool = False


@dataclass(frozen=True)
class Outputs:
    """Raw outputs of a network, and the labels of the rows."""

    values: Float[Tensor, "n k"]
    labels: Int[Tensor, " n"]

    @property
    def error(self) -> float:
        """Share of wrong predictions."""
        return float((self.values.argmax(dim=1) != self.labels).double().mean())

    @property
    def loss(self) -> float:
        """Mean cross-entropy."""
        return float(cross_entropy(self.values, self.labels))

    @property
    def margin(self) -> float:
        """The lower decile of (output of the right class - largest other output)."""
        right = self.values.gather(1, self.labels[:, None])[:, 0]
        others = self.values.scatter(1, self.labels[:, None], -torch.inf).amax(dim=1)
        return float(torch.quantile(right - others, MARGIN_QUANTILE))


@dataclass(frozen=True)
class Generalisation:
    """Both gaps are test minus training; theory says that every other number grows with them.

    ``kappa_term`` and ``confidence_term`` are those of Proposition 1, the first without its
    constant. The norms are of the plain network on original features, biases left out.
    ``spectral_over_margin`` is the product of spectral norms over the margin, the leading factor of
    margin bounds (Bartlett, Foster and Telgarsky, 2017), infinite for margins of zero and less.
    """

    error_gap: float
    loss_gap: float
    kappa: float
    kappa_term: float
    confidence_term: float
    system_kappa: float
    frobenius_norm: float
    spectral_norm: float
    inverse_margin: float
    spectral_over_margin: float


@dataclass(frozen=True)
class Allocation:
    """Prototypes per class, by their largest output, at the start and the end of training.

    ``mass`` is the class's share of all squared outputs at the end. ``moved`` counts prototypes
    that changed their class. ``ambiguity`` is the class's share of rows confused with another,
    either way round, among the rows of that class or predicted as it.
    """

    start: tuple[int, ...]
    end: tuple[int, ...]
    mass: tuple[float, ...]
    moved: int
    ambiguity: tuple[float, ...]


def cell_of_run(
    model: Model,
    rows: SplitRows,
    split: int,
    extras: Extras,
    device: str,
    first: Tensor | None = None,
    trace: Sequence[TracePoint] = (),
) -> dict[str, Any]:
    """The cell of a run on a split; the test set has no part in it."""
    train_rows, held_rows = rows.parts(split)
    held_out = _outputs(model, rows, held_rows, device)
    bank = model.prototypes.member(0)
    cell = {
        "held_out": 1 - held_out.error,
        "trained": bank.n_trained,
        "ridge": bank.ridge.tolist(),
        **_of_history(model.history),
    }
    if extras.curves:
        cell["every_epoch"] = [round(score, 4) for score in model.history.validation_score]
    if extras.gaps:
        diagnosis = diagnose(bank, model.config.architecture)
        train = _outputs(model, rows, train_rows, device)
        gaps = measure_generalisation(model.network, diagnosis, train, held_out)
        cell |= {"train": 1 - train.error, "layers": _summaries(diagnosis)}
        cell["generalisation"] = asdict(gaps)
    if extras.layers:
        cell["misses"] = layer_misses(bank, model.config)
    if extras.allocation and first is not None:
        cell["allocation"] = asdict(measure_allocation(first, bank.outputs, _confusion(held_out)))
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

    ``own`` is what the layer's ridge leaves, with exact targets before it; ``all`` is what has
    gathered on the way from the prototype inputs.
    """
    architecture = config.architecture
    exact = bank.to("cpu", torch.float64)
    weights = solve_weights(exact, architecture).weights
    activate = ACTIVATIONS[config.activation]
    gathered = targets = exact.inputs
    misses: dict[str, list[float]] = {"own": [], "all": []}
    for W, H in zip(weights, exact.hidden, strict=False):
        for name, before in (("own", targets), ("all", gathered)):
            miss = (with_bias(before) @ W - H).norm() / H.norm()
            misses[name].append(float(f"{float(miss):.4g}"))
        gathered, targets = activate(with_bias(gathered) @ W), activate(H)
    return misses


def _outputs(model: Model, rows: SplitRows, some: NDArray[np.int64], device: str) -> Outputs:
    values = model.outputs(rows.data.X[some], torch.device(device))
    return Outputs(values, torch.from_numpy(rows.data.y[some]))


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


def measure_generalisation(
    network: Network, diagnosis: Diagnosis, train: Outputs, test: Outputs, *, delta: float = 0.05
) -> Generalisation:
    """The gaps of a network, and every number that is said to predict them."""
    kappa, n = diagnosis.layers[0].condition, len(train.labels)
    matrices = [dense(W)[1:].double() for W in network.weights]
    spectral = math.prod(float(torch.linalg.matrix_norm(W, 2)) for W in matrices)
    margin = train.margin
    return Generalisation(
        error_gap=test.error - train.error,
        loss_gap=test.loss - train.loss,
        kappa=kappa,
        kappa_term=kappa / math.sqrt(n),
        confidence_term=math.sqrt(math.log(1 / delta) / (2 * n)),
        system_kappa=diagnosis.layers[0].system_condition,
        frobenius_norm=math.sqrt(sum(float(W.square().sum()) for W in matrices)),
        spectral_norm=spectral,
        inverse_margin=1 / margin if margin > 0 else math.inf,
        spectral_over_margin=spectral / margin if margin > 0 else math.inf,
    )


def measure_allocation(
    first: Float[Tensor, "p k"], last: Float[Tensor, "p k"], confusion: Sequence[Sequence[int]]
) -> Allocation:
    """Compare the outputs of a bank before and after training, next to a confusion matrix."""
    before, after = first.argmax(dim=1), last.argmax(dim=1)
    k = first.shape[1]
    squares = last.square().sum(dim=0)
    return Allocation(
        start=tuple(before.bincount(minlength=k).tolist()),
        end=tuple(after.bincount(minlength=k).tolist()),
        mass=tuple((squares / squares.sum()).tolist()),
        moved=int((before != after).sum()),
        ambiguity=tuple(_ambiguity(confusion, label) for label in range(k)),
    )


def _ambiguity(confusion: Sequence[Sequence[int]], label: int) -> float:
    both = sum(confusion[label]) + sum(row[label] for row in confusion)
    right = confusion[label][label]
    return (both - 2 * right) / max(1, both - right)
