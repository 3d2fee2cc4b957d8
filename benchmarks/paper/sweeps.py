"""Which settings the ablations compare, around the recipe of a data set.

A setting changes the recipe and may leave something to be chosen: each of its ``choices`` is tried
on the split that chooses, and the best is judged on the others. Where a claim compares settings
that want another rate or ridge (another size, a part that is not trained), both are chosen again
for every setting, the recipe's own among them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from benchmarks.recipes import Parameters

RATES = (0.5, 1.0, 2.0)
RIDGES = (0.2, 1.0, 5.0)
DECAYS = (0.0, 0.1, 1.0, 3.0)
OUTPUT_DECAYS = (0.03, 0.1, 0.3)
CONSTANT_RATES = (1.0, 0.5, 0.25, 0.1)
OFF_BY_TEN = (1.0, 0.1, 10.0)
DEPTHS = (1, 2, 3, 4, 6, 8)
DEEP_WIDTH = 256
INNER_RIDGE = 3.0
PARTS = ("inputs", "hidden", "outputs")


@dataclass(frozen=True)
class Setting:
    """What it changes in a recipe, and what is then chosen among."""

    changes: Parameters
    choices: tuple[Parameters, ...] = ()


Settings = Mapping[str, Setting]


@dataclass(frozen=True)
class Sweep:
    """``settings`` makes the settings of a recipe by label; the first is what others are held to.

    ``curves`` keeps the held-out accuracy of every epoch, ``trace`` the conditioning and the
    allocation every few epochs, ``gaps`` what is said to predict the generalisation gap of every
    run, ``layers`` how far each layer misses its targets.
    """

    title: str
    settings: Callable[[Parameters], Settings]
    curves: bool = False
    trace: bool = False
    gaps: bool = False
    layers: bool = False

    @property
    def keeps(self) -> tuple[str, ...]:
        """What its runs keep."""
        return tuple(name for name in ("curves", "trace", "gaps", "layers") if getattr(self, name))


def _each(name: str, values: tuple[Any, ...]) -> Callable[[Parameters], Settings]:
    return lambda _: {str(value): Setting({name: value}) for value in values}


def _retuned(changes: Parameters, recipe: Parameters) -> Setting:
    """Rate and ridges around those of the recipe, or around those that the changes bring along."""
    base = {**recipe, **changes}
    grid = (
        {"lr": base["lr"] * rate, "ridge": tuple(ridge * factor for ridge in base["ridge"])}
        for rate, factor in product(RATES, RIDGES)
    )
    return Setting(changes, tuple(grid))


def _all_retuned(
    changes: Callable[[Parameters], Mapping[str, Parameters]],
) -> Callable[[Parameters], Settings]:
    return lambda recipe: {
        label: _retuned(change, recipe) for label, change in changes(recipe).items()
    }


def _prototypes(_: Parameters) -> dict[str, Parameters]:
    return {str(p): {"n_prototypes": p} for p in (150, 25, 50, 100, 300, 600)}


def _widths(_: Parameters) -> dict[str, Parameters]:
    return {str(h): {"hidden_sizes": (h,)} for h in (512, 64, 128, 256, 768, 1024)}


def _few(recipe: Parameters) -> Settings:
    return {
        f"{p}, ridge x {factor:g}": Setting(
            {"n_prototypes": p, "ridge": tuple(ridge * factor for ridge in recipe["ridge"])}
        )
        for p, factor in product((150, 25, 10), OFF_BY_TEN)
    }


def _learned_ridges(_: Parameters) -> dict[str, Parameters]:
    return {
        "both fixed": {"learn_ridge": False},
        "last learned": {"learn_ridge": (False, True)},
        "first learned": {"learn_ridge": (True, False)},
        "both learned": {"learn_ridge": True},
    }


def _schedules(recipe: Parameters) -> Settings:
    constant: Parameters = {"schedule": "constant", "warmup_epochs": 0}
    rates = tuple({"lr": recipe["lr"] * factor} for factor in CONSTANT_RATES)
    return {
        "cosine, warm-up 20": Setting({}),
        "cosine, no warm-up": Setting({"warmup_epochs": 0}),
        "constant, best of four rates": Setting(constant, rates),
    }


def _decays(_: Parameters) -> Settings:
    names = ("input_decay", "hidden_decay")
    joint = tuple(dict.fromkeys(names, decay) for decay in DECAYS)
    apart = tuple(dict(zip(names, pair, strict=True)) for pair in product(DECAYS, DECAYS))
    return {
        "one decay, best of 4": Setting({}, joint),
        "two decays, best of 16": Setting({}, apart),
    }


def _output_decays(_: Parameters) -> Settings:
    some = tuple({"output_decay": decay} for decay in OUTPUT_DECAYS)
    return {
        f"T = {temperature:g}, {name}": Setting({"temperature": temperature}, choices)
        for temperature in (0.0, 1.0)
        for name, choices in (("no decay", ()), ("decay, best of 3", some))
    }


def _projections(_: Parameters) -> Settings:
    kinds = (("pca", 400), ("pca", 50), ("pca", 100), ("pls", 100), ("pls", 400))
    settings = {
        f"{kind.upper()}-{n}": Setting({"projection": kind, "n_components": n}) for kind, n in kinds
    }
    return {**settings, "none": Setting({"projection": "none"})}


def depth_label(depth: int) -> str:
    """How a stack of so many layers is called."""
    return f"{depth} x {DEEP_WIDTH}"


def _depths(recipe: Parameters) -> dict[str, Parameters]:
    first, last = recipe["ridge"]
    return {
        depth_label(depth): {
            "hidden_sizes": (DEEP_WIDTH,) * depth,
            "ridge": (first, *[INNER_RIDGE] * (depth - 1), last),
        }
        for depth in DEPTHS
    }


def _parts(recipe: Parameters) -> dict[str, Parameters]:
    """A learning rate of zero for one part of the bank."""
    changes: dict[str, Parameters] = {"all trained": {}}
    for fixed in PARTS:
        ratios = zip(PARTS, recipe["lr_ratios"], strict=True)
        changed = tuple(0.0 if name == fixed else ratio for name, ratio in ratios)
        changes[f"{fixed} fixed"] = {"lr_ratios": changed}
    return changes


SWEEPS = {
    "prototypes": Sweep("Prototypes, each retuned", _all_retuned(_prototypes)),
    "few": Sweep("Few prototypes, and a ridge that is off by ten", _few),
    "width": Sweep("Hidden width, each retuned", _all_retuned(_widths)),
    "ridge": Sweep("Learned ridges, each retuned", _all_retuned(_learned_ridges)),
    "schedule": Sweep("Schedule", _schedules, curves=True),
    "dropout": Sweep(
        "Dropout on the hidden targets", _each("hidden_dropout", (0.0, 0.01, 0.05, 0.1, 0.2))
    ),
    "decay": Sweep("Decay of inputs and hidden targets", _decays),
    "output-decay": Sweep("Decay of outputs", _output_decays),
    "outputs": Sweep("Initial outputs", _each("output_init", ("balanced", "normal"))),
    "inputs": Sweep("Initial inputs", _each("input_init", ("stratified", "normal"))),
    "projection": Sweep("Projection", _projections),
    "temperature": Sweep(
        "Temperature of the labels, each retuned",
        _all_retuned(lambda _: {str(T): {"temperature": T} for T in (0.0, 0.1, 1.0, 3.0)}),
    ),
    "depth": Sweep("Depth, each retuned", _all_retuned(_depths), layers=True),
    "parts": Sweep("What is trained, each retuned", _all_retuned(_parts)),
    "penalty": Sweep(
        "Penalty on the weights (λ₃)", _each("weight_penalty", (0.0, 1e-7, 1e-6, 1e-5, 1e-4))
    ),
    "condition": Sweep(
        "Penalty on conditioning",
        _each("condition_penalty", (0.0, 0.01, 0.1, 1.0)),
        trace=True,
        gaps=True,
    ),
    "normalise": Sweep(
        "Prototype inputs scaled to one size", _each("normalize_inputs", (False, True))
    ),
}
