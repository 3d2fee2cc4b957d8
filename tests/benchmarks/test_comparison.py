"""Laws of comparing two settings, and of many comparisons at once."""

import math
import random

import pytest
from scipy.stats import ttest_ind, ttest_rel

from benchmarks.paper import deciding
from benchmarks.paper.comparison import Difference, against, correlation, holm, paired, unpaired


def draw(n: int, middle: float, seed: int) -> list[float]:
    chance = random.Random(seed)
    return [middle + chance.gauss(0, 1) for _ in range(n)]


def test_without_overlap_it_is_the_paired_t_test() -> None:
    one, other = draw(15, 1.0, 0), draw(15, 0.0, 1)
    found = paired(one, other, overlap=0.0)
    known = ttest_rel(one, other)
    low, high = known.confidence_interval()
    assert found.p == pytest.approx(known.pvalue)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert found.n == 15


def test_shared_training_rows_widen_the_margin_by_nadeau_and_bengios_factor() -> None:
    one, other = draw(15, 1.0, 0), draw(15, 0.0, 1)
    plain, shared = (paired(one, other, overlap=overlap) for overlap in (0.0, 1 / 9))
    assert shared.margin / plain.margin == pytest.approx(math.sqrt((1 / 15 + 1 / 9) * 15))
    assert shared.p > plain.p


def test_unpaired_is_welchs_test_and_against_that_of_one_sample() -> None:
    one, other = draw(5, 1.0, 0), draw(8, 0.0, 1)
    known = ttest_ind(one, other, equal_var=False)
    assert unpaired(one, other).p == pytest.approx(known.pvalue)
    assert against(one, 0.5).mean == pytest.approx(sum(one) / 5 - 0.5)


def test_one_run_proves_nothing() -> None:
    for found in (paired([2.0], [1.0], overlap=0.1), unpaired([2.0], [1.0]), correlation(0.9, 3)):
        assert found.margin == math.inf
        assert not found.is_seen


def test_equal_runs_differ_by_nothing_and_constant_ones_for_sure() -> None:
    assert not paired([1.0, 2.0], [1.0, 2.0], overlap=0.1).is_seen
    assert paired([2.0, 3.0], [1.0, 2.0], overlap=0.1).is_more


def test_holm_is_as_in_the_book_and_never_falls() -> None:
    """Four p-values: 0.01 x 4, 0.02 x 3, 0.03 x 2, 0.04 x 1, each at least the one before."""
    family = [{"a": value(p=0.04), "b": value(p=0.01)}, {"c": value(p=0.03), "d": value(p=0.02)}]
    found = {name: v.adjusted for named in holm(family) for name, v in named.items()}
    assert found == pytest.approx({"b": 0.04, "d": 0.06, "c": 0.06, "a": 0.06})


def test_the_family_decides_what_is_seen() -> None:
    """Nine other comparisons count; one that nine claims share counts once."""
    claim = {"claim": value(p=0.02)}
    others = [{f"other {number}": value(p=0.9)} for number in range(9)]
    assert claim["claim"].is_seen
    assert not holm([claim, *others])[0]["claim"].is_seen
    assert holm([claim, *[others[0]] * 9])[0]["claim"].adjusted == pytest.approx(0.04)


def value(mean: float = 1.0, margin: float = 0.1, p: float = 0.001) -> Difference:
    return Difference(mean, margin, 15, p)


MORE, LESS = value(0.5), value(-0.5)
NOTHING = value(0.0, 0.1, 0.9)
UNSURE = value(0.1, 0.5, 0.7)


