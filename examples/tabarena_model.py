"""A model of AutoGluon's interface, for a TabularPredictor and for TabArena.

Put this file next to your script and import the class from it: AutoGluon and TabArena load models
from files by the name of their module, so it cannot be in the script itself.

    from tabarena_model import ProtoPINVModel
    TabularPredictor(label="target").fit(frame, hyperparameters={ProtoPINVModel: {}})

Hyperparameters are those of the estimators, as in ``{ProtoPINVModel: {"effort": "quick"}}``.
"""

import time
from contextlib import contextmanager

import joblib
import numpy as np
import torch

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor

try:
    from autogluon.core.models import AbstractModel
except ImportError:  # the class can be read without AutoGluon, and not be used
    AbstractModel = object

# Of a time limit; the rest is for calibration and the last solve.
SHARE_TO_TRAIN = 0.9


class ProtoPINVModel(AbstractModel):
    """A ProtoPINVClassifier or ProtoPINVRegressor, by the type of the problem.

    It gets numbers and categories with their gaps. Rows for validation are not needed: epochs,
    candidates and calibration are chosen by cross-validation on the rows of training.
    """

    ag_key = "PROTOPINV"
    ag_name = "ProtoPINV"
    seed_name = "random_state"  # where AutoGluon puts the seed of each fold

    def _fit(
        self,
        X,
        y,
        X_val=None,  # noqa: ARG002
        y_val=None,  # noqa: ARG002
        time_limit=None,
        sample_weight=None,
        num_cpus=None,
        num_gpus=0,
        **kwargs,  # noqa: ARG002
    ):
        started = time.monotonic()
        estimator = ProtoPINVRegressor if self.problem_type == "regression" else ProtoPINVClassifier
        device = "cuda" if num_gpus else "cpu"
        model = estimator(**{"device": device, **self._get_model_params()})
        X = self.preprocess(X, y=y, is_train=True)

        def is_late(_):
            return time.monotonic() - started > SHARE_TO_TRAIN * time_limit

        observer = None if time_limit is None else is_late
        with _threads(num_cpus):
            model.fit(X, np.asarray(y), sample_weight, observer=observer)
        self.model = model

    def _predict_proba(self, X, **kwargs):
        X = self.preprocess(X, **kwargs)
        if self.problem_type == "regression":
            return self.model.predict(X)
        probabilities = self.model.predict_proba(X)
        if self.problem_type == "binary":
            return probabilities[:, 1]
        # Classes are 0, 1, ...; one may be missing from the rows of a fold.
        every = np.zeros((len(X), self.num_classes))
        every[:, self.model.classes_.astype(int)] = probabilities
        return every

    def _set_default_params(self):
        for name, value in {"effort": "balanced", "random_state": 0}.items():
            self._set_default_param_value(name, value)

    def _get_default_auxiliary_params(self):
        types = {"valid_raw_types": ["int", "float", "category"]}
        return {**super()._get_default_auxiliary_params(), **types}

    def _get_default_resources(self):
        """Processors and GPUs: small models are trained faster on processors."""
        return joblib.cpu_count(only_physical_cores=True), 0

    @classmethod
    def supported_problem_types(cls):
        """Two classes, several, or a number."""
        return ["binary", "multiclass", "regression"]

    def _more_tags(self):
        return {"can_refit_full": True}  # no rows for validation were used


@contextmanager
def _threads(number):
    """Train with so many threads of torch; None leaves them as they are."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if number is None else max(1, int(number)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def experiments(n_random=0):
    """Our defaults, and some random settings, as experiments for TabArena's runners."""
    from autogluon.common.space import Categorical
    from tabarena.utils.config_utils import ConfigGenerator

    generator = ConfigGenerator(
        model_cls=ProtoPINVModel,
        manual_configs=[{}],
        search_space={"effort": Categorical("quick", "balanced", "best")},
    )
    return generator.generate_all_bag_experiments(num_random_configs=n_random)


if __name__ == "__main__" and AbstractModel is object:
    print("The class ProtoPINVModel needs AutoGluon. Run: pip install autogluon.tabular")
