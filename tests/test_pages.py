"""Every block of code in README and docs runs, in the order of its page, and prints what is shown.

A block that is not run says why, in a comment before it.
"""

import contextlib
import io
import re
import shlex
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from sklearn.datasets import load_iris

from benchmarks.cli import app as study
from protopinv import ProtoPINVClassifier
from tests.cli.commands import run

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+?) -->\n)?^```(?P<kind>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
RUN = ("python", "sh")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@dataclass(frozen=True)
class Block:
    kind: str
    body: str
    reason: str | None


def blocks_of(page: Path) -> list[Block]:
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(block["kind"], block["body"], block["reason"]) for block in found]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


WITH_CODE = [p for p in PAGES if any(b.kind in RUN and not b.reason for b in blocks_of(p))]


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_a_page_runs_and_prints_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for make in GIVEN.get(name_of(page), ()):
        make()
    names: dict[str, object] = {"__name__": "__page__"}
    printed: str | None = None
    for block in blocks_of(page):
        if block.kind == "text":
            if printed is not None:
                assert_shown(block.body, printed)
            printed = None
        elif block.reason or block.kind not in RUN:
            printed = None
        elif block.kind == "python":
            printed = run_python(block.body, names, name_of(page))
        else:
            printed = "".join(run_line(line) for line in lines_of(block.body))


def run_python(code: str, names: dict[str, object], page: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # as Python does by itself
        exec(compile(code, page, "exec"), names)
    return out.getvalue()


def lines_of(body: str) -> Iterator[str]:
    """Commands, put together where a backslash divides them."""
    for line in body.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            yield line


def run_line(line: str) -> str:
    """A command of ours runs; of make and the study, which take long, it must exist."""
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        assert re.search(rf"^[\w ]*\b{words[1]}\b[\w ]*:", (ROOT / "Makefile").read_text(), re.M)
        return ""
    if words[:3] == ["python", "-m", "benchmarks"]:
        assert words[3] in typer.main.get_command(study).commands
        return ""
    assert words[0] == "protopinv", f"{line!r} is neither run nor said to be left out"
    command, _, target = " ".join(words[1:]).partition(" > ")
    result = run(*command.split())
    assert result.returncode == 0, result.stderr
    if target:
        Path(target).write_text(result.stdout, encoding="utf-8")
    return "" if target else result.stdout


def assert_shown(shown: str, printed: str) -> None:
    """The same words, and numbers that are about the same; a line of "..." stands for any."""
    text, start = " ".join(printed.split()), 0
    masked, numbers = NUMBER.sub("@", text), NUMBER.findall(text)
    for part in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE):
        said = " ".join(part.split())
        words = NUMBER.sub("@", said)
        place = masked.find(words, start)
        assert place >= 0, f"{words!r} is not in {masked!r}"
        first, start = masked[:place].count("@"), place + len(words)
        for one, other in zip(NUMBER.findall(said), numbers[first:], strict=False):
            assert is_about(one, other), f"{one} is {other} in {text!r}"


def is_about(said: str, printed: str) -> bool:
    one, other = (float(number.replace(",", "")) for number in (said, printed))
    least = 0.1 if "." in said else 1  # counts may be off by one
    return abs(one - other) <= least + 0.2 * max(abs(one), abs(other))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_escapes(page: Path) -> None:
    found = blocks_of(page)
    assert len(re.findall(r"^\s*```", page.read_text(encoding="utf-8"), re.M)) == 2 * len(found)
    assert {block.kind for block in found} <= {*RUN, "text", "yaml"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    lost = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert not lost


# What the commands of a page are given, where the page itself does not make it.


def flowers() -> None:
    X, y = load_iris(return_X_y=True)
    table = pl.DataFrame(X, schema=["a", "b", "c", "d"])
    known = table.with_columns(species=np.array(["iris setosa", "versicolor", "virginica"])[y])
    for name in ("flowers.csv", "more-flowers.csv", "train.csv"):
        known.write_csv(name)
    table.write_parquet("new-flowers.parquet")


def houses() -> None:
    random = np.random.default_rng(0)
    area, sales = random.uniform(40, 200, 120), random.integers(1, 9, 120)
    price = 1000 * area + random.normal(0, 5000, 120)
    pl.DataFrame({"area": area, "sales": sales, "price": price}).write_csv("houses.csv")


def people() -> None:
    random = np.random.default_rng(0)
    age, city = random.integers(18, 80, 120), random.choice(["Lima", "Oslo"], 120)
    churn = np.where((city == "Oslo") | (age > 60), "yes", "no")
    columns = {"id": np.arange(120), "age": age, "city": city, "zip": age % 7, "churn": churn}
    pl.DataFrame(columns).write_csv("people.csv")


def big() -> None:
    random = np.random.default_rng(0)
    Path("big").mkdir()
    for number in range(2):
        X = random.standard_normal((100, 3))
        table = pl.DataFrame(X, schema=["a", "b", "c"]).with_columns(y=(X[:, 0] > 0).astype(int))
        table.write_parquet(f"big/part-{number}.parquet")


def model() -> None:
    X, y = load_iris(return_X_y=True)
    table = pl.DataFrame(X, schema=["a", "b", "c", "d"])
    table.with_columns(y=y).write_csv("train.csv")
    small = ProtoPINVClassifier(n_prototypes=12, hidden_sizes=8, max_epochs=20, random_state=0)
    small.fit(table, y).save("model.safetensors")


GIVEN = {
    "README.md": (flowers, houses),
    "docs/export.md": (model,),
    "docs/format.md": (model,),
    "docs/scale.md": (big,),
    "docs/tables.md": (people,),
}
