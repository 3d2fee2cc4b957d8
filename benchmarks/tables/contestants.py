"""The contestants on tables: each at its defaults, for every task.

Networks, machines and linear models get scaled columns; ours and trees get them as they came.
Where a contestant takes one target only, there is a model for each.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import torch
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from benchmarks.tables.folded_mlp import FoldedMLPClassifier, FoldedMLPRegressor
from benchmarks.tables.suite import Task
from protopinv.estimators import ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.optional import require

Build = Callable[[int], Any]  # an estimator that was not fitted, from a seed
OURS = ("quick", "balanced", "best")
REFERENCE = "balanced"
# Kernel methods keep a matrix of rows by rows, and their time grows faster than that.
MOST_ROWS_OF_KERNELS = 25_000


@dataclass(frozen=True)
class Contestant:
    """Builders of its models; ``labels`` and ``numbers`` say whether these take several at once."""

    classifier: Build
    regressor: Build
    labels: bool = False
    numbers: bool = False
    packages: tuple[str, ...] = ()
    most_rows: int | None = None


def build(name: str, task: Task, *, several: bool, seed: int, device: str = "cpu") -> Any:
    """A contestant for a task, of one number a row or several; only ours has a device."""
    who = CONTESTANTS[name]
    model = _built(who, task, several=several, seed=seed)
    return model.set_params(device=device) if name in OURS else model


def _built(who: Contestant, task: Task, *, several: bool, seed: int) -> Any:
    if task == "multi-label":
        model = who.classifier(seed)
        return model if who.labels else MultiOutputClassifier(model)
    if task == "classification":
        return who.classifier(seed)
    model = who.regressor(seed)
    return model if who.numbers or not several else MultiOutputRegressor(model)


def why_not(name: str, rows: int) -> str | None:
    """Why a contestant is left out on a table; None if it is not."""
    most = CONTESTANTS[name].most_rows
    if most is not None and rows > most:
        return f"kernel methods are left out above {most:,} rows"
    return None


def missing_package(name: str) -> str | None:
    """The package that a contestant lacks here; None if it can be measured."""
    packages = CONTESTANTS[name].packages
    return next((package for package in packages if find_spec(package) is None), None)


def versions_of_peers(names: Sequence[str]) -> dict[str, str]:
    """By package; raises MissingExtraError if one of them is not installed."""
    versions = {}
    for name in names:
        for package in CONTESTANTS[name].packages:
            require(package, extra="study", why=f"The contestant {name}")
            versions[package] = version(package)
    return versions


def _ours(estimator: Callable[..., Any], effort: str) -> Build:
    return lambda seed: estimator(effort=effort, random_state=seed)


def _scaled(estimator: Callable[..., Any]) -> Build:
    return lambda seed: make_pipeline(StandardScaler(), estimator(random_state=seed))


def _both_scaled(estimator: Callable[..., Any]) -> Build:
    """A model with scaled targets too: networks and machines assume a unit."""
    inner = _scaled(estimator)
    return lambda seed: TransformedTargetRegressor(inner(seed), transformer=StandardScaler())


def _package(
    package: str,
    estimator: str,
    *,
    seed_name: str = "random_state",
    threads_name: str = "n_jobs",
    **options: Any,
) -> Build:
    """An estimator of an optional package, which is imported when a model is built.

    All have as many threads as torch: with more than there are free cores small steps crawl.
    """

    def made(seed: int) -> Any:
        module = require(package, extra="study", why=f"The contestant {package}")
        shared = {seed_name: seed, threads_name: torch.get_num_threads()}
        return getattr(module, estimator)(**options, **shared)

    return made


def _pytabkit(estimator: str) -> Build:
    options: dict[str, Any] = {"device": "cpu", "n_cv": 1, "verbosity": 0}
    build = _package("pytabkit", estimator, threads_name="n_threads", **options)

    def made(seed: int) -> Any:
        for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
            logging.getLogger(name).setLevel(logging.ERROR)
        return build(seed)

    return made


def _svr(random_state: int) -> Any:  # noqa: ARG001
    return SVR()  # draws nothing


_catboost = partial(
    _package,
    "catboost",
    seed_name="random_seed",
    threads_name="thread_count",
    verbose=False,
    allow_writing_files=False,
)

CONTESTANTS: dict[str, Contestant] = {
    **{
        effort: Contestant(
            _ours(ProtoPINVClassifier, effort),
            _ours(ProtoPINVRegressor, effort),
            labels=True,
            numbers=True,
        )
        for effort in OURS
    },
    "scikit-mlp": Contestant(
        _scaled(MLPClassifier), _both_scaled(MLPRegressor), labels=True, numbers=True
    ),
    "scikit-mlp-folds": Contestant(
        _scaled(FoldedMLPClassifier), _both_scaled(FoldedMLPRegressor), labels=True, numbers=True
    ),
    "hist-gradient": Contestant(
        lambda seed: HistGradientBoostingClassifier(random_state=seed),
        lambda seed: HistGradientBoostingRegressor(random_state=seed),
    ),
    "lightgbm": Contestant(
        _package("lightgbm", "LGBMClassifier", verbose=-1),
        _package("lightgbm", "LGBMRegressor", verbose=-1),
        packages=("lightgbm",),
    ),
    "xgboost": Contestant(
        _package("xgboost", "XGBClassifier"),
        _package("xgboost", "XGBRegressor"),
        labels=True,
        numbers=True,
        packages=("xgboost",),
    ),
    "catboost": Contestant(
        _catboost("CatBoostClassifier"),
        _catboost("CatBoostRegressor"),
        packages=("catboost",),
    ),
    "realmlp": Contestant(
        _pytabkit("RealMLP_TD_S_Classifier"),
        _pytabkit("RealMLP_TD_S_Regressor"),
        numbers=True,
        packages=("pytabkit",),
    ),
    "tabm": Contestant(
        _pytabkit("TabM_D_Classifier"), _pytabkit("TabM_D_Regressor"), packages=("pytabkit",)
    ),
    "xrfm": Contestant(
        _pytabkit("XRFM_D_Classifier"),
        _pytabkit("XRFM_D_Regressor"),
        packages=("pytabkit", "xrfm"),
        most_rows=MOST_ROWS_OF_KERNELS,
    ),
    "svm": Contestant(_scaled(SVC), _both_scaled(_svr), most_rows=MOST_ROWS_OF_KERNELS),
    "linear": Contestant(
        _scaled(partial(LogisticRegression, max_iter=1000)), _scaled(Ridge), numbers=True
    ),
}
