"""The example adds an eleventh class to a model from a file."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "eleventh_class.py"


def test_an_eleventh_class_is_added_and_ten_are_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLE)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found = dict(line.split(": ", 1) for line in result.stdout.splitlines())
    assert found["classes"] == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, inverted"
    assert float(found["digits"]) > 0.85
    assert float(found["inverted"]) > 0.9
