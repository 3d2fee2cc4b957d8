"""The shape and length of training that the paper measures with."""

from typing import Any

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
