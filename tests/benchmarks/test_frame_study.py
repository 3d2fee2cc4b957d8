"""The study of frames: scores are what they say, and its table has a line for each frame."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.record import Records
from benchmarks.tables import frames
from benchmarks.tables.frames import CONTESTANTS, FramePlan, frame_table, measure_frames


def people() -> pd.DataFrame:
    random = np.random.default_rng(0)
    city = random.choice(["Rome", "Oslo", "Lima"], 200)
    return pd.DataFrame({"city": city, "age": random.standard_normal(200), "is": city == "Oslo"})


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_every_frame_has_a_line(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = people()
    is_class = task == "classification"
    y = (X["city"] == "Rome").to_numpy().astype(int) if is_class else X["age"].to_numpy()
    ours = tuple(who for who in CONTESTANTS if who not in ("lightgbm", "catboost"))
    monkeypatch.setattr(frames, "CONTESTANTS", ours)
    monkeypatch.setattr(frames, "_load", lambda _, __: (X, y, task))
    plan = FramePlan(tables=("people",), seeds=1, quick=True)
    record = measure_frames(plan, Records(tmp_path), wheels=None).content
    cells = record["cells"]
    assert cells["people"] == {
        "task": task,
        "rows": 200,
        "columns": 3,
        "categories": 1,
        "most_values": 3,
    }
    assert all(cells[f"people/{who}/0"]["score"] > 0.8 for who in ours)
    assert ("log_loss" in cells["people/quick/0"]) is is_class
    assert "people, 200 rows" in frame_table(record)[2]
