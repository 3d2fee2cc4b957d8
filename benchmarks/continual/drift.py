"""Streams whose concept changes: each batch is predicted first, and learned then."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.continual.learners import EVERYTHING, PartialFit
from benchmarks.continual.streams import PEERS, STREAMS, OneByOne, Stream, peer
from benchmarks.continual.worlds import changing_stream
from protopinv.estimators import ProtoPINVClassifier, ProtoPINVRegressor

if TYPE_CHECKING:
    from benchmarks.continual.study import ContinualPlan

# What ours is on a stream of a few features.
OURS: dict[str, Any] = {"effort": "quick"}
Cells = dict[str, Callable[[], dict[str, Any]]]
# Shares of the memory that are forgotten at every batch; None learns the first batch alone.
DECAYS = {
    "never": None,
    **{f"decay {decay:g}": decay for decay in (0.0, 0.1, 0.3, 0.6, EVERYTHING)},
}
# A smoke run has fewer batches.
QUICK_BATCHES = 4


class Follower(Protocol):
    """Learns batch after batch, and predicts."""

    def learn(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        """The rows of one batch."""

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """A target for each row."""


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

    Of one that learns row by row also that of what it said just before each row.
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
        said, y = np.array(who.foretold[len(first.y) :]), np.concatenate([b.y for b in later])
        cell["row by row"] = stream.score(said, y)
    return cell
