"""An estimator that is interrupted is as it was, or complete."""

import copy
from collections.abc import Callable
from itertools import count, takewhile
from typing import Any

import numpy as np
import polars as pl
import pytest

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.train.history import EpochReport

SMALL: dict[str, Any] = {"effort": "quick", "max_epochs": 4, "random_state": 0}


@pytest.fixture(scope="module")
def models(blobs) -> dict[str, Any]:
    """A model of arrays, one of numbers, and one of a frame with text."""
    X, y = blobs
    words = np.array(["red", "green", "blue"])
    frame = pl.DataFrame({"size": X[:, 0], "colour": words[y]})
    grown = frame.with_columns(colour=pl.lit("a new one"))
    return {
        "classes": (ProtoPINVClassifier(**SMALL).fit(X, y), X, X, np.roll(y, 1) + 1),
        "numbers": (ProtoPINVRegressor(**SMALL).fit(X, X[:, 0]), X, X, X[:, 1] * 9),
        "a frame": (ProtoPINVClassifier(**SMALL).fit(frame, y), frame, grown, y),
    }


@pytest.mark.parametrize("kind", ["classes", "numbers", "a frame"])
def test_control_c_in_partial_fit_leaves_predictions_as_they_were(models, kind: str) -> None:
    model, X, more, targets = models[kind]
    before, known = model._outputs(X), dict(vars(model))

    def press(report: EpochReport) -> None:
        if report.epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(more, targets, observer=press)
    assert model._outputs(X).equal(before)
    assert all(vars(model)[name] is value for name, value in known.items())
    assert vars(model).keys() == known.keys()


CALLS: dict[str, Callable[..., Any]] = {
    "fit": lambda model, X, y: model.fit(X[:, :3], y + 7),
    "partial_fit": lambda model, X, y: model.partial_fit(X, y + 2, decay=0.5),
    "forget": lambda model, *_: model.forget(1),
    "grow": lambda model, *_: model.grow(3),
    "prune": lambda model, *_: model.prune(4),
    "freeze": lambda model, *_: model.freeze(2),
}


@pytest.mark.parametrize("call", CALLS)
def test_whatever_is_raised_between_two_changes_undoes_both(
    models, blobs, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KeyboardInterrupt at every change of the estimator, of which there is one."""
    original, X, *_ = models["classes"]
    known, before = dict(vars(original)), original._outputs(X)

    def interrupted_at(place: int) -> bool:
        model, changes = copy.copy(original), count()

        def change(self: Any, name: str, value: Any) -> None:
            if self is model and next(changes) == place:
                raise KeyboardInterrupt
            object.__setattr__(self, name, value)

        with monkeypatch.context() as patch:
            patch.setattr(ProtoPINVClassifier, "__setattr__", change, raising=False)
            try:
                CALLS[call](model, *blobs)
            except KeyboardInterrupt:
                assert vars(model) == known
                assert model._outputs(X).equal(before)
                return True
        return False

    assert list(takewhile(interrupted_at, count())) == [0]  # one value takes the place of one
