"""The scikit-learn door."""

from protopinv.estimators.classifier import ProtoPINVClassifier
from protopinv.estimators.evaluation import Evaluation, evaluate
from protopinv.estimators.saving import load

__all__ = ["Evaluation", "ProtoPINVClassifier", "evaluate", "load"]
