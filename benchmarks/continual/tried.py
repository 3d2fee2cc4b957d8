"""Other ways to remember that were tried: each is the model with one thing changed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from benchmarks.continual.learners import Learner, PartialFit, ours
from protopinv.continual import learning, rehearsal
from protopinv.continual.banks import through
from protopinv.memory import Memory, memory
from protopinv.train.bank_step import architecture_of

Build = Callable[[int, str], Learner]
# How far from a prototype rows are drawn, in deviations of all prototypes.
NEAR = 0.1


class Gaussians:
    """No network: the class under whose Gaussians a row is likeliest."""

    def __init__(self, seed: int, device: str) -> None:
        self.model = ours(seed, device, stem=False)
        self._inner = PartialFit(self.model)

    def learn(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        """As ours does."""
        self._inner.learn(X, y)

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """By the memory alone."""
        known = self.model.memory_
        if known is None:
            raise AssertionError("there is a memory")
        Z = self.model.features_.project(torch.from_numpy(X.astype(np.float64)))
        heads = Z if known.basis is None else Z @ known.basis
        logs = torch.stack(
            [_log_density(heads, known, part) for part in range(len(known.parts))], 1
        )
        n_groups = len(self.model.classes_)
        found = torch.full((len(X), n_groups), -torch.inf, dtype=logs.dtype)
        for group in range(n_groups):
            chosen = known.parts.group == group
            if chosen.any():
                found[:, group] = logs[:, chosen].logsumexp(1)
        best: NDArray[Any] = self.model.classes_[found.argmax(1).cpu().numpy()]
        return best

    @property
    def n_stored(self) -> int:
        """Those of the memory."""
        return self._inner.n_stored


def _log_density(heads: Tensor, known: Memory, part: int) -> Tensor:
    root = known.parts.roots()[part]
    covariance = root @ root.T + 1e-6 * torch.eye(len(root), dtype=root.dtype)
    L = torch.linalg.cholesky(covariance)
    off = torch.linalg.solve_triangular(L, (heads - known.parts.mean[part]).T, upper=False)
    density: Tensor = off.square().sum(0).div_(-2) - L.diagonal().log().sum()
    return density + known.parts.mass[part].log()


class HiddenRidge:
    """The exact ridge regression on the hidden units of the banks that the first stage trained."""

    RIDGE = 1.0

    def __init__(self, seed: int, device: str) -> None:
        self.model = ours(seed, device, stem=False, memory=0, n_members=1, hidden_sizes=(500,))
        self._sums: Any = 0
        self._targets: dict[int, Tensor] = {}

    def learn(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        """A fit of the first stage; sums alone for the others."""
        if not self._targets:
            self.model.fit(X, y)
        for label in np.unique(y).tolist():
            H = self._units(X[y == label])
            self._sums = self._sums + H.T @ H
            self._targets[label] = H.sum(0)
        self._labels = sorted(self._targets)
        wanted = torch.stack([self._targets[label] for label in self._labels], 1)
        eye = torch.eye(len(self._sums), dtype=torch.float64)
        self._weights = torch.linalg.solve(self._sums + self.RIDGE * eye, wanted)

    def _units(self, X: NDArray[Any]) -> Tensor:
        Z = self.model.features_.project(torch.from_numpy(X.astype(np.float64)))
        bank, config = self.model.bank_.members([0]), self.model.config_
        H = torch.relu(through(bank, architecture_of(config), Z)[-2][0])
        return torch.cat([H, H.new_ones(len(H), 1)], 1)

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """The class with the largest output."""
        best = (self._units(X) @ self._weights).argmax(1).cpu().numpy()
        found: NDArray[Any] = np.array(self._labels)[best]
        return found

    @property
    def n_stored(self) -> int:
        """One half of the sums, and one column a class."""
        n = len(self._sums)
        return n * (n + 1) // 2 + n * len(self._targets)


class FromPrototypes(PartialFit):
    """Rehearsal from the prototypes, through the network that there was."""

    def learn(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        """With rows near prototypes in place of drawn ones."""
        known = getattr(self.model, "classes_", y)
        self._labels = np.union1d(known, y)
        with patch.object(Memory, "drawn", lambda _, n, generator, *__: self._near(n, generator)):
            super().learn(X, y)

    def _near(self, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        bank = self.model.bank_
        inputs, outputs = bank.inputs.flatten(0, 1).float(), bank.outputs.flatten(0, 1)
        picked = torch.randint(len(inputs), (n,), generator=generator)
        noise = torch.randn(n, inputs.shape[1], generator=generator)
        return inputs[picked] + NEAR * inputs.std() * noise, self._places()[
            outputs[picked].argmax(1)
        ]

    def _places(self) -> Tensor:
        """The banks still have the classes of the last stage; where these are among all."""
        known = torch.from_numpy(self.model.classes_)
        return torch.searchsorted(torch.from_numpy(self._labels), known)

    @property
    def n_stored(self) -> int:
        """Nothing beside the banks."""
        return 0


class Frozen(PartialFit):
    """Old prototypes stay where they are."""

    def learn(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        """Freeze what there is, and learn."""
        if hasattr(self.model, "network_"):
            self.model.freeze()
        super().learn(X, y)


def _built(kind: type[PartialFit], **options: Any) -> Build:
    return lambda seed, device: kind(ours(seed, device, stem=False, **options))


# What is changed, and how the learner is built then.
VARIANTS: dict[str, tuple[list[Any], Build]] = {
    "ours": ([], _built(PartialFit)),
    "drawn rows are what their class says": (
        [patch.object(rehearsal, "FROM_NETWORK", 0.0)],
        _built(PartialFit),
    ),
    "drawn rows are what the network says": (
        [patch.object(rehearsal, "FROM_NETWORK", 1.0)],
        _built(PartialFit),
    ),
    "twice as many drawn rows": (
        [patch.object(rehearsal, "DRAWN_FOR_ONE", 4.0)],
        _built(PartialFit),
    ),
    "one Gaussian a class": (
        [patch.object(memory, "PARTS_OF_A_GROUP", 1), patch.object(memory, "MOST_PARTS", 1)],
        _built(PartialFit),
    ),
    "the directions of the first stage": (
        [patch.object(Memory, "turned", lambda kept, *_: kept)],
        _built(PartialFit),
    ),
    "twice as many features of the first stage": ([], _built(PartialFit, n_components=300)),
    "the network sees tails": (
        [patch.object(learning, "opened", lambda kept, new: kept.turned(new.Z, new.weight))],
        _built(PartialFit),
    ),
    "old prototypes are frozen": ([], _built(Frozen)),
    "rows near prototypes, no memory": ([], _built(FromPrototypes)),
    "Gaussians alone, no network": ([], Gaussians),
    "exact ridge on 500 hidden units of the first stage": ([], HiddenRidge),
}


@contextmanager
def variant(name: str) -> Iterator[Build]:
    """The change in place, and what builds the learner."""
    changes, build = VARIANTS[name]
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change)
        yield build
