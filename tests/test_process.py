"""A library is a guest in its process: forks of it work, and generators are left alone."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, load
from protopinv.report import write_report

SMALL: dict[str, Any] = {"effort": "quick", "max_epochs": 3, "random_state": 0}
ROWS = np.random.default_rng(0).normal(size=(1_000, 40))
# The parent has started the second of its threads in each of these ways when it forks.
FORKS = """
import hashlib, os, signal, sys
import numpy as np
import torch
from protopinv import ProtoPINVClassifier, load
from protopinv.train import machine

machine.WORK_FOR_THREADS = 0  # all work is done by two
torch.set_num_threads(2)
X = np.random.default_rng(0).normal(size=(1_000, 40))

def answers(model):
    return hashlib.sha256(model.predict_proba(X).tobytes()).digest()

def answers_in_a_child(model):
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os.write(there, answers(model))
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit("a child hangs")
    return os.read(here, 100)

model = load(sys.argv[1])
after_load = answers_in_a_child(model)
assert after_load == answers(model) == answers_in_a_child(model)
model = ProtoPINVClassifier(effort="quick", max_epochs=1, random_state=0).fit(X, X[:, 0] > 0)
after_fit = answers_in_a_child(model)
assert after_fit == answers(model)
assert torch.get_num_threads() == 2
"""


def test_a_forked_child_predicts_what_its_parent_does(tmp_path: Path) -> None:
    model = ProtoPINVClassifier(**SMALL, n_prototypes=100, hidden_sizes=256)
    model.fit(ROWS, ROWS[:, 0] > 0).save(tmp_path / "m.safetensors")
    command = [sys.executable, "-c", FORKS, str(tmp_path / "m.safetensors")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.filterwarnings("ignore::protopinv.errors.ExportWarning")
def test_generators_of_torch_and_numpy_are_left_alone(tmp_path: Path) -> None:
    X, path = ROWS[:100, :5], tmp_path / "m.safetensors"
    y = X[:, 0] > 0
    model = ProtoPINVClassifier(**SMALL, scaling="feature", activation="relu")
    steps: dict[str, Any] = {
        "fit": lambda: model.fit(X, y),
        "fit numbers": lambda: ProtoPINVRegressor(**SMALL).fit(X, X[:, 0]),
        "partial_fit": lambda: model.partial_fit(X, y),
        "predict": lambda: model.predict_proba(X),
        "save": lambda: model.save(path),
        "load": lambda: load(path),
        "onnx": lambda: model.export(tmp_path / "m.onnx"),
        "c": lambda: model.export(tmp_path / "m.c"),
        "int8": lambda: model.export(tmp_path / "m.c", dtype="int8"),
        "javascript": lambda: model.export(tmp_path / "m.mjs"),
        "safetensors": lambda: model.export(tmp_path / "small.safetensors"),
        "to_torch": model.to_torch,
        "to_sklearn": model.to_sklearn,
        "report": lambda: write_report(model, tmp_path / "page.html", X, y),
        "diagnose": lambda: (model.diagnose(), model.check_lemma()),
        "grow and prune": lambda: model.grow(2).prune(10),
    }
    draws = []
    for name, step in steps.items():
        before = torch.get_rng_state(), np.random.get_state()[1:3]
        step()
        after = torch.get_rng_state(), np.random.get_state()[1:3]
        if not (torch.equal(before[0], after[0]) and repr(before[1]) == repr(after[1])):
            draws.append(name)
    assert draws == []
