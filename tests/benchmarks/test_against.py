"""Two source trees in turns: the work is that of each tree, and a stranger's folder is refused."""

from pathlib import Path

import pytest

import protopinv
from benchmarks.against.study import against_table, measure_against
from benchmarks.record import Records
from protopinv.errors import ConfigError

HERE = Path(protopinv.__file__).parents[1]


def test_both_trees_do_the_work(tmp_path: Path) -> None:
    record = measure_against(HERE, Records(tmp_path), tasks=("iris quick",), repeats=2)
    parts = record.cells["iris quick"]
    assert set(parts) == {"fit", "predict one", "predict all"}
    for seconds in parts.values():
        assert all(len(seconds[name]) == 2 and min(seconds[name]) > 0 for name in seconds)
    assert len(against_table(record.content)) == 2 + len(parts)


def test_a_tree_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="folder src of another checkout"):
        measure_against(tmp_path, Records(tmp_path), tasks=("iris quick",))
    with pytest.raises(ConfigError, match="tasks must be some of"):
        measure_against(HERE, Records(tmp_path), tasks=("irises",))
