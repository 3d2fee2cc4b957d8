"""What every estimator here shares: how it takes rows, and how its network predicts."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from protopinv.errors import ConfigError, DataError, ProtoPINVError
from protopinv.estimators.checks import exact_targets, resolve_device, solvable, torch_ready
from protopinv.features import Front, map_side
from protopinv.network import Network
from protopinv.objective import Objective
from protopinv.tables import Table
from protopinv.train.config import TrainConfig
from protopinv.train.source import Source, piece_rows

# So many times more rows are predicted at once than are prepared at once to fit.
PIECES = 8

# Networks that were moved to a GPU, for as long as the network itself lives.
_moved: MutableMapping[Any, dict[torch.device, tuple[Network, Front | None]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Checked:
    """Rows, targets and weights that were checked, and what scikit-learn learned on the way.

    With a ``table`` the rows of a frame are coded, and what they are to the network is to be found.
    """

    X: NDArray[Any]
    y: NDArray[Any]
    weight: NDArray[np.float64] | None
    learned: dict[str, Any]
    table: Table | None = None


P = ParamSpec("P")
T = TypeVar("T")


def all_or_nothing(method: Callable[P, T]) -> Callable[P, T]:
    """A method that leaves its estimator as it was when anything is raised, also by Ctrl-C.

    What a fit leaves behind is replaced, never changed in place, so names are enough to go back.
    """

    @wraps(method)
    def guarded(*args: P.args, **options: P.kwargs) -> T:
        estimator: Any = args[0]
        before = dict(vars(estimator))
        try:
            with solvable():
                return method(*args, **options)
        except BaseException:
            estimator.__dict__ = before
            raise

    return guarded


class NetworkEstimator(BaseEstimator):
    """An estimator that leaves a plain network behind: ``network_``, and ``objective_``.

    A subclass has ``device`` and ``random_state`` among its parameters.
    """

    device: str
    random_state: Any
    network_: Network
    objective_: Objective
    front_: Front | None = None
    n_features_in_: int

    @property
    def n_shipped_(self) -> int:
        """Numbers that must be stored to predict."""
        return self.network_.n_shipped + (0 if self.front_ is None else self.front_.n_numbers)

    def predict(self, X: Any) -> NDArray[Any]:
        """A prediction for each row."""
        outputs = self._outputs(X).numpy()
        return self.objective_.decode(outputs)

    def _checked(self, X: Any, y: Any, sample_weight: Any, *, reset: bool = True) -> Checked:
        """What was given, as arrays; a model that is fitted stays as it is until all is well.

        Rows of weight zero are left out here, so that nothing behind this ever sees them. Without
        ``reset`` columns must be those of the last fit.
        """
        scratch, y = copy.copy(self), exact_targets(y)
        with data_errors():
            several = target_columns(y) > 1
            X, y = validate_data(
                scratch,
                X,
                y,
                dtype="numeric",
                multi_output=several,
                y_numeric=False,
                reset=reset,
            )
            weight = None
            if sample_weight is not None:
                weight = checked_weight(sample_weight, X)
        learned = {
            name: value
            for name, value in vars(scratch).items()
            if name in ("n_features_in_", "feature_names_in_")
        }
        return with_weight(Checked(torch_ready(X), y, None, learned), weight)

    def _learn(self, learned: Mapping[str, Any]) -> None:
        """Take over what is known of the columns, and forget what was known before."""
        for name in ("n_features_in_", "feature_names_in_"):
            if name in learned:
                setattr(self, name, learned[name])
            elif hasattr(self, name):
                delattr(self, name)

    def _source(self, checked: Checked, objective: Objective) -> Source:
        targets = objective.encode(checked.y)
        if checked.weight is None:
            return Source(checked.X, targets, objective)
        # relative to the largest, so that no sum of them overflows or vanishes
        unit = float(checked.weight.max())
        return Source(checked.X, targets, objective, checked.weight / unit, unit=unit)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _outputs(self, X: Any) -> torch.Tensor:
        """Raw outputs in float64, on the host."""
        if not hasattr(self, "network_"):
            check_is_fitted(self, "network_")
        return self._answers(self._valid(X))

    def _valid(self, X: Any) -> Any:
        """Rows to predict, checked: names, width, finite numbers."""
        X = flat_images(X)
        if not self._clearly_valid(X):
            with data_errors():
                X = validate_data(self, X, reset=False, dtype="numeric", accept_sparse="csr")
        return X

    def _answers(self, X: Any) -> torch.Tensor:
        """The same for rows that were checked, a bounded piece of them at a time."""
        network, front, device = self._placed()
        size = piece_rows(max(network.sizes), front, device) * (PIECES if front is None else 1)
        starts = range(0, X.shape[0], size)
        given = (_as_tensor(_dense(X[start : start + size])) for start in starts)
        moved = (rows.to(device) for rows in given)
        pieces = [network(rows if front is None else front.features(rows)).cpu() for rows in moved]
        outputs = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
        if not math.isfinite(float(outputs.sum())) and not bool(outputs.isfinite().all()):
            row = int((~outputs.isfinite()).any(1).nonzero()[0])
            raise DataError(
                "Rows must be of a size that the network can work with. Row "
                f"{row} is so far from those it was trained on that its outputs are not finite. "
                "Check its units."
            )
        return outputs

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
        places = _moved.setdefault(self.network_, {})
        if device not in places:
            front = None if self.front_ is None else self.front_.to(device)
            places[device] = (self.network_.to(device), front)
        return *places[device], device


@contextmanager
def data_errors() -> Iterator[None]:
    """Scikit-learn's complaints about rows and targets as errors of ours, in the same words."""
    try:
        yield
    except ProtoPINVError:
        raise
    except ValueError as error:
        raise DataError(str(error)) from error


