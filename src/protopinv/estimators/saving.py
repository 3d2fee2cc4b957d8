"""Estimators to model files and back."""

from dataclasses import asdict
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from protopinv import __version__, model_file
from protopinv.errors import ModelFileError
from protopinv.estimators.classifier import ProtoPINVClassifier
from protopinv.train.history import History

CLASSIFICATION = "classification"


def save(estimator: ProtoPINVClassifier, path: str | Path) -> None:
    """Write a fitted estimator to ``path``."""
    check_is_fitted(estimator, "network_")
    names = getattr(estimator, "feature_names_in_", None)
    seed = estimator.random_state
    config = asdict(estimator.config_)
    config["random_state"] = int(seed) if isinstance(seed, Integral) else None
    # What was trained on a GPU must load where there is none.
    config["device"] = "auto" if estimator.device == "cuda" else estimator.device
    saved = model_file.SavedModel(
        task=CLASSIFICATION,
        classes=estimator.classes_.tolist(),
        classes_dtype=estimator.classes_.dtype.str,
        feature_names=None if names is None else [str(name) for name in names],
        config=config,
        history=estimator.history_.to_dict(),
        bank=estimator.bank_,
        features=estimator.features_,
        network=estimator.network_,
        front=estimator.front_,
    )
    model_file.save(saved, path, written_by=f"protopinv {__version__}")


def load(path: str | Path) -> ProtoPINVClassifier:
    """The fitted estimator in a model file; it predicts what it did before, bit for bit.

    Its parameters are those that were used: what was "auto" is settled.
    """
    saved = model_file.load(path)
    if saved.task != CLASSIFICATION:
        raise ModelFileError(
            f"This version loads classifiers. {path} holds a model for {saved.task!r}. "
            "Upgrade protopinv."
        )
    try:
        estimator = ProtoPINVClassifier(
            **{name: _tupled(value) for name, value in saved.config.items()}
        )
        estimator.config_ = estimator.config()
        estimator.classes_ = np.array(saved.classes, dtype=np.dtype(saved.classes_dtype))
        estimator.history_ = History.from_dict(saved.history)
    except (TypeError, ValueError, KeyError) as error:
        raise ModelFileError(
            f"A model file must hold a configuration this version knows. {path} does not "
            f"({error}). Upgrade protopinv, or train the model again."
        ) from error
    estimator.bank_ = saved.bank
    estimator.features_ = saved.features
    estimator.network_ = saved.network
    estimator.front_ = saved.front
    estimator.n_iter_ = estimator.history_.n_epochs
    estimator.n_features_in_ = saved.n_features
    if saved.feature_names is not None:
        estimator.feature_names_in_ = np.array(saved.feature_names, dtype=object)
    return estimator


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
