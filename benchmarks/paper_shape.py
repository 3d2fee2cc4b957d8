"""The paper's shape (p=150, h=512, PCA-400, 250 full-batch epochs) on the official test sets.

    python benchmarks/paper_shape.py [--device cuda] [--seeds 5] [--search RECORD] [--folder FOLDER]

Takes the winners of the newest search record and scores the test set once for every number.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from protocol import SHAPE, fitted, load_task
from record import RECORDS, write

from protopinv.data import load_data


def measure(dataset: str, parameters: dict[str, Any], n_seeds: int, device: str) -> dict[str, Any]:
    """Every seed trained and scored, with mean and standard deviation."""
    task, test = load_task(dataset), load_data(dataset, split="test")
    runs = []
    for seed in range(n_seeds):
        model = fitted(task, parameters, seed, device)
        runs.append(
            {
                "seed": seed,
                "validation_accuracy": model.score(task.X_held_out, task.y_held_out),
                "test_accuracy": model.score(test.X, test.y),
                "training_seconds": model.history_.seconds,
                "skipped_steps": model.history_.skipped_steps,
            }
        )
    scores = [100 * run["test_accuracy"] for run in runs]
    return {
        "parameters": {**SHAPE, **parameters},
        "trained_numbers": model.bank_.n_trained,
        "shipped_numbers": model.network_.n_shipped,
        "test_percent_mean": statistics.mean(scores),
        "test_percent_sd": statistics.stdev(scores) if len(scores) > 1 else None,
        "training_seconds_median": statistics.median(run["training_seconds"] for run in runs),
        "runs": runs,
    }


def main() -> None:
    """Measure the winner of every search, print a row each, keep them in a record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--search", type=Path, help="A record of benchmarks/search.py.")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    record = options.search or max(RECORDS.glob("*-search.json"))
    results = []
    for found in json.loads(record.read_text())["results"]:
        parameters = found["tried"][0]["parameters"]
        row = measure(found["dataset"], parameters, options.seeds, options.device)
        results.append({"dataset": found["dataset"], "ingredients": found["ingredients"], **row})
        spread = row["test_percent_sd"] or 0.0
        print(
            f"{found['dataset']:14} {found['ingredients']:24} "
            f"{row['test_percent_mean']:.2f} ± {spread:.2f} % over {options.seeds} seeds, "
            f"{row['training_seconds_median']:.1f} s"
        )
    content = {"task": "The paper's shape", "search": record.name, "results": results}
    path = write(f"paper-shape-{options.device}", content, options.device, options.folder)
    print("wrote", path)


if __name__ == "__main__":
    main()
