"""The rows of the paper's table, and those it lacks: what is built, and what is searched."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from benchmarks.baselines.mlp import MLPBaselineClassifier
from benchmarks.baselines.random_hidden import RandomHiddenClassifier
from benchmarks.recipes import SHAPE, Parameters
from benchmarks.training import raise_if_interrupted
from protopinv.estimators import ProtoPINVClassifier
from protopinv.estimators.parameters import nested

# The smallest of what is asked for, to see in a minute that everything runs.
QUICK_EPOCHS: Parameters = {"max_epochs": 15, "warmup_epochs": 2}


@dataclass(frozen=True)
class Method:
    """A row of the table.

    ``share`` is the part of the search's budget it gets: closed forms have two or three knobs.
    """

    key: str
    title: str
    build: Callable[..., Any]
    fixed: Parameters
    draw: Callable[[Random], Parameters] | None = None
    share: float = 1.0
    quick: Parameters = field(default_factory=dict)
    on_host: bool = False
    seeds: int | None = None
    paper: Mapping[str, float] = field(default_factory=dict)

    @property
    def joins(self) -> bool:
        """Whether several trainings can be one population: those of one bank each."""
        return self.build is ProtoPINVClassifier and self.fixed.get("n_members", 1) == 1

    def fit(self, rows: Any, parameters: Parameters, *, seed: int, device: str, quick: bool) -> Any:
        """An estimator with these parameters, trained on the rows."""
        chosen = self.parameters(parameters, quick=quick)
        if not self.on_host:
            chosen["device"] = device
        estimator = self.estimator(chosen, random_state=seed)
        with warnings.catch_warnings():
            if quick:  # nothing converges in a smoke run
                warnings.simplefilter("ignore", ConvergenceWarning)
            estimator.fit(rows.X, rows.y)
        if hasattr(estimator, "history_"):
            raise_if_interrupted(estimator.history_)
        return estimator

    def estimator(self, parameters: Parameters, **others: Any) -> Any:
        """Not fitted; a stem and copies of images are given here as in TrainConfig."""
        return self.build(**nested(parameters), **others)

    def parameters(self, chosen: Parameters, *, quick: bool) -> Parameters:
        """All that an estimator is given."""
        return {**self.fixed, **chosen, **(self.quick if quick else {})}


def between(random: Random, low: float, high: float) -> float:
    """A log-uniform draw, rounded to two digits."""
    return float(f"{low * (high / low) ** random.random():.2g}")


def draw_ours(random: Random, *, noise: bool = False) -> Parameters:
    """The paper's own knobs, and with ``noise`` input noise and label smoothing besides."""
    parameters: Parameters = {
        "ridge": (
            between(random, 0.5, 50) if noise else between(random, 20, 300),
            between(random, 0.05, 10),
        ),
        "learn_ridge": random.choice([False, (False, True)]),
        "lr": between(random, 0.025, 0.12),
        "lr_ratios": (
            between(random, 0.6, 2),
            between(random, 0.5, 1.8),
            between(random, 0.5, 2.3),
        ),
        "hidden_scale": between(random, 0.3, 1.2),
        "hidden_decay": random.choice([0.0, 0.1, 1.0]),
        "activation": random.choice(["relu", "relu", "silu", "gelu"]),
    }
    return parameters | (_draw_noise(random) if noise else {})


