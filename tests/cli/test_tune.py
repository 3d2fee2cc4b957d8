"""protopinv tune: what train understands, tune understands too."""

from pathlib import Path

import numpy as np
import polars as pl
from commands import answered
from typer.main import get_command

from protopinv import load
from protopinv.cli.app import app

# A checkpoint and a log are of one training; a search has a study.
OF_ONE_TRAINING = {"checkpoint", "checkpoint_every", "resume", "log", "tensorboard"}


def test_every_option_of_train_is_one_of_tune() -> None:
    train, tune = (
        {option.name for option in get_command(app).commands[name].params}
        for name in ("train", "tune")
    )
    assert train - tune == OF_ONE_TRAINING
    assert tune - train == {"trials", "timeout", "study"}


def test_weights_categories_and_fixed_hyperparameters(tmp_path: Path) -> None:
    rng = np.random.RandomState(0)
    zone, size = rng.randint(1, 9, 120), rng.normal(size=120)
    kind = np.where(zone % 2 == 1, "odd", "even")
    weight = np.ones(120)
    kind[::3], weight[::3] = "odd", 1e-9  # wrong, and of no weight
    rows = {"zone": zone, "size": size, "kind": kind, "weight": weight}
    pl.DataFrame(rows).write_csv(tmp_path / "rows.csv")
    answer = answered(
        *("tune", tmp_path / "rows.csv", "--target", "kind", "--weight", "weight"),
        *("--categorical", "zone", "--trials", 2, "-o", tmp_path / "m.safetensors"),
        *("--hidden-sizes", "9,8,7", "--activation", "gelu", "--max-epochs", "60"),
    )
    assert answer["validation_accuracy"] > 0.95
    assert not {"hidden_sizes", "activation", "max_epochs"} & {*answer}
    model = load(tmp_path / "m.safetensors")
    assert list(model.feature_names_in_) == ["zone", "size"]
    assert model.table_.columns[0].kind == "category"
    assert model.get_params()["hidden_sizes"] == (9, 8, 7)
