"""Images without options: a smoke run, kept in a record and told in a table."""

import os
from functools import partial
from pathlib import Path

import pytest

from benchmarks import tasks
from benchmarks.images import defaults
from benchmarks.images.defaults import DefaultsPlan, defaults_table, measure_defaults
from benchmarks.record import Records
from protopinv import ProtoPINVClassifier
from protopinv.errors import ConfigError


@pytest.mark.skipif(
    not os.environ.get("PROTOPINV_DATA"), reason="needs the public image sets on disk"
)
def test_defaults_are_measured_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "QUICK_ROWS", 500)
    tasks.load_task.cache_clear()
    short = partial(ProtoPINVClassifier, max_epochs=15, stem=None, n_prototypes=40)
    monkeypatch.setattr(defaults, "ProtoPINVClassifier", short)
    plan = DefaultsPlan(("mnist",), ("quick",), quick=True)
    record = measure_defaults(plan, Records(tmp_path), device="cpu")
    tasks.load_task.cache_clear()
    cell = record.cells["mnist/quick/seed0"]
    assert cell["accuracy"] > 0.6
    assert min(cell["fit_seconds"], cell["first_seconds"]) > 0
    (line,) = defaults_table(record.content)[2:]
    assert f"{100 * cell['accuracy']:.2f}" in line


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="datasets must be some of mnist"):
        DefaultsPlan(("moon",))
    with pytest.raises(ConfigError, match="efforts must be some of quick"):
        DefaultsPlan(efforts=("hasty",))