def draw_members(random: Random) -> Parameters:
    """The same with input noise, the prototypes dealt out to banks whose mean is predicted."""
    members = random.choice([2, 3, 5])
    drawn = draw_ours(random, noise=True)
    return drawn | {"n_members": members, "n_prototypes": SHAPE["n_prototypes"] // members}


def draw_mlp(random: Random, *, noise: bool = False) -> Parameters:
    """Full batch for 250 epochs, or mini-batches for 30 or 60."""
    batch = random.choice([None, 256, 512, 1024, 2048])
    epochs = 250 if batch is None else random.choice([30, 60])
    parameters: Parameters = {
        "batch_size": batch,
        "max_epochs": epochs,
        "warmup_epochs": 20 if batch is None else 3,
        "lr": between(random, 0.003, 0.05) if batch is None else between(random, 5e-4, 1e-2),
        "weight_decay": random.choice([0.0, between(random, 1e-3, 1.0)]),
        "activation": random.choice(["relu", "relu", "silu", "gelu"]),
    }
    return parameters | (_draw_noise(random) if noise else {})


def draw_elm(random: Random) -> Parameters:
    """Scale and kind of the random units, and the ridge."""
    return {
        "activation": random.choice(["relu", "gelu", "tanh", "sigmoid"]),
        "weight_scale": between(random, 0.1, 3),
        "ridge": between(random, 0.03, 300),
    }


def draw_random_features(random: Random) -> Parameters:
    """Width of the kernel, and the ridge."""
    return {"weight_scale": between(random, 0.2, 3), "ridge": between(random, 0.01, 100)}


def _draw_noise(random: Random) -> Parameters:
    return {
        "input_noise": between(random, 0.3, 1.0),
        "label_smoothing": random.choice([0.0, 0.1]),
    }


def _noisy(
    draw: Callable[..., Parameters],
) -> Callable[[Random], Parameters]:
    return lambda random: draw(random, noise=True)


def _scikit_mlp(**parameters: Any) -> Any:
    from sklearn.neural_network import MLPClassifier

    return _on_unit_pixels(MLPClassifier(**parameters))


def _logistic_regression(*, random_state: int, **parameters: Any) -> Any:
    from sklearn.linear_model import LogisticRegression

    return _on_unit_pixels(LogisticRegression(random_state=random_state, **parameters))


def _on_unit_pixels(classifier: Any) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    return make_pipeline(FunctionTransformer(_unit_pixels), classifier)


def _unit_pixels(X: Any) -> Any:
    return (X / 255).astype("float32")


_PIXELS: Parameters = {"hidden_sizes": (165,), "projection": "none", "scaling": "global"}
_MATCHED: Parameters = {"hidden_sizes": (336,), "n_components": 400, "scaling": "global"}
CLOSED_FORM_SHARE = 0.3
MEMBERS_SHARE = 0.5

METHODS = (
    Method(
        "elm-10200",
        "ELM, 10,200 units (102k trained)",
        RandomHiddenClassifier,
        {"n_hidden": 10_200},
        draw_elm,
        quick={"n_hidden": 500},
        paper={"mnist": 96.2, "fashion-mnist": 88.3},
        share=CLOSED_FORM_SHARE,
    ),
    Method(
        "elm-128",
        "ELM, 128 units (102k in all)",
        RandomHiddenClassifier,
        {"n_hidden": 128},
        draw_elm,
        paper={"mnist": 96.2, "fashion-mnist": 88.3},
        share=CLOSED_FORM_SHARE,
    ),
    Method(
        "random-features-10200",
        "Random Fourier features + ridge, 10,200",
        RandomHiddenClassifier,
        {"n_hidden": 10_200, "activation": "cos"},
        draw_random_features,
        quick={"n_hidden": 500},
        paper={"mnist": 95.2, "fashion-mnist": 87.3},
        share=CLOSED_FORM_SHARE,
    ),
    Method(
        "random-features-128",
        "Random Fourier features + ridge, 128",
        RandomHiddenClassifier,
        {"n_hidden": 128, "activation": "cos"},
        draw_random_features,
        paper={"mnist": 95.2, "fashion-mnist": 87.3},
        share=CLOSED_FORM_SHARE,
    ),
    Method(
        "random-linear-10200",
        "Random *linear* features + ridge, 10,200",
        RandomHiddenClassifier,
        {"n_hidden": 10_200, "activation": "identity"},
        draw_random_features,
        quick={"n_hidden": 500},
        paper={"mnist": 95.2, "fashion-mnist": 87.3},
        share=CLOSED_FORM_SHARE,
    ),
    Method(
        "mlp-165",
        "MLP, 165 hidden, on pixels",
        MLPBaselineClassifier,
        _PIXELS,
        draw_mlp,
        quick=QUICK_EPOCHS,
        paper={"mnist": 98.0, "fashion-mnist": 89.0},
    ),
    Method(
        "mlp-336",
        "MLP, 336 hidden, on PCA-400",
        MLPBaselineClassifier,
        _MATCHED,
        draw_mlp,
        quick=QUICK_EPOCHS,
    ),
    Method(
        "mlp-336-noise",
        "MLP, 336 hidden, on PCA-400, input noise",
        MLPBaselineClassifier,
        _MATCHED,
        _noisy(draw_mlp),
        quick=QUICK_EPOCHS,
    ),
    Method(
        "protopinv",
        "**protopinv**, the paper's ingredients",
        ProtoPINVClassifier,
        SHAPE,
        draw_ours,
        quick=QUICK_EPOCHS,
        paper={"mnist": 97.8, "fashion-mnist": 89.3},
    ),
    Method(
        "protopinv-noise",
        "**protopinv**, with input noise",
        ProtoPINVClassifier,
        SHAPE,
        _noisy(draw_ours),
        quick=QUICK_EPOCHS,
    ),
    Method(
        "protopinv-members",
        "**protopinv**, with input noise, a mean of 2 to 5 banks",
        ProtoPINVClassifier,
        {**SHAPE, "n_members": 2},
        draw_members,
        share=MEMBERS_SHARE,
        quick=QUICK_EPOCHS,
    ),
    Method(
        "scikit-mlp",
        "scikit-learn MLPClassifier((165,)), defaults",
        _scikit_mlp,
        {"hidden_layer_sizes": (165,)},
        quick={"max_iter": 10},
        on_host=True,
    ),
    Method(
        "logistic-regression",
        "scikit-learn LogisticRegression, defaults, 300 iterations",
        _logistic_regression,
        {"max_iter": 300},
        quick={"max_iter": 30},
        on_host=True,
        seeds=1,
    ),
)


def methods_on(device: str) -> tuple[str, ...]:
    """The rows that are measured on a device: on a GPU those that can use it."""
    return tuple(method.key for method in METHODS if device == "cpu" or not method.on_host)
