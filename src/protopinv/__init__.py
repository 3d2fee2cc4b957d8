"""Small networks that retrain in a blink: prototypes are trained, weights are solved."""

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
    from protopinv.evaluation import (
        Evaluation,
        LabelEvaluation,
        NumberEvaluation,
        evaluate,
    )
    from protopinv.features import FeatureMap
    from protopinv.network import Network
    from protopinv.rows import ArrayRows, BatchRows, RowSource, open_rows
    from protopinv.solve import ridge_solve, solve_layers
    from protopinv.train.config import TrainConfig
    from protopinv.train.history import History
    from protopinv.tuning import Tuned, tune

# Public names are imported when they are first used, so that the command line starts quickly.
_HOME = {
    "ArrayRows": "protopinv.rows",
    "Bank": "protopinv.bank",
    "BatchRows": "protopinv.rows",
    "ConvStem": "protopinv.estimators",
    "Evaluation": "protopinv.evaluation",
    "FeatureMap": "protopinv.features",
    "History": "protopinv.train.history",
    "ImageCopies": "protopinv.estimators",
    "LabelEvaluation": "protopinv.evaluation",
    "Network": "protopinv.network",
    "NumberEvaluation": "protopinv.evaluation",
    "ProtoPINVClassifier": "protopinv.estimators",
    "ProtoPINVRegressor": "protopinv.estimators",
    "RowSource": "protopinv.rows",
    "TrainConfig": "protopinv.train.config",
    "Tuned": "protopinv.tuning",
    "evaluate": "protopinv.evaluation",
    "load": "protopinv.estimators",
    "open_rows": "protopinv.rows",
    "ridge_solve": "protopinv.solve",
    "solve_layers": "protopinv.solve",
    "tune": "protopinv.tuning",
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
    if name not in _HOME:
        raise AttributeError(f"module 'protopinv' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
