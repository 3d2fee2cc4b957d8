"""One way in: a known name or the path of a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from protopinv.errors import DataError
from protopinv.files import is_file, is_folder
from protopinv.rows import ArrowRows, open_rows
from protopinv.rows.formats import STDIN

Split = Literal["train", "test"]
NAMED = ("digits", "mnist", "fashion-mnist")


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


def load_data(
    source: str,
    *,
    split: Split,
    target: str | Sequence[str] | None = None,
    weight: str | None = None,
    **reading: Any,
) -> Dataset:
    """``digits``, ``mnist`` or ``fashion-mnist`` in their split, or a table, all of its rows.

    ``open_table`` says what ``reading`` may be.
    """
    if source not in NAMED:
        rows = open_table(source, target=target, weight=weight, **reading)
        X, y, weights = rows.with_columns(rows.names, framed=True).load()
        names = rows.target_names
        targets = y if names else None
        return Dataset(source, X, targets, weight=weights, targets=names, said=rows.said)
    if weight is not None:
        raise DataError(
            f"A named set has no weights. Got weight={weight!r} for {source}. Leave it out."
        )
    if target is not None:
        raise DataError(
            f"A named set has its own target. Got target={target!r} for {source}. Leave it out."
        )
    return load_named(source, split)


def load_named(name: str, split: Split) -> Dataset:
    """A set of images with a name.

    Of scikit-learn's 1,797 digits every fourth of a fixed shuffle is in the test set.
    """
    if name != "digits":
        from protopinv.data.images import IMAGES, load_images  # and with it all that downloads need

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


def open_table(
    source: str,
    *,
    target: str | Sequence[str] | None = None,
    needs_target: bool = True,
    task: str = "auto",
    missing_target: str = "error",
    **reading: Any,
) -> ArrowRows:
    """The rows of a file, or of all files in a folder, with the target that they need.

    Several targets are a list, or a name that is no column, with commas; so are names in ``drop``.
    A target of numbers, written plainly or in another form, in which a few rows hold something else
    is refused, unless the ``task`` is classification. Rows without a target are left out, and
    counted, where ``missing_target`` is "drop". ``open_rows`` says what ``reading`` may be.
    """
    path = Path(source)
    if path != STDIN and not (is_file(path) or is_folder(path)):
        raise DataError(
            "Data must be a CSV, Parquet or Arrow file, a folder of such files, - for stdin, or "
            f"one of {', '.join(NAMED)}. There is no file {source}. Check the path."
        )
    if needs_target and target is None:
        raise DataError(
            f"A table needs a target column. None was given for {source}. Use target=COLUMN."
        )
    rows = open_rows(path, target or (), **reading)
    if task != "classification":
        rows = rows.with_number_targets(few_too=task == "regression")
    if missing_target == "drop" and rows.target_names:
        rows = rows.without_missing()
    if task != "classification":
        rows.require_plain_targets()
    return rows
