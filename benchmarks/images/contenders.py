"""Who meets on images: ours and an MLP, with the same ingredients and the same budget.

Both may have at most 138,500 trained numbers and the compute of 250 full-batch epochs: 220 passes
over the training rows leave room for the solves of mini-batches. Both may use input noise, label
smoothing, an average over steps, mini-batches, either optimiser, and in their rows the same stems
and the same distorted copies. The ranges of both were narrowed in about 40 earlier trials a row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from benchmarks.baselines.mlp import MLPBaselineClassifier
from benchmarks.paper.methods import Method, between
from benchmarks.recipes import Parameters
from benchmarks.tasks import CLASSES, SIDE
from protopinv.estimators import ProtoPINVClassifier

MOST_TRAINED = 138_500
MOST_PASSES = 220
COPIES = 9
QUICK: Parameters = {"max_epochs": 2, "warmup_epochs": 1, "image_copies": 0}


@dataclass(frozen=True)
class Row:
    """A row of the table: which networks may enter."""

    key: str
    title: str
    stem: bool = False
    copies: bool = False
    depths: tuple[int, ...] = (1,)


ROWS = (
    Row("one", "one hidden layer"),
    Row("deep", "two hidden layers", depths=(2,)),
    Row("stem", "with a stem", stem=True, depths=(1, 1, 2)),
    Row("one-copies", "one hidden layer, distorted copies", copies=True),
    Row("deep-copies", "two hidden layers, distorted copies", copies=True, depths=(2,)),
    Row("stem-copies", "with a stem, distorted copies", stem=True, copies=True, depths=(1, 1, 2)),
)


def contenders(row: Row, dataset: str) -> tuple[Method, Method]:
    """Ours and the MLP of a row; what is known of a data set beforehand is the same for both."""

    def method(key: str, title: str, build: Callable[..., object], draw: Draw) -> Method:
        fixed: Parameters = {"scaling": "global", "early_stopping": False}
        if not row.stem:  # images that are copied would get one by rule
            fixed["stem"] = "none"
        drawn = partial(draw, row=row, dataset=dataset)
        return Method(f"{row.key}/{key}", title, build, fixed, drawn, quick=QUICK)

    return (
        method("protopinv", "**protopinv**", ProtoPINVClassifier, draw_ours),
        method("mlp", "MLP", MLPBaselineClassifier, draw_mlp),
    )


Draw = Callable[..., Parameters]


def draw_ours(random: Random, *, row: Row, dataset: str) -> Parameters:
    """A bank: as many prototypes as the budget allows for the widths drawn."""
    digits = dataset == "mnist"
    widths: tuple[int, ...]
    if random.choice(row.depths) == 2:
        widths = random.choice([(512, 128), (512, 256), (700, 350)])
    else:
        widths = random.choice([(700,), (1000,)] if row.stem else [(1000,), (1400,)])
    d = 400 if row.stem else 250
    batch = 2000 if row.stem or row.copies else 1000
    rate = {1000: 0.024, 2000: 0.035}[batch]
    optimizer = random.choice(["adam", "muon"])
    faster = (0.5, 1.0) if row.stem else (1.0, 2.0)
    if optimizer == "muon":
        faster = (0.6, 2.4) if digits else (1.2, 4.0)
    inner = [between(random, 3, 15) for _ in widths[1:]]
    return {
        "n_prototypes": MOST_TRAINED // (d + sum(widths) + CLASSES),
        "hidden_sizes": widths,
        "n_components": d,
        "batch_size": batch,
        **_epochs(random, row),
        "optimizer": optimizer,
        "lr": rate * between(random, *faster),
        "lr_ratios": (
            between(random, 1.2, 2.0),
            between(random, 0.7, 1.3),
            between(random, 1.0, 1.8),
        ),
        "ridge": (between(random, 8, 30), *inner, between(random, 0.6, 2.0)),
        "hidden_scale": between(random, 0.4, 0.75),
        "averaging": 0.997,
        "activation": random.choice(["gelu", "silu"] if row.stem else ["gelu", "relu"]),
        "label_smoothing": random.choice(
            [0.0, 0.05] if digits and not (row.stem or row.copies) else [0.05, 0.1, 0.15]
        ),
        **_ingredients(random, row, dataset),
    }


def draw_mlp(random: Random, *, row: Row, dataset: str) -> Parameters:
    """Weights: as wide a first layer as the budget allows for what else is drawn."""
    digits = dataset == "mnist"
    d = random.choice([400, 250] if row.stem else [100, 150] if digits else [150, 250])
    if random.choice(row.depths) == 1:
        widths: tuple[int, ...] = (MOST_TRAINED // (d + 1 + CLASSES + 1),)
    else:
        second = random.choice([64, 128, 192])
        rest = MOST_TRAINED - (second + 1) * CLASSES - second
        widths = (rest // (d + 1 + second), second)
    batch = random.choice([1000, 2000] if row.copies else [256, 512])
    optimizer = random.choice(["adam", "muon"])
    faster = (0.6, 1.6) if optimizer == "adam" else (1.0, 5.0)
    return {
        "hidden_sizes": widths,
        "n_components": d,
        "batch_size": batch,
        **_epochs(random, row),
        "optimizer": optimizer,
        "lr": 0.0045 * (batch / 512) ** 0.5 * between(random, *faster),
        "weight_decay": random.choice([0.0, between(random, 0.05, 0.4)]),
        "averaging": random.choice([0.0, 0.99, 0.999]),
        "activation": random.choice(["relu", "gelu", "silu"]),
        "label_smoothing": random.choice([0.0, 0.05, 0.1]),
        **_ingredients(random, row, dataset),
    }


def _epochs(random: Random, row: Row) -> Parameters:
    """Passes over the rows; with nine copies next to each image, ten times as many are passed."""
    if row.copies:
        epochs = random.choice([8, 12] if row.stem else [12, 22])
    else:
        epochs = random.choice([40, 60] if row.stem else [60, 120])
    return {"max_epochs": epochs, "warmup_epochs": max(1, epochs // 12)}


def _ingredients(random: Random, row: Row, dataset: str) -> Parameters:
    """What both draw from the same ranges."""
    digits = dataset == "mnist"
    parameters: Parameters = {"input_noise": _noise(random, row, digits=digits)}
    if row.stem or row.copies:
        parameters |= {"image_shape": (SIDE, SIDE), "stem": "none"}
    if row.copies:
        parameters |= {
            "image_copies": COPIES,
            "copy_shift": between(random, 0.5, 1.1),
            "copy_bend": between(random, 0.8, 1.5) if digits else random.choice([0.0, 0.3]),
            "copy_mirror": not digits,  # a mirrored shoe is a shoe
        }
    if row.stem and digits:
        kind, filters = random.choice([("pca", (16, 48)), ("kmeans", (24, 64))])
        parameters |= {"stem": kind, "stem_filters": filters, "stem_pool": 4}
        parameters["stem_patch"] = random.choice([5, 7])
    elif row.stem:
        parameters |= {"stem": "pca", "stem_filters": 25, "stem_patch": 5}
        parameters["stem_pool"] = random.choice([5, 6])
    return parameters


def _noise(random: Random, row: Row, *, digits: bool) -> float:
    if row.copies:
        return between(random, 0.15, 0.4)
    if row.stem:
        return between(random, 0.5, 0.9) if digits else between(random, 0.18, 0.32)
    return between(random, 0.65, 1.0) if digits else between(random, 0.36, 0.55)
