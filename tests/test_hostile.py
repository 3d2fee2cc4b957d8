"""Messy tables through every command; python -m benchmarks hostile draws two hundred."""

from pathlib import Path

import pytest

from benchmarks.hostile import one_table


@pytest.mark.parametrize("seed", range(1_000, 1_012))
def test_a_hostile_table_works_or_is_refused_in_a_line(seed: int, tmp_path: Path) -> None:
    ends, faults = one_table(seed, tmp_path)
    assert ends
    assert faults == []
