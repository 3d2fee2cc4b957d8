"""What other methods share: rows and targets are checked as ours are, and a fit leaves a Model."""

import inspect
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils import check_array

from benchmarks.tasks import Arrays
from protopinv.errors import ConfigError
from protopinv.estimators import ProtoPINVClassifier
from protopinv.estimators.base import ProtoPINV
from protopinv.estimators.rows import data_errors, row_source
from protopinv.features import FeatureMap, Front
from protopinv.model import Model
from protopinv.network import Network
from protopinv.rows import RowSource
from protopinv.train.config import LARGEST, TrainConfig
from protopinv.train.history import History


class Contestant(ClassifierMixin, ProtoPINV):
    """A classifier with the interface of ours that has no prototypes."""

    classes_ = ProtoPINVClassifier.classes_
    decision_function = ProtoPINVClassifier.decision_function
    _targets = ProtoPINVClassifier._targets

    def __sklearn_tags__(self) -> Any:
        """Say that rows must have no gaps."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        return tags

    def _outputs(self, X: Any) -> torch.Tensor:
        """Raw outputs, for rows without gaps."""
        with data_errors():
            check_array(X, accept_sparse=True, allow_nd=True, ensure_2d=False)
        return super()._outputs(X)

    def _arrays(self, X: Any, y: Any, seed: int) -> tuple[RowSource, Arrays]:
        """Rows of numbers, checked, and with their targets as training takes them."""
        rows = row_source(self, X, y, None, is_image=True)
        targets = self._targets(rows)
        X, y, _ = rows.load()
        mass = np.ones(len(y))
        targets.add(y, mass, "y")
        objective = targets.objective((y, mass))
        return rows, Arrays(X, y, objective, seed)

    def _fitted(
        self,
        rows: RowSource,
        data: Arrays,
        network: Network,
        features: FeatureMap,
        config: TrainConfig,
        front: Front | None = None,
        history: History | None = None,
    ) -> Model:
        """The model of a network behind a front, without prototypes."""
        return Model(
            objective=data.objective,
            network=network,
            features=features.to("cpu"),
            config=config,
            history=history or History(),
            n_columns=rows.n_features,
            feature_names=rows.names if rows.is_named else None,
            front=None if front is None else front.to("cpu"),
        )

    def _require_number(self, name: str, kind: type, least: float, rule: str) -> None:
        """Raise ConfigError unless the parameter is a number of this kind, ``least`` or more."""
        value = getattr(self, name)
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        if not (is_number and least <= value <= LARGEST):
            default = inspect.signature(type(self)).parameters[name].default
            raise ConfigError(
                f"{name} must be {rule}. Got {value!r}. Change it, or leave it at {default!r}."
            )
