"""What stands before the network: scaling, PCA and PLS, all one affine map that folds away."""

from protopinv.features.fit import fit_feature_map, fit_wide_feature_map
from protopinv.features.map import FeatureMap
from protopinv.features.moments import Moments, measure_moments

__all__ = [
    "FeatureMap",
    "Moments",
    "fit_feature_map",
    "fit_wide_feature_map",
    "measure_moments",
]
