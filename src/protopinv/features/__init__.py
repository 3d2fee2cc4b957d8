"""What stands before the network: scaling, PCA and PLS, all one affine map that folds away."""

from protopinv.features.fit import PROJECTIONS, SCALINGS, fit_feature_map
from protopinv.features.map import FeatureMap
from protopinv.features.moments import Moments, measure_moments

__all__ = [
    "PROJECTIONS",
    "SCALINGS",
    "FeatureMap",
    "Moments",
    "fit_feature_map",
    "measure_moments",
]
