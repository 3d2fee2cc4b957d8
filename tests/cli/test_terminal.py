"""Names of a stranger's file are shown by a terminal, and never obeyed."""

import os
import pty
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import assert_refused, run

from protopinv import ProtoPINVClassifier
from protopinv.cli.output import ExitCode, for_people, one_line
from protopinv.plain import visible

# A colour, a colour in one character, the title of a window, a text from right to left, a line.
HOSTILE = ("\x1b[31mred", "\x9b31mred", "\x1b]0;title\x07", "\u202egnp.exe", "two\r\nlines\x7f")
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory, blobs) -> Path:
    """A model of columns and classes with such names, and rows for it."""
    folder = tmp_path_factory.mktemp("strange")
    X, y = blobs
    columns = dict(zip(HOSTILE[:4], X.T, strict=False))
    frame = pl.DataFrame({**columns, "kind": np.array(HOSTILE)[y]})
    frame = frame.with_columns(pl.col("kind").alias("two\x1b[1m"))
    model = ProtoPINVClassifier(n_prototypes=9, hidden_sizes=6, max_epochs=3, random_state=0)
    model.fit(frame.drop("kind"), frame["kind"]).save(folder / "m.safetensors")
    frame.write_parquet(folder / "rows.parquet")
    frame.drop(HOSTILE[0]).write_parquet(folder / "fewer.parquet")
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "m.safetensors"],
        ["inspect", "m.safetensors", "--all"],
        ["inspect", "m.safetensors", "--json"],
        ["inspect", "m.safetensors", "--card"],
        ["evaluate", "m.safetensors", "rows.parquet", "--target", "kind"],
        ["evaluate", "m.safetensors", "rows.parquet", "--target", "kind", "--json"],
        ["predict", "m.safetensors", "rows.parquet", "--json"],
    ],
    ids=" ".join,
)
def test_answers_hold_nothing_that_a_terminal_obeys(
    strange: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(strange)
    result = run(*arguments)
    assert result.returncode == 0, result.stderr
    assert "u001b" in result.stdout
    assert OBEYED.findall(result.stdout + result.stderr) == []


def test_errors_hold_nothing_that_a_terminal_obeys(
    strange: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(strange)
    for arguments, code in (
        (["predict", "m.safetensors", "fewer.parquet"], ExitCode.DATA),
        (["inspect", "\x1b[31mm.safetensors"], ExitCode.MODEL_FILE),
    ):
        result = run(*arguments)
        assert_refused(result, code, "[31m")
        assert OBEYED.findall(result.stderr) == []
    assert one_line("a\x1b[2Jb\nc") == "a\\u001b[2Jb c"


def test_predictions_are_guarded_on_a_terminal_and_exact_elsewhere(tmp_path: Path) -> None:
    text = "".join(f"{name}\n" for name in HOSTILE)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        for_people(terminal).write(text)
    shown = os.read(ours, 10_000).decode().replace("\r\n", "\n")
    os.close(ours)
    assert OBEYED.findall(shown) == []
    assert shown.startswith("\\u001b[31mred\n\\u009b31mred\n")
    with (tmp_path / "file").open("w") as file:
        for_people(file).write(text)
    assert (tmp_path / "file").read_bytes() == text.encode()


def test_ordinary_writing_stays_as_it_is() -> None:
    for text in ("Größe 1.5 µm", "日本語", "עברית", "العربية", "👩‍🔬", "a\\b"):
        assert visible(text) == text
