"""One way in for files: a path, or a folder of files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protopinv.errors import DataError
from protopinv.shards.arrow import ArrowRows
from protopinv.shards.formats import SUFFIXES
from protopinv.shards.source import IN_MEMORY_BYTES


def open_rows(
    path: str | Path,
    target: str | Sequence[str],
    *,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    separator: str | None = None,
    encoding: str | None = None,
    memory: int = IN_MEMORY_BYTES,
    cache: str | Path | None = "auto",
) -> ArrowRows:
    """The rows of a Parquet, Arrow or CSV file, or of all such files in a folder and below it.

    ``target`` and ``weight`` name columns; features are all others but those in ``drop``, unless
    ``features`` names them. CSV files have commas and UTF-8, unless ``separator`` and ``encoding``
    say otherwise. Rows of up to ``memory`` bytes are read once and kept in memory; more
    are read again for every pass over them, a few at a time. ``cache`` is a folder where rows are
    kept as plain numbers meanwhile, which are read several times faster than files are decoded:
    "auto" is the system's folder for temporary files, if these would take at most half of its free
    space; None decodes the files anew for every pass.
    """
    path = Path(path)
    targets = [target] if isinstance(target, str) else list(target)
    options: dict[str, Any] = {"weight": weight, "features": features, "drop": drop}
    options |= {"separator": separator, "encoding": encoding}
    options |= {"memory": memory, "cache": cache}
    if path.is_file():
        return ArrowRows([path], targets, root=path.parent, **options)
    if not path.is_dir():
        raise DataError(
            f"Rows must be in a file or a folder of files. There is no {path}. Check the path."
        )
    files = sorted(file for file in path.rglob("*") if _is_data(file, path))
    if not files:
        raise DataError(
            f"A folder of rows must hold {', '.join(SUFFIXES)} files. {path} holds none. Check the "
            "path."
        )
    kinds = {SUFFIXES[file.suffix.lower()] for file in files}
    if len(kinds) > 1:
        raise DataError(
            f"A folder of rows must hold files of one kind. {path} holds "
            f"{' and '.join(sorted(kinds))} files. Name one of them, or move the others."
        )
    return ArrowRows(files, targets, root=path, **options)


def _is_data(file: Path, root: Path) -> bool:
    """Not what tools keep in folders of data: names that begin with a dot or an underscore."""
    parts = file.relative_to(root).parts
    hidden = any(part.startswith((".", "_")) for part in parts)
    return file.suffix.lower() in SUFFIXES and file.is_file() and not hidden
