"""Estimators with the interface of scikit-learn."""

from pathlib import Path

from protopinv.estimators.classifier import ProtoPINVClassifier
from protopinv.estimators.parameters import ConvStem, ImageCopies, arguments_from
from protopinv.estimators.regressor import ProtoPINVRegressor
from protopinv.model_file.loading import ODD, load_model, unknown_settings

__all__ = ["ConvStem", "ImageCopies", "ProtoPINVClassifier", "ProtoPINVRegressor", "load"]


def load(path: str | Path) -> ProtoPINVClassifier | ProtoPINVRegressor:
    """The fitted estimator in a model file; it predicts what it did before, bit for bit.

    Its parameters are those that were set; ``config_`` has those that were used.
    """
    model = load_model(path)
    kind = ProtoPINVRegressor if model.task == "regression" else ProtoPINVClassifier
    try:
        arguments = arguments_from(model.parameters)
        estimator: ProtoPINVClassifier | ProtoPINVRegressor = kind(**arguments)
        estimator.config()
    except ODD as error:
        raise unknown_settings(path, error) from error
    estimator.model_ = model
    return estimator
