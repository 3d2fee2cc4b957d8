"""What stands before the network.

Scaling, PCA and PLS are one affine map, which is merged into the network. A front is not: a
convolutional stem for images, or a tail transform of the columns of a table. Nor is what may come
behind the map: piecewise-linear steps.
"""

from protopinv.features.distort import Distortion
from protopinv.features.map import FeatureMap, fit_feature_map, fit_wide_feature_map
from protopinv.features.moments import Moments, merged_moments, moments_of_chunk
from protopinv.features.stem import Stage, Stem, fit_stem, map_side
from protopinv.features.steps import Steps
from protopinv.features.tails import Clip, Squash, TailTransform, weighted_quantiles

Front = Stem | TailTransform

__all__ = [
    "Clip",
    "Distortion",
    "FeatureMap",
    "Front",
    "Moments",
    "Squash",
    "Stage",
    "Stem",
    "Steps",
    "TailTransform",
    "fit_feature_map",
    "fit_stem",
    "fit_wide_feature_map",
    "map_side",
    "merged_moments",
    "moments_of_chunk",
    "weighted_quantiles",
]