def checked_weight(sample_weight: Any, X: NDArray[Any]) -> NDArray[np.float64]:
    """What each row counts; raises DataError for what cannot be."""
    weight: NDArray[np.float64] = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if (weight < 0).any():
        row = int(np.flatnonzero(weight < 0)[0])
        raise DataError(
            f"Weights of rows must be 0 or more. Row {row} has {weight[row]:g}. Correct it."
        )
    require_some(weight)
    with np.errstate(over="ignore"):
        total = weight.sum()
    if not np.isfinite(total):
        raise DataError(
            "Weights of rows must add up to a finite number. They are as large as "
            f"{weight.max():g}. Divide all by the largest."
        )
    return weight


def require_some(weight: NDArray[np.float64]) -> None:
    """Raise DataError where no row counts."""
    if not weight.any():
        raise DataError(
            "Some rows must count. All weights are zero. Give larger ones, or leave them out."
        )


def with_weight(checked: Checked, weight: NDArray[np.float64] | None) -> Checked:
    """The same rows with other weights, those of weight zero left out."""
    if weight is None or weight.all():
        return replace(checked, weight=weight)
    require_some(weight)
    present = weight > 0
    return replace(checked, X=checked.X[present], y=checked.y[present], weight=weight[present])


def target_columns(y: Any) -> int:
    """Of a matrix; 1 for anything else."""
    shape = np.asarray(y).shape
    return shape[1] if len(shape) == 2 else 1


def _as_tensor(X: NDArray[Any]) -> torch.Tensor:
    """Rows as torch takes them: a type it knows, memory it may hold; they are only read."""
    X = np.ascontiguousarray(torch_ready(X))
    return torch.from_numpy(X if X.flags.writeable else X.copy())


def _dense(X: Any) -> NDArray[Any]:
    """Rows written out, if they were sparse."""
    dense: NDArray[Any] = X.toarray() if issparse(X) else X
    return dense


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
            f"The maps of a stem must have at least as many pixels on a side as its pool. Images "
            f"of {height} x {width} leave {max(left, 0)} for pool={config.stem_pool}. Lower patch "
            "or pool of the stem, or use fewer stages."
        )
