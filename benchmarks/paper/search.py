"""Choose hyperparameters on held-out rows: a random search whose every trial is kept."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from benchmarks.recipes import Parameters
from benchmarks.record import Record
from protopinv.errors import TrainingError
from protopinv.plain import plain

FINALISTS = 3
MORE_SEEDS = (1, 2)

# A configuration and a seed.
Trial = tuple[Parameters, int]
# Scores trials in any order and grouping: their place, with a score or what is wrong with them.
Scores = Callable[[Sequence[Trial]], Iterable[tuple[int, float | TrainingError]]]


def one_by_one(score: Callable[[Parameters, int], float]) -> Scores:
    """Trials in turn; a configuration that cannot be trained has lost."""

    def scores(trials: Sequence[Trial]) -> Iterator[tuple[int, float | TrainingError]]:
        for place, (parameters, seed) in enumerate(trials):
            try:
                yield place, score(parameters, seed)
            except TrainingError as error:
                yield place, error

    return scores


def drawn_of(draw: Callable[[Random], Parameters], n: int) -> list[Parameters]:
    """The same configurations every time."""
    random = Random(0)  # noqa: S311
    return [draw(random) for _ in range(n)]


def take_over(
    record: Record,
    earlier: Mapping[str, Any],
    prefix: str,
    draw: Callable[[Random], Parameters],
    n: int,
) -> int:
    """Trials of an earlier record that would be made again; how many were taken over."""
    same = {}
    for number, parameters in enumerate(drawn_of(draw, n)):
        for seed in (0, *MORE_SEEDS):
            key = f"{prefix}/{number}/seed{seed}"
            cell = earlier["cells"].get(key)
            if cell is not None and cell["parameters"] == plain(parameters):
                same[key] = cell
    record.keep(same)
    return len(same)


def search(
    record: Record,
    prefix: str,
    draw: Callable[[Random], Parameters],
    scores: Scores,
    n: int,
) -> Parameters:
    """The configuration with the best mean score.

    ``n`` drawn configurations are tried with seed 0, the best three with two more seeds; ``scores``
    never sees a test row.
    """
    drawn = drawn_of(draw, n)

    def work(trials: Sequence[Trial]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for place, score in scores(trials):
            cell: dict[str, Any] = {"parameters": trials[place][0], "held_out": score}
            if isinstance(score, TrainingError):
                cell |= {"held_out": None, "error": str(score)}
            yield place, cell

    def tried(numbers: Sequence[int], seeds: Sequence[int]) -> dict[int, list[float]]:
        pairs = [(number, seed) for number in numbers for seed in seeds]
        jobs = {f"{prefix}/{number}/seed{seed}": (drawn[number], seed) for number, seed in pairs}
        results: dict[int, list[float]] = {number: [] for number in numbers}
        for (number, _), cell in zip(pairs, record.cells_of(jobs, work), strict=True):
            lost = cell["held_out"] is None
            results[number].append(-math.inf if lost else float(cell["held_out"]))
        return results

    first = tried(range(n), [0])
    finalists = sorted(range(n), key=lambda number: -first[number][0])[:FINALISTS]
    more = tried(finalists, MORE_SEEDS if n > 1 else ())
    means = {number: statistics.mean([*first[number], *more[number]]) for number in finalists}
    return drawn[max(means, key=lambda number: means[number])]
