"""A fit that begins where the last one ended: what it needs, and what it keeps."""

from typing import Any

from protopinv.bank import Bank
from protopinv.errors import ConfigError, DataError
from protopinv.estimators.trained import BankEstimator
from protopinv.train.config import TrainConfig
from protopinv.train.model import Start
from protopinv.train.settle import is_auto
from protopinv.train.source import Source

# What the banks of a warm start were trained for.
KIND = ("activation", "ridge", "lr")


def start_of(last: BankEstimator, source: Source, config: TrainConfig) -> Start:
    """What to go on from; raises where rows, targets or parameters ask for something else."""
    bank = last._bank()
    if source.objective.describe().keys() != last.objective_.describe().keys() or (
        source.objective.n_outputs != last.objective_.n_outputs
    ):
        raise DataError(
            f"A warm start needs the targets of the last fit: {last.objective_.n_outputs} "
            f"outputs. y asks for {source.objective.n_outputs}. Set warm_start=False."
        )
    asked = {
        "n_prototypes": config.n_prototypes,
        "hidden_sizes": config.widths,
        "n_members": config.n_members,
        "learn_scale": config.learn_scale,
    }
    for name, there in shape_of(bank).items():
        if not is_auto(getattr(last, name)) and asked[name] != there:
            raise ConfigError(
                f"A warm start keeps the shape of the last fit, {name}={there!r}. Got "
                f"{asked[name]!r}. Set warm_start=False."
            )
    return Start(bank, last.front_, last.features_)


def shape_of(bank: Bank) -> dict[str, Any]:
    """The parameters that a bank has been made by."""
    return {
        "n_prototypes": bank.n_prototypes,
        "hidden_sizes": tuple(H.shape[-1] for H in bank.hidden),
        "n_members": bank.n_members,
        "learn_scale": bank.scale is not None,
    }


def going_on(given: dict[str, Any], bank: Bank, last: TrainConfig) -> dict[str, Any]:
    """What a warm start settles: the shape and kind of the banks there are, and no folds."""
    kept = {name: getattr(last, name) for name in KIND if is_auto(given[name])}
    held_out = given["early_stopping"] is True
    return {**given, **kept, **shape_of(bank), "early_stopping": held_out}