@pytest.mark.parametrize(
    ("rule", "found", "expected"),
    [
        (deciding.more, [MORE, MORE], "confirmed"),
        (deciding.more, [MORE, NOTHING], "different"),
        (deciding.more, [NOTHING, NOTHING], "wrong"),
        (deciding.more, [LESS, LESS], "wrong"),
        (deciding.more, [UNSURE, NOTHING], "inconclusive"),
        (deciding.less, [LESS, LESS], "confirmed"),
        (deciding.less, [MORE, MORE], "wrong"),
        (deciding.less, [UNSURE], "inconclusive"),
        (deciding.may_be_more, [MORE, NOTHING], "confirmed"),
        (deciding.may_be_more, [NOTHING, LESS], "wrong"),
        (deciding.may_be_more, [UNSURE, LESS], "inconclusive"),
        (deciding.modest_gain, [MORE, NOTHING], "confirmed"),
        (deciding.modest_gain, [value(3.0), NOTHING], "different"),
        (deciding.modest_gain, [NOTHING, LESS], "wrong"),
        (deciding.modest_gain, [UNSURE, LESS], "inconclusive"),
        (deciding.may_be_less, [LESS, MORE], "confirmed"),
        (deciding.may_be_less, [MORE, MORE], "wrong"),
        (deciding.may_be_less, [UNSURE, MORE], "inconclusive"),
        (deciding.often_less, [LESS, LESS, NOTHING], "confirmed"),
        (deciding.often_less, [LESS, NOTHING, NOTHING], "different"),
        (deciding.often_less, [NOTHING, NOTHING, NOTHING], "wrong"),
        (deciding.often_less, [UNSURE, UNSURE, NOTHING], "inconclusive"),
        (deciding.no_gain, [NOTHING, LESS], "confirmed"),
        (deciding.no_gain, [MORE, MORE], "wrong"),
        (deciding.no_gain, [MORE, NOTHING], "different"),
        (deciding.no_gain, [UNSURE, NOTHING], "inconclusive"),
        (deciding.no_loss, [NOTHING, MORE], "confirmed"),
        (deciding.no_loss, [LESS, LESS], "wrong"),
        (deciding.gain_between(0.2, 0.3), [value(0.25)], "confirmed"),
        (deciding.gain_between(0.2, 0.3), [value(2.0)], "different"),
        (deciding.gain_between(0.2, 0.3), [NOTHING], "wrong"),
        (deciding.gain_between(0.2, 0.3), [UNSURE], "inconclusive"),
        (deciding.times(0.5), [value(-1.0)], "confirmed"),
        (deciding.times(0.5), [value(-2.0)], "confirmed"),
        (deciding.times(0.5), [value(-0.3)], "different"),
        (deciding.times(0.5), [value(0.3)], "wrong"),
        (deciding.times(0.5), [value(-0.5, 0.9, 0.3)], "inconclusive"),
        (deciding.predicts, [value(0.7), value(0.6)], "confirmed"),
        (deciding.predicts, [value(0.1, 0.2, 0.3), value(-0.2, 0.2, 0.1)], "wrong"),
        (deciding.predicts, [value(0.7), value(0.1, 0.2, 0.3)], "different"),
        (deciding.predicts, [value(0.4, 0.4, 0.1)], "inconclusive"),
        (deciding.reaches, [MORE, value(0.0)], "confirmed"),
        (deciding.reaches, [LESS, LESS], "wrong"),
        (deciding.reaches, [LESS, MORE], "different"),
        (deciding.reaches, [value(-0.1, 0.3, 0.4), MORE], "inconclusive"),
    ],
)
def test_a_rule_decides_by_differences_alone(rule, found: list[Difference], expected: str) -> None:
    assert rule({str(number): each for number, each in enumerate(found)}) == expected


@pytest.mark.parametrize(
    ("up_to", "beyond", "expected"),
    [
        (MORE, NOTHING, "confirmed"),
        (MORE, MORE, "different"),
        (NOTHING, NOTHING, "different"),
        (UNSURE, NOTHING, "inconclusive"),
        (MORE, UNSURE, "inconclusive"),
    ],
)
def test_saturating_is_a_gain_and_then_none(
    up_to: Difference, beyond: Difference, expected: str
) -> None:
    assert deciding.saturates({"512 to 768": up_to, "beyond, to 1024": beyond}) == expected


def test_a_difference_tells_mean_margin_n_and_p() -> None:
    assert str(value(0.25, 0.1, 0.02)) == "+0.25 ± 0.10 (n = 15, p = 0.02)"
    ratio = Difference(-1.0, 0.5, 15, 0.0001, "times")
    assert str(ratio) == "x 0.50, from 0.35 to 0.71 (n = 15, p < 0.001)"


@pytest.mark.parametrize(
    ("found", "smaller", "quicker", "expected"),
    [
        ([MORE, NOTHING], True, True, "confirmed"),
        ([NOTHING, NOTHING], True, True, "confirmed"),
        ([MORE, MORE], False, True, "different"),
        ([LESS, NOTHING], True, True, "different"),
        ([LESS, NOTHING], False, False, "wrong"),
        ([NOTHING, NOTHING], False, False, "wrong"),
    ],
)
def test_a_trade_is_judged_by_accuracy_and_size_and_time(
    found: list[Difference], smaller: bool, quicker: bool, expected: str
) -> None:
    assert deciding.favourable(found, smaller=smaller, quicker=quicker) == expected


def test_numbers_without_an_error_have_rules_too() -> None:
    assert [deciding.about(n, 100) for n in (96, 104, 107)] == [
        "confirmed",
        "confirmed",
        "different",
    ]
    assert [deciding.does_not_grow(n) for n in (0.0, 0.3, 1.0)] == [
        "confirmed",
        "different",
        "wrong",
    ]
    assert deciding.as_said(True, True) == "confirmed"
    assert deciding.as_said(True, False) == "different"
    assert deciding.as_said(False, False) == "wrong"
    assert deciding.of_all(["confirmed", "wrong"]) == "different"
