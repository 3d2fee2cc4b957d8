"""scikit-learn's MLP with the number of its epochs chosen in folds, as ours is.

By default it trains until its own loss stalls, which on small tables is long after the loss on
other rows has turned. This is the same network without that disadvantage.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPClassifier, MLPRegressor

from benchmarks.tables.scoring import log_loss

FOLDS = 4
MOST_EPOCHS = 200  # what MLPClassifier has as max_iter


class _FoldedMLP(BaseEstimator):
    """Trains in folds, then on all rows for as many epochs as were best on average."""

    def __init__(self, max_epochs: int = MOST_EPOCHS, random_state: int = 0) -> None:
        self.max_epochs = max_epochs
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Choose the epochs, then train."""
        curves = [self._curve(X, y, train, held) for train, held in self._folds(X, y)]
        self.n_epochs_ = int(np.argmin(np.mean(curves, axis=0))) + 1
        self.model_ = self._network()
        for _ in range(self.n_epochs_):
            self._epoch(self.model_, X, y, y)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """As the network says."""
        return np.asarray(self.model_.predict(X))

    def _folds(self, X: Any, y: Any) -> Any:  # noqa: ARG002
        return KFold(FOLDS, shuffle=True, random_state=self.random_state).split(X)

    def _curve(self, X: Any, y: Any, train: Any, held: Any) -> list[float]:
        """The loss on rows left out, after every epoch."""
        model, losses = self._network(), []
        for _ in range(self.max_epochs):
            self._epoch(model, X[train], y[train], y)
            losses.append(self._loss(model, X[held], y[held]))
        return losses

    def _random(self) -> np.random.RandomState:
        # a number would start the same shuffle anew in every epoch
        return np.random.RandomState(self.random_state)

    def _network(self) -> Any:
        raise NotImplementedError

    def _epoch(self, model: Any, X: Any, y: Any, everything: Any) -> None:
        raise NotImplementedError

    def _loss(self, model: Any, X: Any, y: Any) -> float:
        raise NotImplementedError


class FoldedMLPClassifier(ClassifierMixin, _FoldedMLP):
    """For one class a row, or several labels a row."""

    def fit(self, X: Any, y: Any) -> Self:
        """Choose the epochs, then train."""
        super().fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """As the network says."""
        return np.asarray(self.model_.predict_proba(X))

    def _folds(self, X: Any, y: Any) -> Any:
        if y.ndim > 1:
            return super()._folds(X, y)
        return StratifiedKFold(FOLDS, shuffle=True, random_state=self.random_state).split(X, y)

    def _network(self) -> Any:
        return MLPClassifier(random_state=self._random())

    def _epoch(self, model: Any, X: Any, y: Any, everything: Any) -> None:
        classes = np.unique(everything) if y.ndim == 1 else np.arange(y.shape[1])
        model.partial_fit(X, y, classes=classes)

    def _loss(self, model: Any, X: Any, y: Any) -> float:
        said = model.predict_proba(X)
        if y.ndim > 1:
            return log_loss(y.ravel(), np.column_stack([1 - said.ravel(), said.ravel()]))
        return log_loss(np.searchsorted(model.classes_, y), said)


class FoldedMLPRegressor(RegressorMixin, _FoldedMLP):
    """For one number a row, or several."""

    def _network(self) -> Any:
        return MLPRegressor(random_state=self._random())

    def _epoch(self, model: Any, X: Any, y: Any, everything: Any) -> None:  # noqa: ARG002
        model.partial_fit(X, y)

    def _loss(self, model: Any, X: Any, y: Any) -> float:
        return float(np.mean((model.predict(X) - y) ** 2))
