"""Choose hyperparameters for the paper's shape on the 6,000 held-out rows. No test set is read.

    python benchmarks/search.py [--device cuda] [--configurations 40] [--folder benchmarks/records]

A random search for each data set, once with nothing but the paper's own ingredients and once with
input noise and label smoothing besides; every configuration is tried with one seed, the best three
with two more, and the best mean wins.
"""

import argparse
import random
import statistics
from pathlib import Path
from typing import Any

from protocol import DATASETS, SHAPE, Task, fitted, load_task
from record import write

INGREDIENTS = ("the paper's ingredients", "with input noise")
FINALISTS = 3
MORE_SEEDS = (1, 2)


def draw(random_: random.Random, *, noise: bool) -> dict[str, Any]:
    """One configuration; every range is given here."""

    def between(low: float, high: float) -> float:
        return float(f"{low * (high / low) ** random_.random():.2g}")  # log-uniform, two digits

    parameters: dict[str, Any] = {
        "ridge": (between(0.5, 50) if noise else between(20, 300), between(0.05, 10)),
        "learn_ridge": random_.choice([False, (False, True)]),
        "lr": between(0.025, 0.12),
        "lr_ratios": (between(0.6, 2), between(0.5, 1.8), between(0.5, 2.3)),
        "hidden_scale": between(0.3, 1.2),
        "hidden_decay": random_.choice([0.0, 0.1, 1.0]),
        "activation": random_.choice(["relu", "relu", "silu", "gelu"]),
    }
    if noise:
        parameters["input_noise"] = between(0.3, 1.0)
        parameters["label_smoothing"] = random_.choice([0.0, 0.1])
    return parameters


def search(task: Task, *, noise: bool, n: int, device: str) -> dict[str, Any]:
    """All configurations with their accuracies on the held-out rows, best first."""

    def score(parameters: dict[str, Any], seed: int) -> float:
        model = fitted(task, parameters, seed, device)
        return float(model.score(task.X_held_out, task.y_held_out))

    random_ = random.Random(0)  # noqa: S311
    tried: list[dict[str, Any]] = []
    for _ in range(n):
        parameters = draw(random_, noise=noise)
        tried.append({"parameters": parameters, "validation": [score(parameters, 0)]})
    tried.sort(key=lambda row: -row["validation"][0])
    for row in tried[:FINALISTS]:
        row["validation"] += [score(row["parameters"], seed) for seed in MORE_SEEDS]
    tried[:FINALISTS] = sorted(
        tried[:FINALISTS], key=lambda row: -statistics.mean(row["validation"])
    )
    return {"dataset": task.name, "ingredients": INGREDIENTS[noise], "tried": tried}


def main() -> None:
    """Search, print the winners, keep everything in a record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--configurations", type=int, default=40)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    results = []
    for name in DATASETS:
        task = load_task(name)
        for noise in (False, True):
            found = search(task, noise=noise, n=options.configurations, device=options.device)
            results.append(found)
            best = found["tried"][0]
            mean = 100 * statistics.mean(best["validation"])
            print(f"{name:14} {found['ingredients']:24} {mean:.2f} % {best['parameters']}")
    content = {"task": "Random search on held-out rows", "shape": SHAPE, "results": results}
    print("wrote", write("search", content, options.device, options.folder))


if __name__ == "__main__":
    main()
