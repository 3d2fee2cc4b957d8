"""Small networks that retrain in a blink: prototypes are trained, weights are solved."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from protopinv.bank import Bank
    from protopinv.estimators import (
        ConvStem,
        ImageCopies,
        ProtoPINVClassifier,
        ProtoPINVRegressor,
        load,
    )
    from protopinv.evaluation import Evaluation, LabelEvaluation, NumberEvaluation, evaluate
    from protopinv.features import FeatureMap
    from protopinv.network import Network
    from protopinv.rows import ArrayRows, BatchRows, RowSource, open_rows
    from protopinv.solve import ridge_solve, solve_layers
    from protopinv.train.config import TrainConfig
    from protopinv.train.history import History
    from protopinv.tuning import Tuned, tune

# Public names are imported when they are first used, so that the command line starts quickly.
_HOMES = {
    "bank": ("Bank",),
    "estimators": ("ConvStem", "ImageCopies", "ProtoPINVClassifier", "ProtoPINVRegressor", "load"),
    "evaluation": ("Evaluation", "LabelEvaluation", "NumberEvaluation", "evaluate"),
    "features": ("FeatureMap",),
    "network": ("Network",),
    "rows": ("ArrayRows", "BatchRows", "RowSource", "open_rows"),
    "solve": ("ridge_solve", "solve_layers"),
    "train.config": ("TrainConfig",),
    "train.history": ("History",),
    "tuning": ("Tuned", "tune"),
}

__all__ = [
    "ArrayRows",
    "Bank",
    "BatchRows",
    "ConvStem",
    "Evaluation",
    "FeatureMap",
    "History",
    "ImageCopies",
    "LabelEvaluation",
    "Network",
    "NumberEvaluation",
    "ProtoPINVClassifier",
    "ProtoPINVRegressor",
    "RowSource",
    "TrainConfig",
    "Tuned",
    "__version__",
    "evaluate",
    "load",
    "open_rows",
    "ridge_solve",
    "solve_layers",
    "tune",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"protopinv.{home}"), name)
    raise AttributeError(f"module 'protopinv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
