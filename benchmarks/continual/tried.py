"""Other ways to remember that were tried: each is the model with one thing changed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from benchmarks.continual.learners import Learner, PartialFit, RidgeOnUnits, ours
from protopinv.continual import update
from protopinv.continual.banks import through
from protopinv.memory import Memory
from protopinv.memory import memory as memories

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
        memory = self.model.memory_
        if memory is None:
            raise AssertionError("there is a memory")
        Z = self.model.features_.project(torch.from_numpy(X.astype(np.float64)))
        heads = Z if memory.basis is None else Z @ memory.basis
        parts = range(len(memory.gaussians))
        logs = torch.stack([_log_density(heads, memory, part) for part in parts], 1)
        n_groups = len(self.model.classes_)
        densities = torch.full((len(X), n_groups), -torch.inf, dtype=logs.dtype)
        for group in range(n_groups):
            of_group = memory.gaussians.group == group
            if of_group.any():
                densities[:, group] = logs[:, of_group].logsumexp(1)
        best: NDArray[Any] = self.model.classes_[densities.argmax(1).cpu().numpy()]
        return best

    @property
    def n_stored(self) -> int:
        """Those of the memory."""
        return self._inner.n_stored


def _log_density(heads: Tensor, memory: Memory, part: int) -> Tensor:
    root = memory.gaussians.roots()[part]
    covariance = root @ root.T + 1e-6 * torch.eye(len(root), dtype=root.dtype)
    L = torch.linalg.cholesky(covariance)
    off = torch.linalg.solve_triangular(L, (heads - memory.gaussians.mean[part]).T, upper=False)
    density: Tensor = off.square().sum(0).div_(-2) - L.diagonal().log().sum()
    return density + memory.gaussians.mass[part].log()


class HiddenRidge(RidgeOnUnits):
    """Ridge regression on the hidden units of the bank that the first stage trained."""

    def __init__(self, seed: int, device: str) -> None:
        super().__init__()
        self.model = ours(seed, device, stem=False, memory=0, n_members=1, hidden_sizes=(500,))

    def _begin(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        self.model.fit(X, y)

    def _units(self, X: NDArray[Any]) -> Tensor:
        Z = self.model.features_.project(torch.from_numpy(X.astype(np.float64)))
        bank, config = self.model.bank_.members([0]), self.model.config_
        H = torch.relu(through(bank, config.architecture, Z)[-2][0])
        return torch.cat([H, H.new_ones(len(H), 1)], 1)


class FromPrototypes(PartialFit):
    """Rehearsal from the prototypes, through the network that there was."""

    def learn(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        """With rows near prototypes in place of drawn ones."""
        self._labels = np.union1d(getattr(self.model, "classes_", y), y)
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
        """Places of the banks' classes, those of the last stage, among all classes."""
        classes = torch.from_numpy(self.model.classes_)
        return torch.searchsorted(torch.from_numpy(self._labels), classes)

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
        [patch.object(update, "FROM_NETWORK", 0.0)],
        _built(PartialFit),
    ),
    "drawn rows are what the network says": (
        [patch.object(update, "FROM_NETWORK", 1.0)],
        _built(PartialFit),
    ),
    "twice as many drawn rows": (
        [patch.object(update, "DRAWN_FOR_ONE", 4.0)],
        _built(PartialFit),
    ),
    "one Gaussian a class": (
        [patch.object(memories, "PARTS_OF_A_GROUP", 1), patch.object(memories, "MOST_PARTS", 1)],
        _built(PartialFit),
    ),
    "the directions of the first stage": (
        [patch.object(Memory, "turned", lambda memory, *_: memory)],
        _built(PartialFit),
    ),
    "twice as many features of the first stage": ([], _built(PartialFit, n_components=300)),
    "the network sees tails": (
        [patch.object(update, "opened", lambda memory, new: memory.turned(new.Z, new.weight))],
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
