"""Other methods behind the same door, to compare with."""

from protopinv.baselines.mlp import MLPBaselineClassifier
from protopinv.baselines.random_hidden import ELMClassifier, RandomFeatureRidgeClassifier

__all__ = ["ELMClassifier", "MLPBaselineClassifier", "RandomFeatureRidgeClassifier"]
