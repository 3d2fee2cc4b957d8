"""One against another over tables: laws of wins, ratios, intervals and the sign test."""

import math

import numpy as np
import pytest

from benchmarks.tables.duels import duels, sign_p
from benchmarks.tables.standings import Field

SCORES = np.array([[0.90, 0.80], [0.70, 0.702], [0.60, 0.61], [0.95, math.nan]])


def field(measure: str, scores: np.ndarray = SCORES) -> Field:
    sign = -1 if measure in ("log_loss", "rmse") else 1
    tables = tuple(map(str, range(len(scores))))
    return Field(measure, tables, ("one", "two"), sign * scores, np.ones_like(scores), {})


def test_wins_of_one_are_losses_of_the_other() -> None:
    for measure in ("roc_auc", "log_loss"):
        one = duels(field(measure), "two")[0]
        two = duels(field(measure), "one")[1]
        assert (one.wins, one.level, one.losses) == (two.losses, two.level, two.wins)
        assert (one.p, one.tables) == (two.p, 3)
    assert one.ratio * two.ratio == pytest.approx(1)


def test_a_quarter_of_a_point_is_level_in_shares_alone() -> None:
    two = duels(field("roc_auc"), "one")[1]
    assert (two.wins, two.level, two.losses) == (1, 1, 1)
    assert (two.ratio, two.interval, two.mean) == (None, None, None)  # absent from one table
    two = duels(field("log_loss"), "one")[1]
    assert (two.wins, two.level, two.losses) == (1, 0, 2)


def test_the_reference_meets_itself_without_a_test() -> None:
    one, _ = duels(field("accuracy"), "one")
    assert (one.wins, one.losses, one.p, one.mean) == (0, 0, None, pytest.approx(0.7875))


def test_a_ratio_lies_in_its_interval_and_ignores_units() -> None:
    random = np.random.default_rng(0)
    losses = random.uniform(0.5, 1.5, (30, 2)) * [1, 0.9]
    two = duels(field("rmse", losses), "one")[1]
    assert two.ratio == pytest.approx(np.exp(np.mean(np.log(losses[:, 1] / losses[:, 0]))))
    assert two.interval is not None
    assert two.interval[0] < two.ratio < two.interval[1]
    scaled = duels(field("rmse", losses * 10 ** random.uniform(-3, 3, (30, 1))), "one")[1]
    assert scaled.ratio == pytest.approx(two.ratio)
    assert scaled.mean is None  # errors of different units have none
    assert duels(field("rmse", losses[:1]), "one")[1].interval is None


def test_the_sign_test_is_that_of_the_textbook() -> None:
    assert sign_p(5, 0) == pytest.approx(2 / 32)
    assert sign_p(0, 5) == sign_p(5, 0)
    assert sign_p(3, 3) == sign_p(0, 0) == 1
