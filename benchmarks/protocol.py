"""What every accuracy run shares: the paper's shape, and 6,000 rows held out once and for all."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from protopinv import ProtoPINVClassifier
from protopinv.data import load_data

DATASETS = ("mnist", "fashion-mnist")
HELD_OUT = 6_000
SHAPE: dict[str, Any] = {
    "n_prototypes": 150,
    "hidden_sizes": (512,),
    "n_components": 400,
    "max_epochs": 250,
    "scaling": "global",
}


@dataclass(frozen=True)
class Task:
    """An official training set, split into rows to train on and rows to choose on."""

    name: str
    X: NDArray[Any]
    y: NDArray[Any]
    X_held_out: NDArray[Any]
    y_held_out: NDArray[Any]


def load_task(name: str) -> Task:
    """The same stratified split every time."""
    data = load_data(name, split="train")
    kept, held_out = train_test_split(
        np.arange(len(data.X)), test_size=HELD_OUT, random_state=0, stratify=data.y
    )
    return Task(name, data.X[kept], data.y[kept], data.X[held_out], data.y[held_out])


def fitted(task: Task, parameters: dict[str, Any], seed: int, device: str) -> ProtoPINVClassifier:
    """The paper's shape with these parameters, trained on the kept rows."""
    model = ProtoPINVClassifier(**{**SHAPE, **parameters}, random_state=seed, device=device)
    return model.fit(task.X, task.y)
