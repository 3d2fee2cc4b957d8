"""A disk that is full ends in an error about the output, and what stood there stays."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from protopinv import ProtoPINVClassifier
from protopinv.errors import OutputError
from protopinv.report import write_report

# Bytes that a file may have, in place of a disk that is full after so many.
ROOM = 200
OLD = "/* Written by protopinv 0 */"
PROTOPINV = [sys.executable, "-m", "protopinv"]


@pytest.fixture(scope="module")
def model() -> ProtoPINVClassifier:
    X = np.random.default_rng(0).normal(size=(60, 3))
    small = {"n_prototypes": 6, "hidden_sizes": 5, "n_members": 1, "early_stopping": False}
    return ProtoPINVClassifier(**small, max_epochs=2, random_state=0).fit(X, X[:, 0] > 0)


@contextmanager
def little_room() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("ending", ["safetensors", "c", "onnx", "mjs", "html", "saved"])
def test_a_full_disk_leaves_the_old_file(
    ending: str, model: ProtoPINVClassifier, tmp_path: Path
) -> None:
    path = tmp_path / ("m.safetensors" if ending == "saved" else f"m.{ending}")
    path.write_text(OLD)
    write = {"saved": model.save, "html": lambda place: write_report(model, place)}
    with (
        little_room(),
        pytest.raises(OutputError, match=rf"{path.name} was not \(File too large\)"),
    ):
        write.get(ending, model.export)(path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == OLD


@pytest.mark.parametrize("command", ["predict.csv", "predict.parquet", "train.toml"])
def test_a_full_disk_ends_a_command_as_errors_of_outputs_do(
    command: str, model: ProtoPINVClassifier, tmp_path: Path
) -> None:
    what, _, ending = command.partition(".")
    model.save(tmp_path / "m.safetensors")
    rows = np.random.default_rng(0).normal(size=(400, 3)).round(2)
    header = "x0,x1,x2"
    np.savetxt(tmp_path / "rows.csv", rows, "%g", ",", header=header, comments="")
    output = tmp_path / f"out.{ending}"
    output.write_text(OLD)
    arguments = {
        "predict": ["m.safetensors", "rows.csv", "--output", output.name],
        "train": ["rows.csv", "--target", "x0", "--save-config", output.name],
    }[what]
    done = subprocess.run(
        [*PROTOPINV, what, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM)),
    )
    assert f"error: An output must be written whole. {output.name} was not" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 7
    assert output.read_text() == OLD
