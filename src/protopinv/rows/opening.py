"""One way in for files: a path, or a folder of files."""

from collections.abc import Sequence
from pathlib import Path

from protopinv.errors import DataError
from protopinv.rows.arrow import ArrowRows
from protopinv.rows.formats import SUFFIXES, format_of
from protopinv.rows.source import IN_MEMORY_BYTES
from protopinv.rows.text import Written


def open_rows(
    path: str | Path,
    target: str | Sequence[str],
    *,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    as_text: Sequence[str] = (),
    separator: str | None = None,
    encoding: str | None = None,
    memory: int = IN_MEMORY_BYTES,
    cache: str | Path | None = "auto",
) -> ArrowRows:
    """The rows of a Parquet, Arrow or CSV file, or of all such files in a folder and below it.

    ``target`` and ``weight`` name columns; features are all others but those in ``drop``, unless
    ``features`` names them. CSV files may be packed by gzip; how they are written is found out,
    unless ``separator`` and ``encoding`` say it, and columns ``as_text`` stay what is written.
    Rows of up to ``memory`` bytes are read once and kept in memory; more are read again for every
    pass over them, a few at a time. ``cache`` is a folder where rows are kept as plain numbers
    meanwhile, which are read several times faster than files are decoded: "auto" is the system's
    folder for temporary files, if these would take at most half of its free space; None decodes the
    files anew for every pass.
    """
    path = Path(path)
    targets = [target] if isinstance(target, str) else list(target)
    files, root = _files(path)
    rows = ArrowRows(
        files,
        targets,
        weight=weight,
        features=features,
        drop=drop,
        as_text=as_text,
        written=Written(separator, encoding),
        root=root,
        memory=memory,
        cache=cache,
    )
    used = {*targets, *drop, weight}
    twice = [name for name in features or () if name in used]
    if twice:
        raise DataError(
            f"A feature must be no target, no weight and not dropped. {twice[0]!r} is. Leave it "
            "out of the features."
        )
    return rows


def _files(path: Path) -> tuple[list[Path], Path]:
    """The files at a path, and the folder in which they have their names."""
    if path.is_file():
        return [path], path.parent
    if not path.is_dir():
        raise DataError(
            f"Rows must be in a file or a folder of files. There is no {path}. Check the path."
        )
    files = sorted(file for file in path.rglob("*") if _is_data(file, path))
    # beside other files of data a .txt file says what they are
    files = [file for file in files if not _is_note(file)] or files
    if not files:
        raise DataError(
            f"A folder of rows must hold {', '.join(SUFFIXES)} files. {path} holds none. Check the "
            "path."
        )
    kinds = {str(format_of(file)) for file in files}
    if len(kinds) > 1:
        raise DataError(
            f"A folder of rows must hold files of one kind. {path} holds "
            f"{' and '.join(sorted(kinds))} files. Name one of them, or move the others."
        )
    return files, path


def _is_note(file: Path) -> bool:
    return file.name.lower().endswith((".txt", ".txt.gz"))


def _is_data(file: Path, root: Path) -> bool:
    """Not what tools keep in folders of data: names that begin with a dot or an underscore."""
    parts = file.relative_to(root).parts
    hidden = any(part.startswith((".", "_")) for part in parts)
    return format_of(file) is not None and file.is_file() and not hidden
