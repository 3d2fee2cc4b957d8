from pathlib import Path
from random import Random

from benchmarks.paper.methods import between
from benchmarks.paper.search import one_by_one, search, take_over
from benchmarks.record import Record
from protopinv.errors import TrainingError


def draw(random: Random) -> dict[str, float]:
    return {"x": between(random, 0.01, 100)}


def closeness(parameters: dict[str, float], seed: int) -> float:
    """Highest at x = 3; the best with seed 0 disappoints with others."""
    x = parameters["x"]
    return -abs(x - 3) - (10 if seed and x == 3.1 else 0)


def test_the_best_mean_over_seeds_wins(tmp_path: Path) -> None:
    calls: list[tuple[float, int]] = []

    def score(parameters: dict[str, float], seed: int) -> float:
        calls.append((parameters["x"], seed))
        return closeness(parameters, seed)

    record = Record(tmp_path, "search", {}, "cpu")
    winner = search(record, "try", draw, one_by_one(score), n=30)
    drawn = [x for x, seed in calls if seed == 0]
    finalists = {x for x, seed in calls if seed > 0}
    assert len(calls) == 30 + 3 * 2
    assert finalists == set(sorted(drawn, key=lambda x: -closeness({"x": x}, 0))[:3])
    assert winner["x"] == max(
        finalists, key=lambda x: sum(closeness({"x": x}, seed) for seed in range(3))
    )
    again = search(record, "try", draw, one_by_one(score), n=30)
    assert again == winner
    assert len(calls) == 36  # nothing was tried twice


def test_one_configuration_needs_no_contest(tmp_path: Path) -> None:
    record = Record(tmp_path, "search", {}, "cpu")
    search(record, "try", draw, one_by_one(closeness), n=1)
    assert list(record.cells) == ["try/0/seed0"]


def test_draws_stay_in_their_range() -> None:
    random = Random(1)
    drawn = [between(random, 0.02, 50) for _ in range(500)]
    assert 0.02 <= min(drawn) < 0.05
    assert 20 < max(drawn) <= 50


def test_a_configuration_that_cannot_be_trained_has_lost(tmp_path: Path) -> None:
    def score(parameters: dict[str, float], seed: int) -> float:
        if parameters["x"] < 3:
            raise TrainingError("The loss must stay finite.")
        return -parameters["x"]

    record = Record(tmp_path, "search", {}, "cpu")
    winner = search(record, "try", draw, one_by_one(score), n=20)
    assert winner["x"] >= 3
    assert any("finite" in cell.get("error", "") for cell in record.cells.values())


def test_trials_of_an_earlier_record_are_not_made_again(tmp_path: Path) -> None:
    earlier = Record(tmp_path / "earlier", "search", {}, "cpu")
    winner = search(earlier, "try", draw, one_by_one(closeness), n=10)
    later = Record(tmp_path / "later", "search", {}, "cpu")
    assert take_over(later, earlier.content, "try", draw, 10) == 10 + 3 * 2

    def never(parameters: dict[str, float], seed: int) -> float:
        raise AssertionError("it was known")

    assert search(later, "try", draw, one_by_one(never), n=10) == winner


def test_trials_of_other_ranges_are_made_again(tmp_path: Path) -> None:
    earlier = Record(tmp_path / "earlier", "search", {}, "cpu")
    search(earlier, "try", lambda random: {"x": between(random, 1, 2)}, one_by_one(closeness), n=5)
    later = Record(tmp_path / "later", "search", {}, "cpu")
    assert take_over(later, earlier.content, "try", draw, 5) == 0
