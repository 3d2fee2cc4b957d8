"""The site names files of the repository, and asks no other host for anything."""

import re
import runpy
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from mkdocs.exceptions import PluginError

ROOT = Path(__file__).parents[1]
HOOKS = runpy.run_path(str(ROOT / "docs" / "site_hooks.py"))
CONFIG = {"config_file_path": str(ROOT / "mkdocs.yml"), "docs_dir": str(ROOT / "docs")}


def as_shown(markdown: str, page: str = "speed.md") -> str:
    file = SimpleNamespace(src_uri=page)
    return HOOKS["on_page_markdown"](markdown, page=SimpleNamespace(file=file), config=CONFIG)


def test_files_of_the_repository_are_named() -> None:
    assert as_shown("in [tests/cli](../tests/cli).") == "in `tests/cli`."
    assert as_shown("[a file](../LICENSE)") == "a file (`LICENSE`)"


def test_pages_stay_links() -> None:
    for text, page in (("[x](cli.md)", "speed.md"), ("[x](../cli.md#y)", "api/rows.md")):
        assert as_shown(text, page) == text


def test_members_in_the_api_pages_are_there() -> None:
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        blocks = page.read_text(encoding="utf-8").split("\n::: ")[1:]
        for block in blocks:
            module, _, name = block.split("\n", 1)[0].strip().rpartition(".")
            thing = getattr(import_module(module), name)
            fields = getattr(thing, "__dataclass_fields__", {})
            listed = re.search(r"members: \[(.+?)\]", block)
            for member in listed[1].split(", ") if listed else ():
                assert hasattr(thing, member) or member in fields, f"{page.name}: {name}.{member}"


def test_a_file_that_is_not_there_is_an_error() -> None:
    with pytest.raises(PluginError, match=r"nothing\.py, which is not there"):
        as_shown("[x](../nothing.py)")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", '<script src="https://cdn.example/x.js"></script>'),
        ("a.html", "<img alt=x src=//images.example/x.png>"),
        ("a.html", '<link rel="stylesheet" href="https://fonts.example/css?family=Roboto">'),
        ("a.css", "@font-face{src:url(https://fonts.example/a.woff2)}"),
        ("a.css", '@import "https://fonts.example/a.css";'),
    ],
)
def test_a_request_to_another_host_is_an_error(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(PluginError, match="must not ask other hosts"):
        HOOKS["on_post_build"](config={"site_dir": str(tmp_path)})


def test_links_to_others_and_files_of_its_own_are_fine(tmp_path: Path) -> None:
    text = '<a href="https://example.org">x</a><script src="assets/x.js"></script>'
    (tmp_path / "a.html").write_text(text + '<link rel="canonical" href="https://a.example/">')
    HOOKS["on_post_build"](config={"site_dir": str(tmp_path)})
