"""Which knobs the ablations turn, one at a time, around the recipe of a data set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

from protopinv.bench.shape import Parameters

DECAYS = (0.0, 0.1, 1.0, 3.0)
INNER_RIDGES = (0.1, 1.0, 10.0)
PARTS = ("inputs", "hidden", "outputs")


@dataclass(frozen=True)
class Sweep:
    """``settings`` maps a label to what it changes in a recipe.

    ``keeps_curve`` keeps the validation score of every epoch, ``keeps_trace`` the conditioning and
    the allocation every few epochs.
    """

    title: str
    settings: Callable[[Parameters], Mapping[str, Parameters]]
    keeps_curve: bool = False
    keeps_trace: bool = False


def _each(name: str, values: tuple[object, ...]) -> Callable[[Parameters], dict[str, Parameters]]:
    return lambda _: {str(value): {name: value} for value in values}


def _learned_ridges(_: Parameters) -> dict[str, Parameters]:
    return {
        "both fixed": {"learn_ridge": False},
        "last learned": {"learn_ridge": (False, True)},
        "first learned": {"learn_ridge": (True, False)},
        "both learned": {"learn_ridge": True},
    }


def _schedules(recipe: Parameters) -> dict[str, Parameters]:
    settings: dict[str, Parameters] = {
        "cosine, warm-up 20": {"schedule": "cosine"},
        "cosine, no warm-up": {"warmup_epochs": 0},
    }
    for factor in (1.0, 0.5, 0.25, 0.1):
        constant = {"schedule": "constant", "warmup_epochs": 0, "lr": recipe["lr"] * factor}
        settings[f"constant, {factor:g} lr"] = constant
    return settings


def decay_label(inputs: float, hidden: float) -> str:
    """The name of a point of the grid."""
    return f"inputs {inputs:g}, hidden {hidden:g}"


def _decay_grid(_: Parameters) -> dict[str, Parameters]:
    return {
        decay_label(inputs, hidden): {"input_decay": inputs, "hidden_decay": hidden}
        for inputs, hidden in product(DECAYS, DECAYS)
    }


def _output_decays(_: Parameters) -> dict[str, Parameters]:
    settings: dict[str, Parameters] = {}
    for temperature, decay in product((0.0, 1.0), DECAYS):
        label = f"T {temperature:g}, decay {decay:g}"
        settings[label] = {"temperature": temperature, "output_decay": decay}
    return settings


def _projections(_: Parameters) -> dict[str, Parameters]:
    settings: dict[str, Parameters] = {
        f"{kind.upper()}-{n}": {"projection": kind, "n_components": n}
        for kind in ("pca", "pls")
        for n in (25, 50, 100, 200, 400)
    }
    return {**settings, "none": {"projection": "none"}}


def _depths(recipe: Parameters) -> dict[str, Parameters]:
    first, last = recipe["ridge"]
    settings: dict[str, Parameters] = {"512": {}}
    for widths in ((256, 256), (171, 171, 170), (512, 512), (512, 512, 512)):
        for inner in INNER_RIDGES:
            ridge = (first, *[inner] * (len(widths) - 1), last)
            label = f"{'-'.join(map(str, widths))}, inner ridge {inner:g}"
            settings[label] = {"hidden_sizes": widths, "ridge": ridge}
    return settings


def fixed_part(recipe: Parameters, *parts: str) -> Parameters:
    """A learning rate of zero for these parts of the bank."""
    ratios = zip(PARTS, recipe["lr_ratios"], strict=True)
    return {"lr_ratios": tuple(0.0 if name in parts else ratio for name, ratio in ratios)}


def _fixed_parts(recipe: Parameters) -> dict[str, Parameters]:
    return {
        "all trained": {},
        "hidden fixed": fixed_part(recipe, "hidden"),
        "inputs fixed": fixed_part(recipe, "inputs"),
        "outputs fixed": fixed_part(recipe, "outputs"),
        "inputs and hidden fixed": fixed_part(recipe, "inputs", "hidden"),
        "inputs and outputs fixed": fixed_part(recipe, "inputs", "outputs"),
    }


SWEEPS = {
    "prototypes": Sweep(
        "Prototypes", _each("n_prototypes", (25, 50, 100, 150, 200, 300, 400, 600))
    ),
    "width": Sweep(
        "Hidden width",
        lambda _: {str(h): {"hidden_sizes": (h,)} for h in (64, 128, 256, 512, 768, 1024)},
    ),
    "ridge": Sweep("Learned ridges", _learned_ridges),
    "schedule": Sweep("Schedule", _schedules, keeps_curve=True),
    "dropout": Sweep(
        "Dropout on the hidden targets", _each("hidden_dropout", (0.0, 0.01, 0.05, 0.1, 0.2))
    ),
    "decay": Sweep("Decay of inputs and hidden targets", _decay_grid),
    "output-decay": Sweep("Decay of outputs", _output_decays),
    "outputs": Sweep(
        "Initial outputs", _each("output_init", ("balanced", "normal")), keeps_curve=True
    ),
    "inputs": Sweep(
        "Initial inputs", _each("input_init", ("stratified", "normal")), keeps_curve=True
    ),
    "projection": Sweep("Projection", _projections),
    "temperature": Sweep(
        "Temperature of the labels", _each("temperature", (0.0, 0.1, 0.3, 1.0, 3.0))
    ),
    "depth": Sweep("Depth", _depths),
    "parts": Sweep("What is trained", _fixed_parts),
    "condition": Sweep(
        "Penalty on conditioning",
        _each("condition_penalty", (0.0, 1e-3, 1e-2, 0.1, 1.0)),
        keeps_trace=True,
    ),
}
