"""What comes one after another: classes, turned images, a concept that changes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import affine_grid, grid_sample

from benchmarks.tasks import CLASSES, Rows, load_task

TASKS = 5
# Stages of a domain that shifts, in degrees.
DEGREES = (0, 20, 40, 60, 80)
# A stream: batches, rows of each, features, and the batches at which the concept changes.
BATCHES, BATCH_ROWS, FEATURES, CHANGES = 60, 200, 10, (20, 40)
NOISE = 0.05


@dataclass(frozen=True)
class Sequel:
    """Rows that come one after another, and rows to score at the end: the stages of the first.

    ``seen[t]`` are the rows that a model could know after stage t.
    """

    stages: Sequence[Rows]
    seen: Sequence[Rows]

    def map(self, change: Callable[[Rows], Rows]) -> "Sequel":
        """Every stage with its rows changed."""
        return Sequel([*map(change, self.stages)], [*map(change, self.seen)])


def class_order(seed: int) -> list[int]:
    """0 to 9 for the first seed, and another order for every other."""
    if seed == 0:
        return list(range(CLASSES))
    order: list[int] = np.random.default_rng(seed).permutation(CLASSES).tolist()
    return order


def by_classes(dataset: str, seed: int, *, held_out: bool, quick: bool) -> Sequel:
    """Two classes at a time; scored on the test set, or on rows held out for choices."""
    task = load_task(dataset, quick=quick)
    train, judged = (task.train, task.held_out) if held_out else (task.all_rows, task.test)
    return by_labels(train, judged, list(np.array(class_order(seed)).reshape(TASKS, -1)))


def by_labels(train: Rows, judged: Rows, order: Sequence[NDArray[Any]]) -> Sequel:
    """Rows of these labels in each stage, scored on those of all labels so far."""
    stages = [_of(train, labels) for labels in order]
    seen = [_of(judged, np.concatenate(order[: t + 1])) for t in range(len(order))]
    return Sequel(stages, seen)


def _of(rows: Rows, labels: NDArray[Any]) -> Rows:
    chosen = np.isin(rows.y, labels)
    return Rows(rows.X[chosen], rows.y[chosen])


def by_turns(dataset: str, seed: int, *, quick: bool) -> Sequel:
    """A fifth of the rows for every angle; all test rows at the angles so far."""
    task = load_task(dataset, quick=quick)
    train = task.all_rows
    parts = np.array_split(np.random.default_rng(seed).permutation(len(train.y)), len(DEGREES))
    stages = [
        Rows(turned(train.X[part], degrees), train.y[part])
        for part, degrees in zip(parts, DEGREES, strict=True)
    ]
    tests = [Rows(turned(task.test.X, degrees), task.test.y) for degrees in DEGREES]
    seen = [
        Rows(np.concatenate([r.X for r in upto]), np.concatenate([r.y for r in upto]))
        for upto in (tests[: t + 1] for t in range(len(DEGREES)))
    ]
    return Sequel(stages, seen)


def turned(X: NDArray[Any], degrees: float) -> NDArray[np.uint8]:
    """Images turned about their middle."""
    side = round(X.shape[1] ** 0.5)
    angle = np.deg2rad(degrees)
    turn = torch.tensor(
        [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0]],
        dtype=torch.float32,
    )
    pieces = []
    for piece in torch.from_numpy(np.array(X)).split(10_000):
        images = piece.float().view(-1, 1, side, side)
        grid = affine_grid(turn.expand(len(images), 2, 3), list(images.shape), align_corners=False)
        pieces.append(grid_sample(images, grid, align_corners=False).round().to(torch.uint8))
    return torch.cat(pieces).view(len(X), -1).numpy()


def changing_stream(seed: int) -> list[Rows]:
    """Classes by the side of a plane, which is another one from time to time."""
    rng = np.random.default_rng(seed)
    planes = rng.normal(size=(len(CHANGES) + 1, FEATURES))
    batches = []
    for number in range(BATCHES):
        plane = planes[sum(number >= change for change in CHANGES)]
        X = rng.normal(size=(BATCH_ROWS, FEATURES))
        y = (X @ plane > 0) ^ (rng.random(BATCH_ROWS) < NOISE)
        batches.append(Rows(X, y.astype(int)))
    return batches
