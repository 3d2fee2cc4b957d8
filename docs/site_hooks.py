"""What the site does beyond mkdocs: links into the repository, and no request to another host."""

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

# [text](../path): right on a code host, and outside of what the site has.
OUTWARD = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)#]+)[^)]*\)")
# What a browser fetches by itself when it shows a page; a link that someone may follow is not.
FETCHED = {
    ".html": re.compile(
        r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc=[\"']?((?:https?:)?//[^\"'\s>]+)"
        r"|<link\b(?![^>]*rel=[\"']?canonical)[^>]*\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)",
        re.IGNORECASE,
    ),
    ".css": re.compile(r"(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)()", re.IGNORECASE),
}


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Name files of the repository instead of linking to them; they must be there."""
    root = Path(config["config_file_path"]).parent
    folder = Path(config["docs_dir"]) / Path(page.file.src_uri).parent

    def named(link: re.Match[str]) -> str:
        text, path = link[1], link[2]
        climbed = link[0].count("../", len(text))
        target = (folder / ("../" * climbed) / path).resolve()
        if target.is_relative_to(config["docs_dir"]):
            return link[0]
        if not target.exists():
            raise PluginError(f"{page.file.src_uri} links to {path}, which is not there.")
        name = f"`{target.relative_to(root.resolve())}`"
        return name if text.strip("`") == path else f"{text} ({name})"

    return OUTWARD.sub(named, markdown)


def on_post_build(*, config: Any, **_: Any) -> None:
    """Fail if a page would ask another host for anything."""
    site = Path(config["site_dir"])
    found = [
        f"{file.relative_to(site)} asks {match[1] or match[2]}"
        for file in sorted(site.rglob("*"))
        if file.suffix in FETCHED
        for match in FETCHED[file.suffix].finditer(file.read_text(encoding="utf-8"))
    ]
    if found:
        raise PluginError("The site must not ask other hosts for anything:\n" + "\n".join(found))
