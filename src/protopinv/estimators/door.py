"""What every classifier here shares: how it takes rows and labels, and how it predicts."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Literal, TypeVar, get_args, get_origin

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from protopinv.errors import DataError
from protopinv.estimators.checks import plain_labels, resolve_device, torch_ready
from protopinv.network import Network
from protopinv.train.config import FIELDS, TrainConfig
from protopinv.train.prepare import PIECE_NUMBERS, LabelledRows

Estimator = TypeVar("Estimator", bound=type)


def with_parameters(names: Sequence[str] = FIELDS) -> Callable[[Estimator], Estimator]:
    """Fill ``{parameters}`` in the docstring from TrainConfig, where each is explained once."""
    entries = [
        f"{item.name} : {_type_name(item.type)}, default={item.default!r}\n"
        f"        {item.metadata['help']}"
        for item in fields(TrainConfig)
        if item.name in names
    ]

    def fill(estimator: Estimator) -> Estimator:
        estimator.__doc__ = (estimator.__doc__ or "").format(parameters="\n    ".join(entries))
        return estimator

    return fill


def _type_name(kind: Any) -> str:
    """A type as scikit-learn's docstrings write it."""
    if get_origin(kind) is Literal:
        return "{" + ", ".join(map(repr, get_args(kind))) + "}"
    text = kind.__name__ if isinstance(kind, type) else str(kind)
    return text.replace("collections.abc.", "").replace("typing.", "")


class NetworkClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that leaves a plain network behind: ``classes_``, ``network_``.

    A subclass has ``device`` and ``random_state`` among its parameters.
    """

    device: str
    random_state: Any
    classes_: NDArray[Any]
    network_: Network

    @property
    def n_shipped_(self) -> int:
        """Numbers that must be stored to predict."""
        return self.network_.n_shipped

    def _rows(self, X: Any, y: Any) -> tuple[LabelledRows, NDArray[Any]]:
        """Checked rows with labels 0, 1, ..., and the classes these stand for."""
        X, y = validate_data(self, X, y, dtype="numeric")
        y = plain_labels(y)
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise DataError(
                "A classifier needs at least two classes. y holds only one class: "
                f"{classes[0]!r}. Check the target, or use a constant."
            )
        return LabelledRows(torch_ready(X), labels, len(classes)), classes

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row."""
        best = self._outputs(X).argmax(dim=1).numpy()
        predicted: NDArray[Any] = self.classes_[best]
        return predicted

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Raw outputs, a column a class; for two classes the second minus the first."""
        outputs = self._outputs(X).numpy()
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def _outputs(self, X: Any) -> torch.Tensor:
        """Raw outputs in float64, on the host, a bounded piece of rows at a time."""
        check_is_fitted(self, "network_")
        X = validate_data(self, X, reset=False, dtype="numeric")
        device = resolve_device(self.device)
        network = self.network_.to(device)
        size = max(1, PIECE_NUMBERS // max(network.sizes))
        pieces = [
            network(torch.from_numpy(np.array(X[start : start + size], np.float64)).to(device))
            for start in range(0, len(X), size)
        ]
        return torch.cat(pieces).cpu()


class ProbabilisticClassifier(NetworkClassifier):
    """Trained by cross-entropy, so that a softmax of its outputs is a probability."""

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, in the order of ``classes_``."""
        return torch.softmax(self._outputs(X), dim=1).numpy()

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithm of ``predict_proba``, without underflow."""
        return torch.log_softmax(self._outputs(X), dim=1).numpy()
