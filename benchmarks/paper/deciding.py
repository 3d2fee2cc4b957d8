"""The rules by which comparisons become judgements; what they are about is not known here.

*Seen* is a difference whose corrected p-value is below 0.05. What is not seen is either excluded,
when the whole 95 % interval lies on the other side of what would be worth speaking of, or it is
inconclusive.
"""

import math
from collections.abc import Callable
from typing import Literal

from benchmarks.paper.comparison import Difference, Named

Judgement = Literal["confirmed", "different", "wrong", "inconclusive", "not tested"]
Decide = Callable[[Named], Judgement]

WORTH = 0.2  # points of accuracy; less is not worth speaking of
MODEST = 1.0  # points; more is not modest
PREDICTS = 0.5  # a rank correlation that predicts something
ABOUT = 0.05  # how far a number said to be "about" another may be from it, as a share


def more(compared: Named) -> Judgement:
    """Said of all: the first of each pair has more."""
    values = list(compared.values())
    if all(value.is_more for value in values):
        return "confirmed"
    if any(value.is_more for value in values):
        return "different"
    return "wrong" if all(value.high < WORTH for value in values) else "inconclusive"


def less(compared: Named) -> Judgement:
    """Said of all: the first of each pair has less."""
    return more({name: _turned(value) for name, value in compared.items()})


def may_be_more(compared: Named) -> Judgement:
    """Said of some: for at least one pair the first has more."""
    values = list(compared.values())
    if any(value.is_more for value in values):
        return "confirmed"
    return "wrong" if all(value.high < WORTH for value in values) else "inconclusive"


def may_lose(compared: Named) -> Judgement:
    """Said of some: for at least one pair the first is behind by what is worth speaking of."""
    return may_be_more({name: _turned(value) for name, value in compared.items()})


def modest_gain(compared: Named) -> Judgement:
    """Said of one of several: it has somewhat more, and not much."""
    best = max(compared.values(), key=lambda value: value.mean)
    if best.is_more:
        return "confirmed" if best.low <= MODEST else "different"
    return "wrong" if all(value.high < WORTH for value in compared.values()) else "inconclusive"


def may_be_less(compared: Named) -> Judgement:
    """Said of some: for at least one pair the first has less."""
    values = list(compared.values())
    if any(value.is_less for value in values):
        return "confirmed"
    return "wrong" if all(value.low > 0 for value in values) else "inconclusive"


def often_less(compared: Named) -> Judgement:
    """Said of most: for more than half of the pairs the first has less."""
    values = list(compared.values())
    seen = sum(value.is_less for value in values)
    excluded = sum(value.low > -WORTH for value in values)
    if seen > len(values) / 2:
        return "confirmed"
    if excluded > len(values) / 2:
        return "different" if seen else "wrong"
    return "different" if seen else "inconclusive"


def no_gain(compared: Named) -> Judgement:
    """Said of all: the first has nothing worth speaking of above the second."""
    values = list(compared.values())
    if all(value.high < WORTH for value in values):
        return "confirmed"
    gains = [value.is_more for value in values]
    return "wrong" if all(gains) else "different" if any(gains) else "inconclusive"


def no_loss(compared: Named) -> Judgement:
    """Said of all: the first has nothing worth speaking of below the second."""
    return no_gain({name: _turned(value) for name, value in compared.items()})


def gain_between(low: float, high: float) -> Decide:
    """Said of one pair: the first is ahead by so much."""

    def decide(compared: Named) -> Judgement:
        (value,) = compared.values()
        if value.high < low:
            return "wrong"
        if not value.is_more:
            return "inconclusive"
        return "confirmed" if value.low <= high else "different"

    return decide


def times(factor: float) -> Decide:
    """Said of all: the first needs this share of what the second needs, or less."""

    def decide(compared: Named) -> Judgement:
        values, aim = list(compared.values()), math.log2(factor)
        if all(value.is_less and value.low <= aim for value in values):
            return "confirmed"
        if all(value.low > 0 for value in values):
            return "wrong"
        if all(value.low > aim for value in values):  # so much is excluded
            return "different" if any(value.is_less for value in values) else "wrong"
        return "inconclusive"

    return decide


def predicts(compared: Named) -> Judgement:
    """Said of all: a rank correlation that is strong enough to predict something."""
    values = list(compared.values())
    if all(value.is_more and value.mean >= PREDICTS for value in values):
        return "confirmed"
    if all(value.high < PREDICTS for value in values):
        return "wrong"
    return "different" if any(value.is_more for value in values) else "inconclusive"


def reaches(compared: Named) -> Judgement:
    """Said of all: a mean that somebody gives is reached."""
    values = list(compared.values())
    if all(value.mean >= 0 for value in values):
        return "confirmed"
    if any(value.is_less for value in values):
        return "wrong" if all(value.mean < 0 for value in values) else "different"
    return "inconclusive"


def saturates(compared: Named) -> Judgement:
    """Said of two steps, "up to" and "beyond": the first brings something, the second does not."""
    up_to = [value for name, value in compared.items() if "beyond" not in name]
    beyond = {name: value for name, value in compared.items() if "beyond" in name}
    ends = no_gain(beyond)
    if all(value.is_more for value in up_to) and ends == "confirmed":
        return "confirmed"
    if all(value.high < WORTH for value in up_to) or ends in ("wrong", "different"):
        return "different"  # it ends before, or goes on
    return "inconclusive"


def about(number: float, said: float) -> Judgement:
    """A number without an error, said to be about another."""
    return "confirmed" if abs(number / said - 1) <= ABOUT else "different"


def as_said(*facts: bool) -> Judgement:
    """Several things are said at once."""
    return "confirmed" if all(facts) else "different" if any(facts) else "wrong"


def does_not_grow(power: float) -> Judgement:
    """Said of a time that grows as a size to this power."""
    return "wrong" if power > 0.5 else "different" if power > 0.1 else "confirmed"


def favourable(differences: list[Difference], *, smaller: bool, quicker: bool) -> Judgement:
    """A trade of accuracy, size and time: nowhere seen behind, and smaller and quicker besides."""
    behind, ahead = any(v.is_less for v in differences), any(v.is_more for v in differences)
    if smaller and quicker and not behind:
        return "confirmed"
    return "different" if ahead or smaller or quicker else "wrong"


def of_all(judgements: list[Judgement]) -> Judgement:
    """What can be said of several: the same for each, or else that they differ."""
    return judgements[0] if len(set(judgements)) == 1 else "different"


def _turned(value: Difference) -> Difference:
    return Difference(
        -value.mean, value.margin, value.n, value.p, value.unit, adjusted=value.adjusted
    )
