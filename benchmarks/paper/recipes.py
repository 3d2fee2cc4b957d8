"""Hyperparameters of the paper's shape, as the recorded search for its table chose them."""

from protopinv.bench.shape import Parameters

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
