"""What every classifier here shares: how it takes rows and labels, and how it predicts."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import Field, fields, replace
from typing import Any, Literal, TypeVar, get_args, get_origin

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from protopinv.errors import ConfigError, DataError
from protopinv.estimators.checks import plain_labels, resolve_device, torch_ready
from protopinv.features import Front, map_side
from protopinv.network import Network
from protopinv.train.config import AUTO, FIELDS, TrainConfig
from protopinv.train.prepare import LabelledRows, piece_rows

Estimator = TypeVar("Estimator", bound=type)

# So many times more rows are predicted at once than are prepared at once to fit.
PIECES = 8


def with_parameters(names: Sequence[str] = FIELDS) -> Callable[[Estimator], Estimator]:
    """Fill ``{parameters}`` in the docstring from TrainConfig, where each is explained once."""

    def fill(estimator: Estimator) -> Estimator:
        signature = inspect.signature(estimator).parameters
        entries = [
            f"{item.name} : {_type_name(item)}, default={signature[item.name].default!r}\n"
            f"        {item.metadata['help']}"
            for item in fields(TrainConfig)
            if item.name in names
        ]
        estimator.__doc__ = (estimator.__doc__ or "").format(parameters="\n    ".join(entries))
        return estimator

    return fill


def _type_name(item: Field[Any]) -> str:
    """A type as scikit-learn's docstrings write it."""
    kind: Any = item.type
    if get_origin(kind) is Literal:
        words = (AUTO, *get_args(kind)) if item.metadata["auto"] else get_args(kind)
        return "{" + ", ".join(map(repr, words)) + "}"
    text = kind.__name__ if isinstance(kind, type) else str(kind)
    text = text.replace("collections.abc.", "").replace("typing.", "")
    return f"{text} | {AUTO!r}" if item.metadata["auto"] else text


class NetworkClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that leaves a plain network behind: ``classes_``, ``network_``.

    A subclass has ``device`` and ``random_state`` among its parameters.
    """

    device: str
    random_state: Any
    classes_: NDArray[Any]
    network_: Network
    front_: Front | None = None
    n_features_in_: int

    @property
    def n_shipped_(self) -> int:
        """Numbers that must be stored to predict."""
        return self.network_.n_shipped + (0 if self.front_ is None else self.front_.n_numbers)

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
        if not hasattr(self, "network_"):
            check_is_fitted(self, "network_")
        X = flat_images(X)
        if not self._clearly_valid(X):
            X = validate_data(self, X, reset=False, dtype="numeric")
        network, front, device = self._placed()
        size = piece_rows(max(network.sizes), front, device) * (PIECES if front is None else 1)
        given = (_as_tensor(X[start : start + size]) for start in range(0, len(X), size))
        moved = (rows.to(device) for rows in given)
        pieces = [network(rows if front is None else front.features(rows)).cpu() for rows in moved]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _clearly_valid(self, X: Any) -> bool:
        """Whether scikit-learn's checks, which cost more than a prediction, can be left out.

        A plain array of finite numbers, as wide as those in ``fit``, which had no names.
        """
        return (
            type(X) is np.ndarray
            and X.dtype in (np.float32, np.float64, np.uint8)
            and X.ndim == 2
            and X.shape[1] == self.n_features_in_
            and len(X) > 0
            and not hasattr(self, "feature_names_in_")
            and (X.dtype == np.uint8 or bool(np.isfinite(X).all()))
        )

    def _placed(self) -> tuple[Network, Front | None, torch.device]:
        """Network and front where they are to work; on a GPU they stay there for the next call."""
        device = resolve_device(self.device)
        if device.type == "cpu":
            return self.network_, self.front_, device
        found = self.__dict__.get("_on_gpu")
        if found is None or found[0] is not self.network_:
            front = None if self.front_ is None else self.front_.to(device)
            found = self._on_gpu = (self.network_, self.network_.to(device), front)
        return found[1], found[2], device

    def __getstate__(self) -> dict[str, Any]:
        """Without what was moved to a GPU."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_on_gpu"}


def _as_tensor(X: NDArray[Any]) -> torch.Tensor:
    """Rows as torch takes them: a type it knows, memory it may hold; they are only read."""
    X = np.ascontiguousarray(torch_ready(X))
    return torch.from_numpy(X if X.flags.writeable else X.copy())


def flat_images(X: Any) -> Any:
    """Images of three or four dimensions as rows; anything else as it came."""
    return X.reshape(len(X), -1) if getattr(X, "ndim", 2) in (3, 4) else X


def with_image_shape(config: TrainConfig, X: Any) -> tuple[TrainConfig, Any]:
    """The shape of images, given or taken from X, and X as flat rows."""
    shape = config.image_shape
    if getattr(X, "ndim", 2) in (3, 4):
        shape = tuple(X.shape[1:])
    if shape is None and not config.takes_images:
        return config, X
    if shape is None:
        raise ConfigError(
            "A stem and copies of images need their shape. X has flat rows and image_shape is "
            "None. Give X as (n, height, width) or (n, height, width, channels), or set "
            "image_shape=(28, 28)."
        )
    config, X = replace(config, image_shape=shape), flat_images(X)
    _check_images(config, X)
    return config, X


def _check_images(config: TrainConfig, X: Any) -> None:
    height, width, *_ = shape = tuple(config.image_shape or ())
    if np.ndim(X) == 2 and np.shape(X)[1] != math.prod(shape):
        raise DataError(
            f"Rows must be images of the shape given. image_shape={shape} has {math.prod(shape)} "
            f"numbers, X has rows of {np.shape(X)[1]}. Correct image_shape."
        )
    if config.stem == "none":
        return
    left = map_side(min(height, width), config.stem_patch, len(config.filters))
    if left < config.stem_pool:
        raise ConfigError(
            f"The maps of a stem must have at least stem_pool pixels on a side. Images of {height} "
            f"x {width} leave {max(left, 0)} for stem_pool={config.stem_pool}. Lower stem_patch or "
            "stem_pool, or use fewer stages."
        )


class ProbabilisticClassifier(NetworkClassifier):
    """Trained by cross-entropy, so that a softmax of its outputs is a probability."""

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, in the order of ``classes_``."""
        return torch.softmax(self._outputs(X), dim=1).numpy()

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithm of ``predict_proba``, without underflow."""
        return torch.log_softmax(self._outputs(X), dim=1).numpy()
