"""One way in: a known name or the path of a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from protopinv.data.images import FASHION_MNIST, MNIST, folder_of, load_images, places
from protopinv.errors import DataError
from protopinv.files import is_file
from protopinv.rows import open_rows
from protopinv.rows.files import STDIN

Split = Literal["train", "test"]
IMAGES = {images.name: images for images in (MNIST, FASHION_MNIST)}
NAMED = ("digits", *IMAGES)


@dataclass(frozen=True)
class Dataset:
    """``X`` is an array in the type it came in, or a frame; ``y`` holds targets.

    Several ``targets`` are the columns of ``y``, in the order of their names. ``weight`` says what
    each row counts. Rows of a set of images are flat; ``image_shape`` is their height and width.
    ``said`` is what a user should hear of how they were read.
    """

    name: str
    X: Any
    y: Any = None
    image_shape: tuple[int, int] | None = None
    weight: Any = None
    targets: tuple[str, ...] = ()
    said: tuple[str, ...] = ()


class Reading(TypedDict, total=False):
    """How a table is read, as ``open_rows`` says."""

    features: Sequence[str] | None
    drop: Sequence[str]
    weight: str | None
    as_text: Sequence[str]
    separator: str | None
    encoding: str | None


@dataclass(frozen=True)
class NamedSet:
    """A set of rows with a name: the folder it lies in, or None, and where it is looked for."""

    name: str
    folder: str | None
    places: tuple[str, ...] = ()


def named_sets() -> tuple[NamedSet, ...]:
    """All of them; nothing is fetched."""
    sets = [NamedSet("digits", "in scikit-learn")]
    for name, images in IMAGES.items():
        folder = folder_of(images)
        looked_in = tuple(map(str, places(images)))
        sets.append(NamedSet(name, None if folder is None else str(folder), looked_in))
    return tuple(sets)


def load_data(
    source: str,
    *,
    split: Split,
    target: str | Sequence[str] | None = None,
    needs_target: bool = True,
    task: str = "auto",
    **reading: Unpack[Reading],
) -> Dataset:
    """``digits``, ``mnist`` or ``fashion-mnist`` in their split, or a table, all of its rows.

    Without ``needs_target`` a table may come without one.
    """
    if source in NAMED:
        if reading.get("weight") is not None:
            raise DataError(
                f"A named set has no weights. Got weight={reading['weight']!r} for {source}. "
                "Leave it out."
            )
        if target is not None:
            raise DataError(
                f"A named set has its own target. Got target={target!r} for {source}. Leave it out."
            )
        return load_named(source, split)
    path = Path(source)
    if path != STDIN and not is_file(path):
        raise DataError(
            "Data must be a CSV, Parquet or Arrow file, - for stdin, or one of "
            f"{', '.join(NAMED)}. There is no file {source}. Check the path."
        )
    if needs_target and target is None:
        raise DataError(
            f"A table needs a target column. None was given for {source}. Use target=COLUMN."
        )
    return load_table(path, target=target, task=task, **reading)


def load_named(name: str, split: Split) -> Dataset:
    """A set of images with a name.

    Of scikit-learn's 1,797 digits every fourth of a fixed shuffle is in the test set.
    """
    if name in IMAGES:
        images, labels = load_images(IMAGES[name], split)
        n, height, width = images.shape
        X = images.reshape(n, -1)
        return Dataset(f"{name} ({split})", X, labels.astype(int), (height, width))
    from sklearn.datasets import load_digits  # the one data set we need not ship

    X, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(X))
    is_test = np.arange(len(X)) % 4 == 0
    chosen = order[is_test if split == "test" else ~is_test]
    return Dataset(f"digits ({split})", X[chosen], y[chosen], (8, 8))


def load_table(
    path: Path,
    *,
    target: str | Sequence[str] | None = None,
    task: str = "auto",
    **reading: Unpack[Reading],
) -> Dataset:
    """All rows of a table: features as they are, by default all other columns, and the target.

    Several targets are a list, or a name that is no column, with commas; so are names in ``drop``.
    A target of numbers in which a few rows hold something else is refused, unless the ``task`` is
    classification.
    """
    rows = open_rows(path, target or (), **reading)
    if task != "classification":
        rows.require_plain_targets()
    X, y, weight = rows.with_columns(rows.names, framed=True).load()
    targets = rows.target_names
    return Dataset(
        str(path), X, y if targets else None, weight=weight, targets=targets, said=rows.said
    )
