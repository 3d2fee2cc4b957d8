"""What is shipped in the study: images, a table of numbers, a table of labels, and tiny ones."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from benchmarks.recipes import RECIPES, SHAPE
from protopinv import ConvStem, ImageCopies, ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.data import load_data

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Shipped:
    """An estimator, and rows to train and to test it on."""

    estimator: Any
    rows: Callable[[], Arrays]


def mnist() -> Arrays:
    """Flat pixels from 0 to 255."""
    parts = [load_data("mnist", split="train"), load_data("mnist", split="test")]
    (X, y), (X_test, y_test) = ((np.asarray(part.X), np.asarray(part.y)) for part in parts)
    return X, y, X_test, y_test


def mnist_images() -> Arrays:
    """The same as images."""
    X, y, X_test, y_test = mnist()
    return X.reshape(-1, 28, 28), y, X_test.reshape(-1, 28, 28), y_test


def small_images() -> Arrays:
    """16 x 16 pixels, each the mean of what it covers."""
    X, y, X_test, y_test = mnist()
    small = [
        functional.interpolate(
            torch.from_numpy(np.array(part, dtype=np.float32)).view(-1, 1, 28, 28),
            (16, 16),
            mode="area",
        )
        .view(-1, 16, 16)
        .numpy()
        for part in (X, X_test)
    ]
    return small[0], y, small[1], y_test


def diabetes() -> Arrays:
    """scikit-learn's, every fifth row to test on."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True, scaled=False)
    return _every_fifth(X, y)


def topics() -> Arrays:
    """Several labels a row, made by scikit-learn."""
    from sklearn.datasets import make_multilabel_classification

    X, y = make_multilabel_classification(5000, 40, n_classes=8, random_state=0)
    return _every_fifth(X, y)


def digits() -> Arrays:
    """scikit-learn's, every fifth row to test on."""
    from sklearn.datasets import load_digits

    return _every_fifth(*load_digits(return_X_y=True))


def _every_fifth(X: NDArray[Any], y: NDArray[Any]) -> Arrays:
    held = np.arange(len(X)) % 5 == 0
    return X[~held], y[~held], X[held], y[held]


def models(*, quick: bool) -> dict[str, Shipped]:
    """Those that are compared with Python."""
    epochs: dict[str, Any] = {"max_epochs": 2, "warmup_epochs": 0} if quick else {}
    paper = {**SHAPE, **RECIPES["mnist"], "input_noise": 0.3, "random_state": 0, **epochs}
    stem = {
        "stem": ConvStem("pca", filters=25, patch=5, pool=5),
        "n_prototypes": 150,
        "hidden_sizes": (256, 256),
        "activation": "relu",
        "max_epochs": 2 if quick else 12,
        "input_noise": 0.3,
        "batch_size": 2048,
        "n_members": 1,
        "early_stopping": False,
        "random_state": 0,
    }
    members = {
        "n_prototypes": 100,
        "hidden_sizes": (64, 32),
        "activation": "silu",
        "max_epochs": 2 if quick else 12,
        "batch_size": 2048,
        "n_members": 5,
        "early_stopping": False,
        "random_state": 0,
    }
    tables: dict[str, Any] = {"random_state": 0, "effort": "quick"}
    tables["number_encoding"] = "raw"  # so that scikit-learn can hold them
    return {
        "MNIST, the paper's shape": Shipped(ProtoPINVClassifier(**paper), mnist),
        "MNIST, a stem": Shipped(ProtoPINVClassifier(**stem), mnist_images),
        "MNIST, 5 members": Shipped(ProtoPINVClassifier(**members), mnist),
        "diabetes (a number)": Shipped(ProtoPINVRegressor(**tables), diabetes),
        "topics (8 labels a row)": Shipped(ProtoPINVClassifier(**tables), topics),
        "digits, p = 30, h = 64": Shipped(
            ProtoPINVClassifier(
                n_prototypes=30,
                hidden_sizes=64,
                activation="relu",
                scaling="global",
                input_noise=0.3,
                max_epochs=300,
                n_members=1,
                early_stopping=False,
                random_state=0,
            ),
            digits,
        ),
    }


def tiny_images(hidden: tuple[int, ...], *, quick: bool) -> Shipped:
    """Images of 16 x 16 for a microcontroller, trained on distorted copies too."""
    estimator = ProtoPINVClassifier(
        n_prototypes=200,
        hidden_sizes=hidden,
        activation="relu",
        stem=None,
        copies=ImageCopies(1 if quick else 8),
        max_epochs=1 if quick else 20,
        batch_size=1024,
        early_stopping=False,
        n_members=1,
        label_smoothing=0.05,
        scaling="global",
        projection="none",
        random_state=0,
    )
    return Shipped(estimator, small_images)
