"""Parameters for images that belong together, as nested parameters of an estimator."""

from typing import Any, Literal

from sklearn.base import BaseEstimator

from protopinv.errors import ConfigError
from protopinv.train.config import AUTO, TrainConfig


class ConvStem(BaseEstimator):
    """A convolutional stem before the network: filters made from patches, never trained.

    Parameters
    ----------
    kind : {"pca", "kmeans", "random"}, default="kmeans"
        What the filters are made from: principal patches, cluster centres, or random patches.
    filters : int or sequence of int, default=25
        Filters of the stem: one number a stage.
    patch : int, default=5
        Pixels on a side that a filter of the first stage sees.
    pool : int, default=5
        Fields on a side over which the stem averages its maps.
    """

    def __init__(
        self,
        kind: Literal["pca", "kmeans", "random"] = "kmeans",
        *,
        filters: Any = TrainConfig.stem_filters,
        patch: int = TrainConfig.stem_patch,
        pool: int = TrainConfig.stem_pool,
    ) -> None:
        self.kind = kind
        self.filters = filters
        self.patch = patch
        self.pool = pool


class ImageCopies(BaseEstimator):
    """Distorted copies of every training image, next to itself.

    Parameters
    ----------
    n : int, default=1
        Copies of each image.
    shift : float, default=1.0
        Pixels by which a copy is shifted, standard deviation.
    bend : float, default=1.0
        Pixels by which points of a copy are moved, likewise.
    mirror : bool, default=False
        Turn every other copy left to right.
    """

    def __init__(
        self,
        n: int = 1,
        *,
        shift: float = TrainConfig.copy_shift,
        bend: float = TrainConfig.copy_bend,
        mirror: bool = TrainConfig.copy_mirror,
    ) -> None:
        self.n = n
        self.shift = shift
        self.bend = bend
        self.mirror = mirror


# Fields of TrainConfig, and the parameters of a stem and of copies that they come from.
STEM = {"stem": "kind", "stem_filters": "filters", "stem_patch": "patch", "stem_pool": "pool"}
COPIES = {
    "image_copies": "n",
    "copy_shift": "shift",
    "copy_bend": "bend",
    "copy_mirror": "mirror",
}


def flattened(stem: Any, copies: Any) -> dict[str, Any]:
    """What the configuration has for a stem and copies, each of which may be None.

    A stem that is "auto" is left to the rules.
    """
    left_open = isinstance(stem, str) and stem == AUTO
    stem = None if left_open else stem
    _require(stem, "stem", ConvStem, "'auto', None")
    _require(copies, "copies", ImageCopies, "None")
    values: dict[str, Any] = {}
    for given, names in ((stem, STEM), (copies, COPIES)):
        for field, name in names.items():
            default = getattr(TrainConfig, field)
            values[field] = default if given is None else getattr(given, name)
    return {**values, "stem": AUTO} if left_open else values


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """The way back: values of the configuration with ``stem`` and ``copies`` made of theirs."""
    rest = {name: value for name, value in values.items() if name not in (*STEM, *COPIES)}
    stem = {name: values[field] for field, name in STEM.items() if field in values}
    copies = {name: values[field] for field, name in COPIES.items() if field in values}
    if "kind" in stem:
        without = {"none": None, AUTO: AUTO}
        kind = stem["kind"]
        rest["stem"] = without[kind] if kind in without else ConvStem(**stem)
    if "n" in copies:
        rest["copies"] = None if copies["n"] == 0 else ImageCopies(**copies)
    return rest


def _require(given: Any, name: str, kind: type, others: str) -> None:
    if given is not None and not isinstance(given, kind):
        raise ConfigError(
            f"{name} must be {others} or {kind.__name__}(...). Got {given!r}. Change it, for "
            f"example to {kind.__name__}()."
        )
