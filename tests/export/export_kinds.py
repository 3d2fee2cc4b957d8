"""Small models of every kind that an export must hold."""

from functools import cache
from typing import Any

import numpy as np

from protopinv import ConvStem, ProtoPINVClassifier, ProtoPINVRegressor

SMALL = {"n_prototypes": 12, "hidden_sizes": 10, "max_epochs": 12, "random_state": 0}
TINY = {**SMALL, "n_prototypes": 5, "hidden_sizes": 4}
PLAIN = {**SMALL, "scaling": "feature", "early_stopping": False}
# A class, feature or category may be called anything.
HOSTILE = ["*/ int x; /*", "</script>", '"; alert(1)', "two\nlines", "ünïcode \\ ??/ %s ${1}"]


def rows(n: int = 300, seed: int = 0) -> np.ndarray:
    """Six features: one with a heavy tail, one far from zero, one that says yes or no."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 6))
    X[:, 1] = np.exp(2 * X[:, 1])
    X[:, 2] = 1000 + X[:, 2]
    X[:, 3] = X[:, 3] > 0
    return X.astype(np.float32).astype(np.float64)


def images(n: int = 200, seed: int = 0) -> np.ndarray:
    """Bright bars at one of three places."""
    random = np.random.default_rng(seed)
    X = random.uniform(0, 60, (n, 12, 12))
    for image, place in zip(X, np.arange(n) % 3, strict=True):
        image[:, 4 * place : 4 * place + 2] += 150
    return X.round().astype(np.uint8)


def _classes(X: np.ndarray) -> np.ndarray:
    return (X[:, -2] > 0).astype(int) + (X[:, 1] > 1)


def _texts(X: np.ndarray) -> np.ndarray:
    return np.array(HOSTILE, dtype=object)[_classes(X) + 2 * (X[:, 4] > 1)]


def _labels(X: np.ndarray) -> np.ndarray:
    return np.column_stack([X[:, 0] > 0, X[:, 1] > 1, X[:, 4] > X[:, 5]]).astype(int)


def _number(X: np.ndarray) -> np.ndarray:
    return 100 + 20 * np.sin(X[:, 0]) + X[:, 4]


def _numbers(X: np.ndarray) -> np.ndarray:
    return np.column_stack([_number(X), X[:, 5] ** 2])


def _plane(X: np.ndarray) -> np.ndarray:
    return np.where(X[:, 0] + X[:, 4] > 0, "above", "below")


def _slopes(X: np.ndarray) -> np.ndarray:
    return np.column_stack([X[:, 0] + X[:, 4], 1e3 * (X[:, 5] > 0) + 100 * X[:, 0]])


MAKE: dict[str, tuple[Any, Any]] = {
    "classes": (ProtoPINVClassifier(**PLAIN, activation="relu"), _classes),
    "yes or no": (ProtoPINVClassifier(**PLAIN, activation="tanh"), lambda X: X[:, 0] > 0),
    "texts": (ProtoPINVClassifier(**PLAIN, activation="silu"), _texts),
    "floats": (ProtoPINVClassifier(**PLAIN, activation="sigmoid"), lambda X: _classes(X) + 0.0),
    "members": (
        ProtoPINVClassifier(**{**PLAIN, "hidden_sizes": (8, 6, 5)}, n_members=3, activation="gelu"),
        _classes,
    ),
    "factored": (
        ProtoPINVClassifier(
            **{**PLAIN, "n_prototypes": 2, "hidden_sizes": 30}, activation="relu", ridge=0.1
        ),
        lambda X: X[:, 0] > 0,
    ),
    "projected": (
        ProtoPINVClassifier(**PLAIN, projection="pca", n_components=2, activation="relu"),
        _classes,
    ),
    "squashed": (ProtoPINVClassifier(**{**SMALL, "scaling": "squash"}), _classes),
    "clipped": (ProtoPINVClassifier(**{**SMALL, "scaling": "clip"}), _classes),
    "unused": (
        ProtoPINVClassifier(**{**SMALL, "scaling": "squash"}, projection="pca"),
        _classes,
    ),
    "labels": (ProtoPINVClassifier(**SMALL, activation="sigmoid"), _labels),
    "number": (ProtoPINVRegressor(**SMALL), _number),
    "numbers": (ProtoPINVRegressor(**PLAIN, bounded=False, activation="tanh"), _numbers),
    "ensemble": (ProtoPINVClassifier(**TINY, scaling="feature"), _plane),
    "bounded numbers": (ProtoPINVRegressor(**TINY), _slopes),
    "stepped": (
        ProtoPINVClassifier(**PLAIN, number_encoding="steps", activation="silu"),
        _texts,
    ),
    "stepped and clipped": (
        ProtoPINVRegressor(**{**PLAIN, "scaling": "clip"}, number_encoding="both"),
        _number,
    ),
    "projected steps": (
        ProtoPINVClassifier(
            **PLAIN, number_encoding="both", projection="pca", n_components=4, activation="gelu"
        ),
        _labels,
    ),
    "cut steps": (
        ProtoPINVClassifier(**PLAIN, number_encoding="both", activation="relu", memory=150),
        _classes,
    ),
    "stem": (
        ProtoPINVClassifier(**PLAIN, stem=ConvStem(filters=4, patch=3, pool=3)),
        lambda X: np.arange(len(X)) % 3,
    ),
    "two stages": (
        ProtoPINVClassifier(**PLAIN, stem=ConvStem(filters=(4, 5), patch=3, pool=2)),
        lambda X: np.arange(len(X)) % 3,
    ),
}
STEMS = ("stem", "two stages")
KINDS = tuple(MAKE)
# What has several networks, of which some see numbers as steps.
ENSEMBLES = ("squashed", "clipped", "labels", "number", "ensemble", "bounded numbers")
# Steps of something else than columns.
BEHIND = ("projected steps", "cut steps")
# What int8 holds.
WHOLE = tuple(kind for kind in KINDS if kind not in (*STEMS, *BEHIND))


def given(kind: str, seed: int = 0) -> np.ndarray:
    """Rows for a model of this kind."""
    if kind == "unused":  # features that never vary
        return np.insert(rows(seed=seed), [0, 3, 6], [[7.0, 0.0, -2.0]], axis=1)
    if kind == "cut steps":
        return np.hstack([rows(seed=seed + 10), rows(seed=seed)])
    return images(seed=seed) if kind in STEMS else rows(seed=seed)


@cache
def model(kind: str) -> Any:
    """A fitted one."""
    estimator, target = MAKE[kind]
    X = given(kind)
    y = target(X)
    if kind != "cut steps":
        return estimator.fit(X, y)
    # a class that comes later, and a memory that could not hold all directions
    late = y == 2
    estimator.fit(X[~late], y[~late]).set_params(memory=400)
    return estimator.partial_fit(X[late], y[late])


def flat(kind: str, seed: int = 1) -> np.ndarray:
    """Rows it has not seen, flat."""
    X = given(kind, seed)
    return X.reshape(len(X), -1).astype(np.float64)
