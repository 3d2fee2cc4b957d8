"""The example for AutoGluon and TabArena, on a small stand-in for AutoGluon's AbstractModel.

The stand-in calls a model in the order AutoGluon does: defaults, columns, resources, ``_fit`` with
all arguments as keywords, ``_predict_proba``, and a pickle in between.
"""

import importlib.util
import pickle
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

EXAMPLE = Path(__file__).parents[1] / "examples" / "tabarena_model.py"
RAW = {"i": "int", "u": "int", "b": "bool", "f": "float", "M": "datetime"}


class AbstractModel:
    seed_name: str | None = None

    def __init__(self, problem_type: str, hyperparameters: dict[str, Any] | None = None) -> None:
        self.problem_type, self.model = problem_type, None
        self.params: dict[str, Any] = {}
        self.params_aux: dict[str, Any] = {}
        self._user_params = hyperparameters or {}

    def fit(self, **kwargs: Any) -> Any:
        assert self.problem_type in self.supported_problem_types()
        X, y = kwargs["X"], kwargs["y"]
        self.num_classes = kwargs.pop("num_classes", None) or y.nunique()
        self.params_aux = self._get_default_auxiliary_params()
        kinds = {name: RAW.get(X[name].dtype.kind, str(X[name].dtype)) for name in X}
        valid = self.params_aux["valid_raw_types"] or set(kinds.values())
        self.features = [name for name in X if kinds[name] in valid and X[name].nunique() > 1]
        self._set_default_params()
        self.params.update(self._user_params)
        cpus, gpus = self._get_default_resources()
        resources = {"num_cpus": cpus, "num_gpus": gpus}
        more = {"feature_metadata": None, "verbosity": 0, "X_unlabeled": None}
        return self._fit(**{**resources, **more, **kwargs}) or self

    def preprocess(self, X: pd.DataFrame, **_: Any) -> pd.DataFrame:
        return X[self.features]

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        return self._predict_proba(X=X).astype(np.float32)

    def _set_default_param_value(self, name: str, value: Any) -> None:
        self.params.setdefault(name, value)

    def _get_model_params(self) -> dict[str, Any]:
        return self.params.copy()

    def _get_default_auxiliary_params(self) -> dict[str, Any]:
        return {"valid_raw_types": None, "max_memory_usage_ratio": 1.0}


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    modules = {name: ModuleType(name) for name in ("autogluon", "autogluon.core")}
    modules["autogluon.core.models"] = models = ModuleType("autogluon.core.models")
    models.AbstractModel = AbstractModel
    spec = importlib.util.spec_from_file_location("tabarena_model", EXAMPLE)
    modules["tabarena_model"] = module = importlib.util.module_from_spec(spec)
    for name, each in modules.items():
        monkeypatch.setitem(sys.modules, name, each)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def frame() -> pd.DataFrame:
    random = np.random.default_rng(0)
    length = random.standard_normal(300)
    length[::9] = np.nan
    # AutoGluon numbers the values of its categories
    colour = pd.Categorical(random.integers(0, 4, 300), categories=[0, 1, 2, 3])
    words = random.choice(["a b", "c d"], 300)
    return pd.DataFrame({"length": length, "colour": colour, "one": 1, "words": words})


SHORT = {"effort": "quick", "max_epochs": 15}


def fitted(example: ModuleType, kind: str, frame: pd.DataFrame, y: Any, **more: Any) -> Any:
    return example.ProtoPINVModel(problem_type=kind, hyperparameters=SHORT).fit(
        X=frame, y=pd.Series(y, index=frame.index), **more
    )


def targets(frame: pd.DataFrame) -> np.ndarray:
    """A jump in a number, and categories in an order that their numbers do not have."""
    return (frame["length"].fillna(2) > 0).to_numpy() + np.isin(frame["colour"], (0, 2)) * 1


def test_two_classes_have_the_probability_of_the_second(
    example: ModuleType, frame: pd.DataFrame
) -> None:
    y = (targets(frame) > 1).astype(int)
    model = fitted(example, "binary", frame, y, X_val=frame[:9], y_val=pd.Series(y[:9]))
    again = pickle.loads(pickle.dumps(model))
    for each in (model, again):
        likely = each.predict_proba(frame)
        assert likely.shape == (300,)
        assert ((likely > 0.5) == y).mean() > 0.9
    assert model.features == ["length", "colour"]
    assert [column.kind for column in model.model.table_.columns] == ["number", "category"]
    shuffled = frame.sample(20, random_state=0)
    np.testing.assert_allclose(model.predict_proba(shuffled), likely[shuffled.index], rtol=1e-5)


def test_classes_that_a_fold_lacks_have_a_column(example: ModuleType, frame: pd.DataFrame) -> None:
    y = np.array([0, 2, 3])[targets(frame)]
    probabilities = fitted(example, "multiclass", frame, y, num_classes=5).predict_proba(frame)
    assert probabilities.shape == (300, 5)
    assert (probabilities[:, [1, 4]] == 0).all()
    assert (probabilities.argmax(axis=1) == y).mean() > 0.8


def test_numbers_are_predicted(example: ModuleType, frame: pd.DataFrame) -> None:
    y = 1000 + 100.0 * targets(frame)
    predictions = fitted(example, "regression", frame, y).predict_proba(frame)
    assert predictions.shape == (300,)
    assert np.corrcoef(predictions, y)[0, 1] > 0.9


def test_parameters_and_seeds_reach_the_estimator(example: ModuleType, frame: pd.DataFrame) -> None:
    kind = example.ProtoPINVModel
    assert (kind.ag_key, kind.ag_name, kind.seed_name) == ("PROTOPINV", "ProtoPINV", "random_state")
    model = kind(problem_type="regression", hyperparameters={**SHORT, "random_state": 7})
    estimator = model.fit(X=frame, y=pd.Series(targets(frame) * 1.0)).model
    assert (estimator.random_state, estimator.effort, estimator.device) == (7, "quick", "cpu")
    defaults = kind(problem_type="binary")
    defaults._set_default_params()
    assert defaults.params == {"effort": "balanced", "random_state": 0}


def test_weights_count(example: ModuleType, frame: pd.DataFrame) -> None:
    X = pd.DataFrame({"length": np.tile([0.0, 1.0], 150)})
    y = np.repeat([0, 1], 150)  # each value has both classes
    weight = pd.Series(np.where(y == 1, 9.0, 1.0))
    plain, weighted = (
        fitted(example, "binary", X, y, sample_weight=each).predict_proba(X).mean()
        for each in (None, weight)
    )
    assert plain == pytest.approx(0.5, abs=0.05)
    assert weighted > 0.75


def test_time_and_threads_are_limited(example: ModuleType, frame: pd.DataFrame) -> None:
    threads, seen = torch.get_num_threads(), []
    y = pd.Series((targets(frame) > 1).astype(int))
    model = example.ProtoPINVModel("binary", {"max_epochs": 100_000, "early_stopping": False})
    train = example.ProtoPINVClassifier.fit

    def fit(self: Any, *args: Any, **more: Any) -> Any:
        seen.append(torch.get_num_threads())
        return train(self, *args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example.ProtoPINVClassifier, "fit", fit)
        started = time.monotonic()
        model.fit(X=frame, y=y, time_limit=1.0, num_cpus=1)
    assert time.monotonic() - started < 6  # a hundred thousand epochs take minutes
    assert seen == [1]
    assert torch.get_num_threads() == threads
    assert ((model.predict_proba(frame) > 0.5) == y).mean() > 0.8
