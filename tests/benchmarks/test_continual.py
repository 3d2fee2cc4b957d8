"""Stages that follow each other: what each holds, and that every part is measured and told."""

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.continual import study, worlds
from benchmarks.continual.learners import RecursiveRidge
from benchmarks.continual.study import PARTS, RIVER, ContinualPlan, measure_continual
from benchmarks.continual.text import TABLES
from benchmarks.continual.tried import VARIANTS
from benchmarks.record import Records
from benchmarks.tasks import Rows, Task
from protopinv.errors import ConfigError


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> Task:
    """Ten classes of small blots, in place of digits."""
    rng = np.random.default_rng(0)

    def some(n: int) -> Rows:
        y = np.arange(n) % 10
        X = rng.integers(0, 60, (n, 28, 28), dtype=np.uint8)
        for row, label in enumerate(y):
            X[row, 2 * label : 2 * label + 8, 5:20] += np.uint8(150)
        return Rows(X.reshape(n, -1), y)

    task = Task("mnist", some(300), some(100), some(100))
    for module in (worlds, study):
        monkeypatch.setattr(module, "load_task", lambda *_, **__: task)
    return task


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_measured_kept_and_told(images: Task, part: str, tmp_path: Path) -> None:
    if part == RIVER:
        pytest.importorskip("river", reason="needs river, of the extra study")
    plan = ContinualPlan(part, ("mnist",), seeds=1, quick=True)
    record = measure_continual(plan, Records(tmp_path), device="cpu")
    assert all(0 <= cell.get("accuracy", 0.5) <= 1 for cell in record.cells.values())
    again = measure_continual(plan, Records(tmp_path), device="cpu")
    assert again.kept == len(record.cells)
    lines = TABLES[part](record.content)
    assert len(lines) > 2
    if part == "tried":
        assert all(any(name in line for line in lines) for name in VARIANTS)


def test_stages_hold_all_classes_once_and_are_scored_on_those_so_far(images: Task) -> None:
    sequel = worlds.by_classes("mnist", 3, held_out=False, quick=True)
    labels = [set(stage.y.tolist()) for stage in sequel.stages]
    assert [len(each) for each in labels] == [2] * 5
    assert set.union(*labels) == set(range(10))
    for t, seen in enumerate(sequel.seen):
        assert set(seen.y.tolist()) == set.union(*labels[: t + 1])
    assert worlds.class_order(0) == list(range(10))
    assert worlds.class_order(1) != worlds.class_order(2)


def test_images_are_turned_about_their_middle() -> None:
    image = np.zeros((1, 28, 28), dtype=np.uint8)
    image[0, 4, 14] = 255
    assert (worlds.turned(image.reshape(1, -1), 0) == image.reshape(1, -1)).all()
    quarter = worlds.turned(image.reshape(1, -1), 90).reshape(28, 28)
    assert quarter.sum() > 200
    assert quarter[4, 14] == 0
    there = np.argwhere(quarter == quarter.max())[0]
    assert there[0] in (13, 14)


def test_the_peer_loses_nothing_over_stages(images: Task) -> None:
    X, y = images.train.X, images.train.y
    one, parts = (RecursiveRidge(0, "cpu", stem=False) for _ in range(2))
    for learner in (one, parts):
        learner._begin(X, y)
        learner._begin = lambda *_: None  # type: ignore[method-assign]
    one.learn(X, y)
    for label in range(10):
        parts.learn(X[y == label], y[y == label])
    np.testing.assert_array_equal(one.predict(images.test.X), parts.predict(images.test.X))


def test_a_part_must_be_known() -> None:
    with pytest.raises(
        ConfigError, match=r"one of classes, defaults, rows, domains, drift, drift-river, tried"
    ):
        ContinualPlan("all of it")


def test_the_page_has_a_section_and_a_figure_for_every_part(images: Task, tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
    from continual_page import TITLES, continual_page

    newest = {}
    for part in ("classes", "drift"):
        plan = ContinualPlan(part, ("mnist",), seeds=1, quick=True)
        record = measure_continual(plan, Records(tmp_path), device="cpu")
        newest[f"continual-{part}-cpu"] = {**record.content, "file": record.path.name}
    text, figures = continual_page(newest)
    assert set(figures) == {"continual-classes.svg", "continual-drift.svg"}
    for part, title in TITLES.items():
        assert (f"## {title}" in text) == (part in ("classes", "drift"))


def test_tables_need_their_wheels() -> None:
    plan = ContinualPlan("defaults", ("satimage",), seeds=1)
    with pytest.raises(ConfigError, match="Use --wheels"):
        measure_continual(plan, Records(Path("nowhere")), device="cpu")
