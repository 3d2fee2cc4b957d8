"""Laws of the contest on images: nobody leaves the budget, both have the same ingredients."""

import json
import os
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from benchmarks.images.accuracy import AccuracyPlan, accuracy_table, measure_accuracy, meetings
from benchmarks.images.contenders import MOST_PASSES, MOST_TRAINED, ROWS, Row, contenders
from benchmarks.record import Records
from benchmarks.tasks import DATASETS
from protopinv.errors import ConfigError

DATA = pytest.mark.skipif(
    not os.environ.get("PROTOPINV_DATA"), reason="needs the public image sets on disk"
)
CASES = [(row, dataset) for row in ROWS for dataset in DATASETS]


@pytest.mark.parametrize(("row", "dataset"), CASES, ids=str)
def test_nothing_that_is_drawn_exceeds_the_budget(row: Row, dataset: str):
    for method in contenders(row, dataset):
        for seed in range(40):
            drawn = method.parameters(method.draw(Random(seed)), quick=False)
            config = method.estimator(drawn).config()
            sizes = (config.n_components, *config.widths, 10)
            if "n_prototypes" in drawn:
                trained = config.n_prototypes * sum(sizes)
            else:
                trained = sum((a + 1) * b for a, b in pairwise(sizes))
            assert trained <= MOST_TRAINED
            assert trained > 0.95 * MOST_TRAINED
            assert config.max_epochs * (1 + config.image_copies) <= MOST_PASSES


@pytest.mark.parametrize(("row", "dataset"), CASES, ids=str)
def test_both_have_the_same_ingredients(row: Row, dataset: str):
    own = {"n_prototypes", "lr_ratios", "ridge", "hidden_scale", "weight_decay"}
    drawn = [m.draw(Random(0)) for m in contenders(row, dataset)]
    ours, mlp = (set(each) - own for each in drawn)
    assert ours == mlp
    assert (drawn[0].get("stem", "none") != "none", "image_copies" in ours) == (
        row.stem,
        row.copies,
    )


@DATA
def test_a_quick_run_measures_both_and_says_who_is_ahead(tmp_path: Path):
    plan = AccuracyPlan("one", "mnist", quick=True)
    record = measure_accuracy(plan, Records(tmp_path), device="cpu")
    kept = json.loads(record.path.read_text())
    (meeting,) = meetings(kept)
    assert meeting.ahead.mean == pytest.approx(meeting.ours.mean - meeting.mlp.mean)
    cells = kept["cells"]
    line = accuracy_table(kept)[-1]
    for contender in ("protopinv", "mlp"):
        cell = cells[f"test/one/{contender}/seed0"]
        assert f"{cell['shipped']:,} " in line
        assert f"{cell['seconds']:.1f} s" in line
    assert f"{meeting.ahead.mean:+.2f}" in line
    assert all(cell["trained"] <= MOST_TRAINED for k, cell in cells.items() if k[:4] == "test")
    assert not any("held_out" in cell for key, cell in cells.items() if key.startswith("test/"))
    again = measure_accuracy(plan, Records(tmp_path), device="cpu")
    assert (again.path, again.kept) == (record.path, len(cells))


def test_an_unknown_row_is_named():
    with pytest.raises(ConfigError, match=r"row must be some of one, deep.* Got two"):
        AccuracyPlan("two", "mnist")
