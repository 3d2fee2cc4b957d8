"""A fitted model as one frozen value: what a fit returns, and what every other function takes."""

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopinv.bank import Bank
from protopinv.errors import DataError, ModelFileError, TrainingError
from protopinv.features import FeatureMap, Front, Steps, TailTransform
from protopinv.memory import Memory
from protopinv.network import Network, mean_network
from protopinv.objective import Classes, Labels, Objective
from protopinv.tables import Table
from protopinv.train.bank_pass import BankPass, SolverSettings
from protopinv.train.config import TrainConfig
from protopinv.train.history import History
from protopinv.train.rows import as_tensor, piece_rows
from protopinv.train.step import SOLVE_TOLERANCE
from protopinv.train.training import Candidate

# So many times more rows are predicted at once than are prepared at once to fit.
PIECES = 8
# What the parts of an ensemble have in common.
SHARED = (
    "objective",
    "features",
    "n_columns",
    "feature_names",
    "target_names",
    "table",
    "front",
    "memory",
    "is_closed",
    "image_range",
    "examples",
    "made_up",
    "parameters",
)
# Rows of a frame that become numbers at once.
FRAME_ROWS = 2**16

# A front, a feature map, and a network for each part of an ensemble, with its steps and weight.
Placed = tuple[Front | None, FeatureMap, list[tuple[Network, Steps | None, float]]]
# What was moved to a GPU, for as long as the model itself lives.
_on_gpu: MutableMapping[Any, dict[torch.device, Placed]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Model:
    """All that a fit leaves behind. Functions take a model and return another; none changes one.

    Rows pass the ``table`` (columns of a frame to numbers; None for rows of numbers), the ``front``
    (a stem, or a tail transform; None for neither) and the ``network``, into which the affine map
    of the ``features`` and the banks of all members have been merged. With ``steps`` (the
    piecewise-linear encoding of numbers) the network sees these, behind front and map.
    ``calibration`` is the factor of its outputs that held-out rows have chosen (temperature
    scaling).

    An ensemble has ``others``, models of other architectures and steps that share everything else
    with this one; predictions are the mean of all outputs by ``weight``.

    ``bank`` holds the prototypes of every member, and ``memory`` a Gaussian mixture of the rows for
    ``learn``; without them a model predicts, and cannot be trained further. The first ``n_frozen``
    prototypes of every member stay where they are. ``bank`` may be the mean over ``n_calls`` calls
    of ``learn``; then ``last_bank`` is that of the last one. ``is_closed``: classes are listed.

    ``parameters`` are those of the estimator as a user set them, ``config`` with every "auto"
    resolved. ``examples`` are a few training rows, coded where there is a table, and never leave
    the process unless the user asks; ``made_up`` says that they are drawn instead.
    """

    objective: Objective
    network: Network
    features: FeatureMap
    config: TrainConfig
    history: History
    n_columns: int
    feature_names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] | None = None
    table: Table | None = None
    front: Front | None = None
    bank: Bank | None = None
    calibration: float = 1.0
    steps: Steps | None = None
    weight: float = 1.0
    others: "tuple[Model, ...]" = ()
    memory: Memory | None = None
    last_bank: Bank | None = None
    n_frozen: int = 0
    n_calls: int = 0
    is_closed: bool = False
    candidates: tuple[Candidate, ...] = ()
    image_range: tuple[float, float] | None = None
    examples: NDArray[Any] = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    made_up: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: all but training rows."""
        if self.made_up:
            return dict(vars(self))
        return {**vars(self), "examples": self.examples[:0].copy()}

    def __copy__(self) -> "Model":
        return self  # a value needs no copy

    @property
    def task(self) -> str:
        """What it predicts: classification, multi-label or regression."""
        if isinstance(self.objective, Classes):
            return "classification"
        return "multi-label" if isinstance(self.objective, Labels) else "regression"

    @property
    def classes(self) -> NDArray[Any]:
        """The labels, sorted; the numbers of the outputs where there are none."""
        if isinstance(self.objective, Classes):
            return self.objective.labels
        return np.arange(self.objective.n_outputs)

    @property
    def n_inputs(self) -> int:
        """Numbers that go into the front, or into the feature map where there is none."""
        return len(self.features.mean) if self.front is None else self.front.n_inputs

    @property
    def n_features(self) -> int:
        """Numbers of a row as ``examples`` hold it: one for each column that is used."""
        return self.n_inputs if self.table is None else len(self.table.columns)

    @property
    def middle(self) -> NDArray[np.float64]:
        """A row of numbers that is in the middle of all columns: what stands in for gaps.

        Means; behind a tail transform what becomes the mean, which is nearer to the median.
        """
        mean = self.features.mean.double()
        if isinstance(self.front, TailTransform):
            mean = self.front.restored(mean[None])[0]
        return mean.numpy()

    @property
    def used_names(self) -> tuple[str, ...] | None:
        """The names of these columns, where they have names."""
        if self.table is None:
            return self.feature_names
        return tuple(column.name for column in self.table.columns)

    @property
    def size(self) -> int:
        """Model size: numbers (parameters) that must be stored to predict."""
        steps = [part.steps for part in self.parts if part.steps is not None]
        before = 0 if self.front is None else self.front.n_numbers
        before += sum(each.n_numbers for each in steps) + 2 * len(self.features.mean) * bool(steps)
        return before + sum(part.network.n_shipped for part in self.parts)

    @property
    def n_trained(self) -> int:
        """Trainable parameters of all banks."""
        return sum(part.prototypes.n_trained for part in self.parts)

    @property
    def n_members(self) -> int:
        """Banks whose outputs are averaged; 1 in a model that was saved without."""
        return sum(1 if part.bank is None else part.bank.n_members for part in self.parts)

    @property
    def parts(self) -> "tuple[Model, ...]":
        """Every model of the ensemble by itself, this one first."""
        return (replace(self, others=()), *self.others) if self.others else (self,)

    def seen(self, Z: Tensor) -> Tensor:
        """What the bank sees of projected rows, which have been cut to what it may look at."""
        if self.steps is None:
            return Z
        return replace(self.steps, inside=None).to(Z.device)(Z)

    def changed(self, change: "Callable[[Model], Model]") -> "Model":
        """The ensemble after the same change to each of its parts, which go on sharing the rest."""
        first, *others = map(change, self.parts)
        return first.joined(others)

    def joined(self, others: "Sequence[Model]") -> "Model":
        """An ensemble with others, which share what is not their own."""
        shared = {name: getattr(self, name) for name in SHARED}
        return replace(self, others=tuple(replace(other, **shared) for other in others))

    @property
    def prototypes(self) -> Bank:
        """The bank; raises ModelFileError for a model that was saved without it."""
        if self.bank is None:
            raise ModelFileError(
                "This needs the prototypes of a model. They were left out when it was saved. Load "
                "a file that was saved with them."
            )
        return self.bank

    @property
    def replay(self) -> Memory:
        """The replay memory; raises ModelFileError where there is none."""
        if self.memory is None:
            raise ModelFileError(
                "This needs the memory of a model, what it keeps of its rows. It was fitted with "
                "memory=0, or saved without. Fit it again, or load a file that was saved with it."
            )
        return self.memory

    def with_bank(self, bank: Bank) -> "Model":
        """A model of another bank, which is no mean over calls, with the network of the old one."""
        return replace(self, bank=bank, last_bank=None, n_calls=0)

    def outputs(self, rows: Any, device: torch.device | None = None) -> Tensor:
        """Raw outputs in float64 on the host, for rows of numbers or codes of a table."""
        outputs = self.raw_outputs(rows, device)
        if not math.isfinite(float(outputs.sum())) and not bool(outputs.isfinite().all()):
            row = int((~outputs.isfinite()).any(1).nonzero()[0])
            raise DataError(
                "Rows must be of a size that the network can work with. Row "
                f"{row} is so far from those it was trained on that its outputs are not finite. "
                "Check its units."
            )
        return outputs

    def raw_outputs(self, rows: Any, device: torch.device | None = None) -> Tensor:
        """Outputs that need not be finite."""
        if self.table is None:
            return self._network_outputs(rows, device)
        starts = range(0, len(rows), FRAME_ROWS)
        pieces = (self.table.features(rows[start : start + FRAME_ROWS]) for start in starts)
        return torch.cat([self._network_outputs(piece, device) for piece in pieces])

    def probabilities(self, outputs: Tensor) -> NDArray[np.float64]:
        """Probabilities of classes or labels from raw outputs."""
        if isinstance(self.objective, Labels):
            return torch.sigmoid(outputs).numpy()
        return torch.softmax(outputs, dim=1).numpy()

    def _network_outputs(self, X: Any, device: torch.device | None) -> Tensor:
        """Outputs for rows of numbers, a bounded piece of them at a time."""
        front, features, parts = self._placed(device)
        place = torch.device("cpu") if device is None else device
        widest = max(max(network.sizes) for network, _, _ in parts)
        size = piece_rows(widest, front, place) * (PIECES if front is None else 1)
        pieces = []
        for start in range(0, X.shape[0], size):
            some = X[start : start + size]
            rows = as_tensor(some.toarray() if hasattr(some, "toarray") else some).to(place)
            rows = rows if front is None else front.features(rows)
            has_steps = any(steps is not None for _, steps, _ in parts)
            seen = features.project(rows.double()) if has_steps else rows
            outputs = [
                network(rows if steps is None else steps(seen)) * weight
                for network, steps, weight in parts
            ]
            pieces.append(sum(outputs[1:], outputs[0]).cpu())
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _placed(self, device: torch.device | None) -> Placed:
        """What rows pass, where it is to work; on a GPU it stays there for the next call."""
        if device is None or device.type == "cpu":
            parts = [(each.network, each.steps, each.weight) for each in (self, *self.others)]
            return self.front, self.features, parts
        places = _on_gpu.setdefault(self, {})
        if device not in places:
            front = None if self.front is None else self.front.to(device)
            parts = [
                (n.to(device), s and s.to(device), weight) for n, s, weight in self._placed(None)[2]
            ]
            places[device] = (front, self.features.to(device), parts)
        return places[device]


def range_of_images(rows: NDArray[Any], config: TrainConfig) -> tuple[float, float] | None:
    """The least and the largest pixel; None for rows that are no images, and for none at all."""
    if config.image_shape is None or not len(rows):
        return None
    return float(rows.min()), float(rows.max())


def merged_network(
    bank: Bank,
    features: FeatureMap | None,
    objective: Objective,
    config: TrainConfig,
    calibration: float = 1.0,
) -> Network:
    """Solve once in float64 and back-project: a plain network on original features.

    Without a feature map it is one on what the bank sees. Its outputs are the mean of those of all
    members, in the units that users know, and times ``calibration``.
    """
    exact = bank.to("cpu", torch.float64)
    for form in (config.solver, "svd"):
        solver = SolverSettings(form, torch.float64)
        solved = BankPass(exact, config.architecture, solver, [], ridge=exact.ridge)
        if bool((solved.error < SOLVE_TOLERANCE).all()):
            break
    if not all(bool(W.isfinite().all()) for W in solved.weights):
        raise TrainingError(
            "The weights of a trained bank must be finite. They are not: its prototypes have grown "
            "too large. Lower lr, or raise ridge."
        )
    networks = []
    for member in range(bank.n_members):
        first, *inner, last = (W[member] for W in solved.weights)
        first = first if features is None else features.back_project(first)
        merged = (first, *inner, objective.fold(last) * calibration)
        # laid out as a file gives them back: products of other layouts round otherwise
        weights = tuple(W.contiguous() for W in merged)
        networks.append(Network(weights, config.activation, bank.n_prototypes))
    return mean_network(networks)
