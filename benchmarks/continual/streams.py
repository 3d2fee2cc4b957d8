"""Streams that river generates or ships, and its own learners, which learn a row at a time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.bench.tasks import Rows
from protopinv.optional import require

# Batches of a stream that is generated, and rows of each; of data, as many as there are.
BATCHES, BATCH_ROWS = 24, 400
# The change comes in the middle. Rows in which the share of the new concept goes from an eighth to
# seven eighths, about.
ABRUPT, GRADUAL = 100, 4_000
WRONG_LABELS = 0.1
# Data of river have one order only: every seed begins so many rows later.
LATER = 10


@dataclass(frozen=True)
class Stream:
    """Batches in their order; targets are numbers, or classes."""

    batches: list[Rows]
    are_numbers: bool = False

    def score(self, said: NDArray[Any], y: NDArray[Any]) -> float:
        """The mean absolute error of numbers, or the accuracy."""
        return float(np.abs(said - y).mean() if self.are_numbers else (said == y).mean())


def river(part: str) -> Any:
    """A part of the package, which is in the extra ``study``."""
    return require(f"river.{part}", extra="study", why="Drift in river's streams")


def _agrawal(seed: int) -> Stream:
    """Loans by age alone; within about a hundred rows it is by age, salary and loan."""
    kind = river("datasets.synth").Agrawal
    return _changing(kind(0, seed=seed), kind(4, seed=100 + seed), ABRUPT, seed)


def _sea(seed: int) -> Stream:
    """Two features against a threshold, which is 7 for fewer and fewer rows, and 9.5 for more."""
    kind = river("datasets.synth").SEA
    first, second = kind(2, WRONG_LABELS, seed=seed), kind(3, WRONG_LABELS, seed=100 + seed)
    return _changing(first, second, GRADUAL, seed)


def _changing(first: Any, second: Any, width: int, seed: int) -> Stream:
    n = BATCHES * BATCH_ROWS
    join = river("datasets.synth").ConceptDriftStream
    rows = join(first, second, position=n // 2, width=width, seed=seed)
    return Stream(_batches(islice(rows, n), BATCH_ROWS))


def _approval(seed: int) -> Stream:
    """Five polls of a president in 1,001 days, and what FiveThirtyEight's model made of them."""
    rows = islice(river("datasets").TrumpApproval(), LATER * seed, LATER * seed + 950)
    return Stream(_batches(rows, 50), are_numbers=True)


def _segments(seed: int) -> Stream:
    """Patches of photographs in seven classes, in an order that means nothing."""
    rows = islice(river("datasets").ImageSegments(), LATER * seed, LATER * seed + 2_200)
    return Stream(_batches(rows, 100))


def _batches(rows: Iterable[tuple[dict[Any, float], Any]], size: int) -> list[Rows]:
    features, targets = zip(*rows, strict=True)
    X, y = np.array([list(row.values()) for row in features], float), np.array(targets)
    return [Rows(X[n : n + size], y[n : n + size]) for n in range(0, len(y), size)]


STREAMS: dict[str, Callable[[int], Stream]] = {
    "Agrawal, abrupt": _agrawal,
    "SEA, gradual": _sea,
    "TrumpApproval": _approval,
    "ImageSegments": _segments,
}


class OneByOne:
    """A model of river, with what it said of every row just before it learned it."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.foretold: list[Any] = []

    def learn(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        """Row after row."""
        for row, target in zip(_dicts(X), y.tolist(), strict=True):
            self.foretold.append(self._model.predict_one(row))
            self._model.learn_one(row, target)

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """By what was learned so far."""
        return np.array([self._model.predict_one(row) for row in _dicts(X)])


def _dicts(X: NDArray[Any]) -> list[dict[int, float]]:
    return [dict(enumerate(row)) for row in X.tolist()]


def peer(name: str, seed: int, stream: Stream) -> OneByOne:
    """One of PEERS with the defaults of river, and rows scaled where its own examples do so."""
    scaled = river("preprocessing").StandardScaler
    if name == "linear":
        return OneByOne(scaled() | _linear(stream))
    package, model = {"tree": ("tree", "HoeffdingAdaptiveTree"), "forest": ("forest", "ARF")}[name]
    if stream.are_numbers:
        return OneByOne(scaled() | getattr(river(package), f"{model}Regressor")(seed=seed))
    return OneByOne(getattr(river(package), f"{model}Classifier")(seed=seed))


def _linear(stream: Stream) -> Any:
    kinds = river("linear_model")
    if stream.are_numbers:
        return kinds.LinearRegression()
    several = len(np.unique(stream.batches[0].y)) > 2
    one = kinds.LogisticRegression()
    return river("multiclass").OneVsRestClassifier(one) if several else one


PEERS = ("tree", "forest", "linear")
