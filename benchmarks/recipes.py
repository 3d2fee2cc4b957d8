"""Hyperparameters that were chosen once: the paper's shape, and what searches found for it."""

from typing import Any

from protopinv.train.config import TrainConfig
from protopinv.train.resolve import DataShape, resolved

Parameters = dict[str, Any]

# The paper's shape and length of training; one factor for all pixels.
SHAPE: Parameters = {
    "n_prototypes": 150,
    "hidden_sizes": (512,),
    "n_components": 400,
    "max_epochs": 250,
    "warmup_epochs": 20,
    "batch_size": None,
    "early_stopping": False,
    "scaling": "global",
    "learn_scale": False,
}
# The winners of the recorded search for the paper's table.
RECIPES: dict[str, Parameters] = {
    "mnist": {
        "ridge": (63.0, 0.07),
        "learn_ridge": False,
        "lr": 0.096,
        "lr_ratios": (0.78, 1.4, 1.3),
        "hidden_scale": 1.1,
        "hidden_decay": 1.0,
        "activation": "relu",
    },
    "fashion-mnist": {
        "ridge": (66.0, 0.79),
        "learn_ridge": False,
        "lr": 0.088,
        "lr_ratios": (1.2, 0.51, 1.5),
        "hidden_scale": 0.52,
        "hidden_decay": 1.0,
        "activation": "relu",
    },
}


# The images of a data set without those that are held out.
IMAGES = DataShape(54_000, 28 * 28, 10, one_unit=True)


def recipe_config(parameters: Parameters) -> TrainConfig:
    """The configuration of a recipe; what it leaves out is resolved for images, rows in float32."""
    return resolved(TrainConfig(**{"row_dtype": "same", **parameters}), IMAGES)
