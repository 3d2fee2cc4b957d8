import pytest

from protopinv.train.optimizer import rate_factor


def factors(schedule: str, total: int = 100, warmup: int = 20) -> list[float]:
    return [
        rate_factor(step, total=total, warmup=warmup, schedule=schedule) for step in range(total)
    ]


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_warm_up_rises_linearly_to_the_peak(schedule: str) -> None:
    assert factors(schedule)[:20] == pytest.approx([(step + 1) / 20 for step in range(20)])


def test_cosine_falls_from_the_peak_to_nothing() -> None:
    falling = factors("cosine")[20:]
    assert falling == sorted(falling, reverse=True)
    assert falling[0] == 1
    assert falling[40] == pytest.approx(0.5)
    assert falling[-1] < 0.01


def test_constant_stays_at_the_peak() -> None:
    assert set(factors("constant")[20:]) == {1.0}


def test_warm_up_takes_at_most_half() -> None:
    assert max(factors("cosine", total=10, warmup=100)) == 1
    assert factors("cosine", total=1, warmup=20) == [1]
