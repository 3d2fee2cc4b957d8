"""Every example runs, and says what it should."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def printed(name: str, place: Path) -> dict[str, str]:
    """What an example prints, by the word before the colon."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name)]
    result = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return dict(line.split(": ", 1) for line in result.stdout.splitlines())


def test_an_eleventh_class_is_added_and_ten_are_kept(tmp_path: Path) -> None:
    found = printed("eleventh_class.py", tmp_path)
    assert found["classes"] == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, inverted"
    assert float(found["digits"]) > 0.85
    assert float(found["inverted"]) > 0.9


def test_every_example_is_tested() -> None:
    tested = Path(__file__).read_text(encoding="utf-8")
    assert all(path.name in tested for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_says_what_it_is(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith('"""')
