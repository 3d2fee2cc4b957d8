import json
from dataclasses import asdict
from fractions import Fraction

import numpy as np
import pytest

from protopinv.errors import ConfigError
from protopinv.train.config import TrainConfig

BAD = [
    ("n_prototypes", 0),
    ("n_prototypes", 2.5),
    ("n_prototypes", True),
    ("hidden_sizes", ()),
    ("hidden_sizes", (4, 0)),
    ("hidden_sizes", "512"),
    ("activation", "swish"),
    ("activation", None),
    ("ridge", 0),
    ("ridge", float("nan")),
    ("ridge", 1e39),
    ("ridge", 1e-39),
    ("weight_penalty", 1e300),
    ("temperature", 1e-50),
    ("n_prototypes", 10**40),
    ("learn_ridge", "yes"),
    ("weight_penalty", -1),
    ("temperature", -0.1),
    ("input_init", "zeros"),
    ("hidden_scale", 0),
    ("scaling", "minmax"),
    ("projection", "umap"),
    ("n_components", 0),
    ("max_epochs", 0),
    ("batch_size", 0),
    ("lr", 0),
    ("lr", float("inf")),
    ("lr_ratios", (1.0, 1.0)),
    ("schedule", "step"),
    ("warmup_epochs", -1),
    ("input_decay", -1),
    ("hidden_decay", "a"),
    ("output_decay", -1),
    ("hidden_dropout", 1.0),
    ("input_noise", -1),
    ("label_smoothing", 1.0),
    ("normalize_inputs", 1),
    ("validation_fraction", 1.0),
    ("validation_fraction", "some"),
    ("early_stopping", "sometimes"),
    ("n_iter_no_change", 0),
    ("solver", "qr"),
    ("dtype", "float16"),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_value_outside_its_range_gives_rule_value_and_way_out(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} must be .*\. Got .*\. Change it, or leave it"):
        TrainConfig(**{name: value})


def test_every_field_has_a_default_and_a_help_text() -> None:
    for item in TrainConfig.__dataclass_fields__.values():
        assert hasattr(TrainConfig, item.name)
        assert item.metadata["help"].endswith(".")


def test_one_value_serves_every_layer_and_several_must_fit() -> None:
    config = TrainConfig(hidden_sizes=(8, 4), ridge=2.0, learn_ridge=(False, True, True))
    assert config.ridges == (2.0, 2.0, 2.0)
    assert config.learned_ridges == (False, True, True)
    assert TrainConfig(hidden_sizes=16, ridge=(1, 2)).widths == (16,)
    with pytest.raises(ConfigError, match=r"ridge must be one, or at most one for each of the 2 "):
        TrainConfig(hidden_sizes=16, ridge=(1.0, 2.0, 3.0))


@pytest.mark.parametrize("hidden_sizes", [8, (8, 4), (8, 6, 4)], ids=str)
def test_the_last_of_several_values_holds_for_all_layers_after_it(hidden_sizes) -> None:
    config = TrainConfig(hidden_sizes=hidden_sizes, ridge=(63, 0.07), learn_ridge=(False, True))
    n_layers = len(config.widths) + 1
    assert config.ridges == (63.0, *[0.07] * (n_layers - 1))
    assert config.learned_ridges == (False, *[True] * (n_layers - 1))


def test_numpy_numbers_are_numbers() -> None:
    config = TrainConfig(
        n_prototypes=np.int64(5),
        lr=Fraction(1, 10),
        hidden_sizes=(np.int64(3),),
        ridge=np.ones(2),
        lr_ratios=[np.float32(1), 2, 3],
    )
    json.dumps(asdict(config))
    assert config.lr == 0.1
    assert config.widths == (3,)
    assert TrainConfig(early_stopping=np.True_).held_out == 0.1


def test_rows_are_held_out_only_where_asked() -> None:
    assert TrainConfig().held_out == 0
    assert TrainConfig(early_stopping=True).held_out == 0.1
    assert TrainConfig(validation_fraction=0.2).held_out == 0.2
    with pytest.raises(ConfigError, match="needs rows to validate on"):
        TrainConfig(early_stopping=True, validation_fraction=0)
