"""Learners of one thing after another: ours and its rivals, with the same two methods."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from benchmarks.tasks import SIDE
from protopinv.estimators import ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.features import Stem, fit_stem

SHAPE = (SIDE, SIDE)
# What ours is in this study: one kind of network, five banks, 150 features of the first rows.
OURS: dict[str, Any] = {
    "effort": "quick",
    "scaling": "global",
    "projection": "pca",
    "n_components": 150,
}
# Of a memory of 138,500 numbers nothing is left.
EVERYTHING = 1 - 1e-9
# Images of 8 bits in the bytes of 138,500 numbers of 32.
STORED = 700
# The peer: units, and the ridge that was best of 0.01, 0.1, 1, 10, 100, 1000 on held-out rows.
UNITS, RIDGE = 500, 1.0


class Follower(Protocol):
    """Learns batch after batch, and predicts."""

    def learn(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        """The rows of one batch."""

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """A target for each row."""


class Learner(Follower, Protocol):
    """Learns stage after stage, and predicts."""

    @property
    def n_stored(self) -> int:
        """Numbers that are kept between stages, beside the network."""


def ours(seed: int, device: str, *, stem: bool, **options: Any) -> ProtoPINVClassifier:
    """The model of this study."""
    images = {"image_shape": SHAPE} if stem else {}
    return ProtoPINVClassifier(**{**OURS, **images, **options}, device=device, random_state=seed)


class PartialFit:
    """Our ``partial_fit``; with a ``decay`` of everything it is plain fine-tuning."""

    def __init__(self, model: ProtoPINVClassifier | ProtoPINVRegressor, decay: float = 0.0) -> None:
        self.model, self.decay = model, decay

    def learn(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        """One call."""
        self.model.partial_fit(X, y, decay=self.decay)

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """By the network."""
        return np.asarray(self.model.predict(X))

    @property
    def n_stored(self) -> int:
        """Those of the memory."""
        return 0 if self.decay or self.model.memory_ is None else self.model.memory_.n_numbers


class Rehearsal:
    """A fit of the new rows and of stored images of old classes, every class as important."""

    def __init__(self, build: Callable[[], ProtoPINVClassifier], seed: int) -> None:
        self._build, self._rng = build, np.random.default_rng(seed)
        self._stored: dict[int, NDArray[Any]] = {}
        self.n_stored = 0

    def learn(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        """Fit, and store some of the new rows in place of some old ones."""
        old = list(self._stored.items())
        rows = np.concatenate([X, *(images for _, images in old)])
        labels = np.concatenate([y, *(np.full(len(images), label) for label, images in old)])
        self._model = self._build().set_params(class_weight="balanced").fit(rows, labels)
        for label in np.unique(y).tolist():
            self._stored[label] = X[y == label]
        each = STORED // len(self._stored)
        for label, images in self._stored.items():
            self._stored[label] = images[self._rng.permutation(len(images))[:each]]
        # in the currency of the others: four pixels of 8 bits are one number
        self.n_stored = sum(images.size for images in self._stored.values()) // 4

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """By the last fit."""
        return np.asarray(self._model.predict(X))


class RidgeOnUnits:
    """The exact ridge regression on units of the first stage, from sums that lose nothing."""

    def __init__(self) -> None:
        self._sums: Any = 0
        self._targets: dict[int, Tensor] = {}

    def learn(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        """Add to the sums; the first rows fix the units."""
        if not self._targets:
            self._begin(X, y)
        for label in np.unique(y).tolist():
            H = self._units(X[y == label])
            self._sums = self._sums + H.T @ H
            self._targets[label] = H.sum(0)
        self._labels = sorted(self._targets)
        targets = torch.stack([self._targets[label] for label in self._labels], 1)
        eye = torch.eye(len(self._sums), dtype=torch.float64, device=self._sums.device)
        self._weights = torch.linalg.solve(self._sums + RIDGE * eye, targets)

    def _begin(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        raise NotImplementedError

    def _units(self, X: NDArray[Any]) -> Tensor:
        """Hidden units of rows, and a column of ones."""
        raise NotImplementedError

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """The class with the largest output."""
        best = (self._units(X) @ self._weights).argmax(1).cpu().numpy()
        labels: NDArray[Any] = np.array(self._labels)[best]
        return labels

    @property
    def n_stored(self) -> int:
        """One half of the sums, and one column per class."""
        n = len(self._sums)
        return n * (n + 1) // 2 + n * len(self._targets)


class RecursiveRidge(RidgeOnUnits):
    """Ridge regression on random units that stay fixed."""

    def __init__(self, seed: int, device: str, *, stem: bool) -> None:
        super().__init__()
        self._generator, self._device = Generator().manual_seed(seed), torch.device(device)
        self._with_stem = stem
        self._stem: Stem | None = None

    def _begin(self, X: NDArray[Any], y: NDArray[Any]) -> None:  # noqa: ARG002
        if self._with_stem:
            some = torch.randperm(len(X), generator=self._generator)[:5_000]
            rows = torch.from_numpy(X[some.numpy()]).float()
            self._stem = fit_stem(
                rows,
                (*SHAPE, 1),
                kind="pca",
                n_filters=(32,),
                patch=7,
                pool=4,
                generator=self._generator,
            ).to(self._device)
        Z = self._features(X[:10_000])
        self._mean, self._scale = Z.mean(0), Z.std()
        draw = torch.randn(Z.shape[1] + 1, UNITS, generator=self._generator, dtype=torch.float64)
        self._first = draw.to(self._device) / Z.shape[1] ** 0.5

    def _features(self, X: NDArray[Any]) -> Tensor:
        rows = torch.from_numpy(np.array(X)).to(self._device)
        return rows.double() if self._stem is None else self._stem.features(rows)

    def _units(self, X: NDArray[Any]) -> Tensor:
        pieces = []
        for start in range(0, len(X), 5_000):
            Z = (self._features(X[start : start + 5_000]) - self._mean) / self._scale
            H = torch.relu(Z @ self._first[1:] + self._first[0])
            pieces.append(torch.cat([H, H.new_ones(len(H), 1)], 1))
        return torch.cat(pieces)


class Joint:
    """A fit of all rows so far, which a learner without those rows cannot do."""

    n_stored = 0

    def __init__(self, build: Callable[[], ProtoPINVClassifier], *, last: int) -> None:
        self._build, self._last = build, last
        self._rows: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def learn(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        """Keep them; fit once all stages are there."""
        self._rows.append((X, y))
        if len(self._rows) == self._last:
            everything = (np.concatenate(part) for part in zip(*self._rows, strict=True))
            self._model = self._build().fit(*everything)

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """By the fit; nothing before there is one."""
        return self._model.predict(X) if hasattr(self, "_model") else np.full(len(X), -1)


def learner(name: str, seed: int, device: str, *, stem: bool, stages: int) -> Learner:
    """One of NAMES, before its first stage."""

    def build() -> ProtoPINVClassifier:
        return ours(seed, device, stem=stem, memory=0)

    choices: dict[str, Callable[[], Learner]] = {
        "ours": lambda: PartialFit(ours(seed, device, stem=stem)),
        "recursive ridge": lambda: RecursiveRidge(seed, device, stem=stem),
        "rehearsal": lambda: Rehearsal(build, seed),
        "fine-tuning": lambda: PartialFit(ours(seed, device, stem=stem), EVERYTHING),
        "joint": lambda: Joint(build, last=stages),
    }
    return choices[name]()


NAMES = ("ours", "recursive ridge", "rehearsal", "fine-tuning", "joint")
