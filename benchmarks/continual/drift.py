"""Streams whose concept changes: each batch is predicted first, and learned then.

One is our own; river generates or ships the others, and its own learners follow them too, a row at
a time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.continual.learners import EVERYTHING, Follower, PartialFit
from benchmarks.continual.worlds import changing_stream
from benchmarks.tasks import Rows
from protopinv.estimators import ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.optional import require

if TYPE_CHECKING:
    from benchmarks.continual.study import ContinualPlan

# Parameters of ours on a stream of a few features.
OURS: dict[str, Any] = {"effort": "quick"}
Cells = dict[str, Callable[[], dict[str, Any]]]
# Shares of the memory that are forgotten at every batch; None learns the first batch alone.
DECAYS = {
    "never": None,
    **{f"decay {decay:g}": decay for decay in (0.0, 0.1, 0.3, 0.6, EVERYTHING)},
}
# A smoke run has fewer batches.
QUICK_BATCHES = 4
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

    def score(self, predicted: NDArray[Any], y: NDArray[Any]) -> float:
        """The mean absolute error of numbers, or the accuracy."""
        return float(np.abs(predicted - y).mean() if self.are_numbers else (predicted == y).mean())


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
    """A model of river, with its prediction of every row just before it learned the row."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.foretold: list[Any] = []

    def learn(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        """Row after row."""
        for row, target in zip(_dicts(X), y.tolist(), strict=True):
            self.foretold.append(self._model.predict_one(row))
            self._model.learn_one(row, target)

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """By the rows so far."""
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


class Once:
    """Learns the first batch, and nothing after it."""

    def __init__(self, model: ProtoPINVClassifier | ProtoPINVRegressor) -> None:
        self._model = model

    def learn(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        """A fit, if it is the first."""
        if not hasattr(self._model, "network_"):
            self._model.fit(X, y)

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """By the first batch."""
        return np.asarray(self._model.predict(X))


def drift(plan: "ContinualPlan", device: str) -> Cells:
    """Every decay on a stream of our own."""

    def one(name: str, seed: int) -> dict[str, Any]:
        stream = _cut(Stream(changing_stream(seed)), plan)
        return _followed(_ours(name, seed, device, stream, plan), stream)

    return {f"{n}/{seed}": partial(one, n, seed) for seed in range(plan.seeds) for n in DECAYS}


def drift_river(plan: "ContinualPlan", device: str) -> Cells:
    """Every decay, and river's own learners, on streams of river."""

    def one(kind: str, name: str, seed: int) -> dict[str, Any]:
        stream = _cut(STREAMS[kind](seed), plan)
        if name in PEERS:
            return _followed(peer(name, seed, stream), stream)
        return _followed(_ours(name, seed, device, stream, plan), stream)

    return {
        f"{kind}/{name}/{seed}": partial(one, kind, name, seed)
        for seed in range(plan.seeds)
        for kind in STREAMS
        for name in (*DECAYS, *PEERS)
    }


def _cut(stream: Stream, plan: "ContinualPlan") -> Stream:
    some = QUICK_BATCHES if plan.quick else None
    return Stream(stream.batches[:some], stream.are_numbers)


def _ours(
    name: str, seed: int, device: str, stream: Stream, plan: "ContinualPlan"
) -> PartialFit | Once:
    estimator = ProtoPINVRegressor if stream.are_numbers else ProtoPINVClassifier
    model = estimator(**OURS, device=device, random_state=seed, **plan.options)
    decay = DECAYS[name]
    return Once(model) if decay is None else PartialFit(model, decay)


def _followed(who: Follower, stream: Stream) -> dict[str, Any]:
    """The score on every batch before it is learned, but for the first, and their mean.

    A learner that learns row by row is also scored on its predictions just before each row.
    """
    first, *later = stream.batches
    after = []
    who.learn(first.X, first.y)
    for batch in later:
        after.append(stream.score(who.predict(batch.X), batch.y))
        who.learn(batch.X, batch.y)
    name = "error" if stream.are_numbers else "accuracy"
    cell = {name: float(np.mean(after)), "after": after}
    if isinstance(who, OneByOne):
        predicted, y = np.array(who.foretold[len(first.y) :]), np.concatenate([b.y for b in later])
        cell["row by row"] = stream.score(predicted, y)
    return cell
