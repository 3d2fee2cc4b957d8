"""Estimators with the interface of scikit-learn."""

from protopinv.estimators.classifier import ProtoPINVClassifier
from protopinv.estimators.loading import load
from protopinv.estimators.parameters import ConvStem, ImageCopies
from protopinv.estimators.regressor import ProtoPINVRegressor

__all__ = [
    "ConvStem",
    "ImageCopies",
    "ProtoPINVClassifier",
    "ProtoPINVRegressor",
    "load",
]
