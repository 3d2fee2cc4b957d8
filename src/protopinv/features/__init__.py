"""What stands before the network: scaling, PCA and PLS, all one affine map that folds away."""

from protopinv.features.distort import distorted
from protopinv.features.fit import fit_feature_map, fit_wide_feature_map
from protopinv.features.map import FeatureMap
from protopinv.features.moments import Moments, measure_moments
from protopinv.features.stem import Stem, fit_stem, map_side

__all__ = [
    "FeatureMap",
    "Moments",
    "Stem",
    "distorted",
    "fit_feature_map",
    "fit_stem",
    "fit_wide_feature_map",
    "map_side",
    "measure_moments",
]
