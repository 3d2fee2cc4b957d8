"""Small model files of every kind, to be damaged."""

import warnings
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from protopinv import ConvStem, ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.errors import NotLearnedWarning

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
SMALL: dict[str, Any] = {
    "n_prototypes": 6,
    "hidden_sizes": 5,
    "max_epochs": 3,
    "n_members": 1,
    "early_stopping": False,
    "random_state": 0,
}


def kinds() -> dict[str, bytes]:
    """Golden files, and what only newer versions write, by name."""
    golden = {path.stem: path.read_bytes() for path in sorted(GOLDEN.glob("*.safetensors"))}
    with TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", NotLearnedWarning)  # three epochs are few
        path = Path(place) / "m.safetensors"
        for name, (model, options) in _made().items():
            model.save(path, **options)
            golden[name] = path.read_bytes()
    return golden


def _made() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Models that keep a memory, and how they are saved."""
    random = np.random.default_rng(0)
    X = random.normal(size=(120, 5)).round(3)
    X[:, 1] = np.exp(2 * X[:, 1])
    classes = (X[:, 0] > 0).astype(int) + (X[:, 2] > 1)
    labels = (X[:, :2] > 0.5).astype(int)
    number, numbers = X[:, 0] * 10, X[:, :2] * 3
    again = _classifier(memory=90).fit(X, classes)
    for part in (slice(0, 40), slice(40, 80)):
        again.partial_fit(X[part], classes[part])
    again.freeze(2)
    images = random.integers(0, 255, size=(60, 8, 8)).astype(np.uint8)
    stem = ConvStem(filters=3, patch=3, pool=2)
    return {
        "memory": (_classifier().fit(X, classes), {}),
        "memory cut": (again, {}),
        "average of calls": (_twice(X, classes), {"examples": True}),
        "memory of labels": (_classifier().fit(X, labels), {}),
        "bounds": (_regressor().fit(X, number), {}),
        "bounds, float16": (_regressor().fit(X, number), {"dtype": "float16", "bank": False}),
        "several bounds": (_regressor(scaling="squash").fit(X, numbers), {"dtype": "int8"}),
        "clip": (_classifier(scaling="clip").fit(X, classes), {"examples": True}),
        "projected": (_classifier(projection="pca", n_components=3).fit(X, classes), {}),
        "stem with memory": (
            _classifier(stem=stem).fit(images, np.arange(60) % 3),
            {"dtype": "float32"},
        ),
        "members with memory": (_classifier(n_members=2, hidden_sizes=(4, 3)).fit(X, classes), {}),
        "table": (_classifier().fit(_frame(random), classes), {}),
        "table of numbers": (_regressor().fit(_frame(random), number), {"dtype": "int8"}),
    }


def _classifier(**options: Any) -> ProtoPINVClassifier:
    return ProtoPINVClassifier(**{**SMALL, **options})


def _regressor(**options: Any) -> ProtoPINVRegressor:
    return ProtoPINVRegressor(**{**SMALL, **options})


def _twice(X: Any, y: Any) -> ProtoPINVClassifier:
    """A model that is the mean over its calls, and holds the bank of the last."""
    model = _classifier(scaling="feature").fit(X, y)
    for _ in range(2):
        model.partial_fit(X, y)
    return model


def _frame(random: np.random.Generator) -> pl.DataFrame:
    n = 120
    return pl.DataFrame(
        {
            "age": [None if k % 7 == 0 else float(random.integers(18, 60)) for k in range(n)],
            "city": random.choice(["Rome", "Oslo", "Bonn"], n),
            "since": [datetime(2020, 1, 1) + k * timedelta(hours=37) for k in range(n)],
            "id": [f"customer {k}" for k in range(n)],
        }
    )
