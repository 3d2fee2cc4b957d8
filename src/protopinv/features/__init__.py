"""What stands before the network.

Scaling, PCA and PLS are one affine map that folds away. A front does not: a convolutional stem for
images, or columns of a table with their tails squashed or clipped.
"""

from protopinv.features.distort import Distortion
from protopinv.features.fit import fit_feature_map, fit_wide_feature_map
from protopinv.features.map import FeatureMap
from protopinv.features.moments import (
    Moments,
    measure_moments,
    merged_moments,
    moments_of_chunk,
)
from protopinv.features.squash import Bent, Clip, Squash, fit_clip, fit_squash, weighted_quantiles
from protopinv.features.stem import Stem, fit_stem, map_side

Front = Stem | Bent

__all__ = [
    "Bent",
    "Clip",
    "Distortion",
    "FeatureMap",
    "Front",
    "Moments",
    "Squash",
    "Stem",
    "fit_clip",
    "fit_feature_map",
    "fit_squash",
    "fit_stem",
    "fit_wide_feature_map",
    "map_side",
    "measure_moments",
    "merged_moments",
    "moments_of_chunk",
    "weighted_quantiles",
]
