"""One way in: a known name or the path of a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from protopinv.data.dataset import Dataset
from protopinv.data.images import FASHION_MNIST, MNIST, folder_of, load_images, places
from protopinv.data.tables import load_table
from protopinv.errors import DataError
from protopinv.files import is_file
from protopinv.rows.files import STDIN
from protopinv.rows.text import Written

Split = Literal["train", "test"]
NAMED = ("digits", MNIST.name, FASHION_MNIST.name)


@dataclass(frozen=True)
class NamedSet:
    """A set of rows with a name: where it was found, if it was, and where it is looked for."""

    name: str
    found: str | None
    places: tuple[str, ...] = ()


def named_sets() -> tuple[NamedSet, ...]:
    """All of them; nothing is fetched."""
    files = []
    for images in (MNIST, FASHION_MNIST):
        folder = folder_of(images)
        found = None if folder is None else str(folder)
        files.append(NamedSet(images.name, found, tuple(map(str, places(images)))))
    return (NamedSet("digits", "in scikit-learn"), *files)


def load_data(
    source: str,
    *,
    split: Split,
    target: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    left_out: Sequence[str] = (),
    drop: Sequence[str] = (),
    needs_target: bool = True,
    weight: str | None = None,
    as_text: Sequence[str] = (),
    written: Written | None = None,
    task: str = "auto",
) -> Dataset:
    """``digits``, ``mnist`` or ``fashion-mnist`` in their split, or a table, all of its rows.

    Of a table, ``target`` is taken apart; ``features`` names the columns to use, by default all
    others but those in ``drop``. Without ``needs_target`` a table may come without one. Several
    targets are named with commas. ``weight`` names the column that says what each row counts. Text
    is read as ``written``, and columns ``as_text`` stay what they are there. The ``task`` says
    whether a target of numbers may hold names, too.
    """
    if source in NAMED and weight is not None:
        raise DataError(
            f"A named set has no weights. Got weight={weight!r} for {source}. Leave it out."
        )
    if source in NAMED and target is not None:
        raise DataError(
            f"A named set has its own target. Got target={target!r} for {source}. Leave it out."
        )
    if source == "digits":
        return load_digits(split)
    for images in (MNIST, FASHION_MNIST):
        if source == images.name:
            return load_images(images, split)
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
    return load_table(
        path,
        target=target,
        features=features,
        left_out=left_out,
        drop=drop,
        weight=weight,
        as_text=as_text,
        written=written,
        task=task,
    )


def load_digits(split: Split) -> Dataset:
    """scikit-learn's 1,797 digits of 8 x 8; every fourth row of a fixed shuffle is the test set."""
    from sklearn.datasets import load_digits as bundled  # the one data set we need not ship

    X, y = bundled(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(X))
    is_test = np.arange(len(X)) % 4 == 0
    chosen = order[is_test if split == "test" else ~is_test]
    return Dataset(f"digits ({split})", X[chosen], y[chosen], (8, 8))
