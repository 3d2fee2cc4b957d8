"""The scikit-learn door."""

from protopinv.estimators.classifier import ProtoPINVClassifier
from protopinv.estimators.evaluation import (
    Evaluation,
    LabelEvaluation,
    NumberEvaluation,
    evaluate,
)
from protopinv.estimators.images import ConvStem, ImageCopies
from protopinv.estimators.regressor import ProtoPINVRegressor
from protopinv.estimators.saving import load

__all__ = [
    "ConvStem",
    "Evaluation",
    "ImageCopies",
    "LabelEvaluation",
    "NumberEvaluation",
    "ProtoPINVClassifier",
    "ProtoPINVRegressor",
    "evaluate",
    "load",
]
