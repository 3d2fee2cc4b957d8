"""The README's examples run, and say what they should."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
# What each prints at least: accuracy, R2, micro-F1, accuracy.
LEAST = {"a classifier": 0.93, "a regressor": 0.25, "several labels": 0.65, "a quick fit": 0.9}


def test_there_is_a_bound_for_every_example() -> None:
    assert len(EXAMPLES) == len(LEAST)


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=list(LEAST))
def test_an_example_in_the_readme_runs(number: int, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXAMPLES[number]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) > list(LEAST.values())[number]
