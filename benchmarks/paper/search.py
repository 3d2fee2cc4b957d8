"""Choose hyperparameters on held-out rows: a random search whose every trial is kept."""

import math
import statistics
from collections.abc import Callable
from random import Random
from typing import Any

from protopinv.bench.record import Record
from protopinv.bench.shape import Parameters
from protopinv.errors import TrainingError

FINALISTS = 3
MORE_SEEDS = (1, 2)


def search(
    record: Record,
    prefix: str,
    draw: Callable[[Random], Parameters],
    score: Callable[[Parameters, int], float],
    n: int,
) -> Parameters:
    """The configuration with the best mean score.

    ``n`` drawn configurations are tried with seed 0, the best three with two more seeds; ``score``
    takes a configuration and a seed and never sees a test row.
    """
    random = Random(0)  # noqa: S311
    drawn = [draw(random) for _ in range(n)]

    def tried(trial: int, seed: int) -> float:
        def work() -> dict[str, Any]:
            try:
                return {"parameters": drawn[trial], "held_out": score(drawn[trial], seed)}
            except TrainingError as error:  # a configuration that cannot be trained has lost
                return {"parameters": drawn[trial], "held_out": None, "error": str(error)}

        found = record.cell(f"{prefix}/{trial}/seed{seed}", work)["held_out"]
        return -math.inf if found is None else float(found)

    first = [tried(trial, 0) for trial in range(n)]
    finalists = sorted(range(n), key=lambda trial: -first[trial])[:FINALISTS]
    seeds = MORE_SEEDS if n > 1 else ()
    means = {
        trial: statistics.mean([first[trial], *(tried(trial, seed) for seed in seeds)])
        for trial in finalists
    }
    return drawn[max(means, key=lambda trial: means[trial])]
