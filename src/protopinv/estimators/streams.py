"""Rows that come as files, sparse matrices or maps of files, at the doors of the estimators."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from protopinv.errors import ColumnsWarning, DataError
from protopinv.estimators.classes import check_class_weight, class_factors, few
from protopinv.rows import ArrayRows, ArrowRows, Block, Piece, RowSource, SparseRows
from protopinv.rows.source import IN_MEMORY_BYTES, Wanted
from protopinv.tables import hint
from protopinv.train.ranks import expected
from protopinv.train.summary import LabelCounts
from protopinv.train.survey import pieces_of, rows_a_piece


def as_source(
    X: Any, y: Any, sample_weight: Any, columns: Mapping[str, str] | None = None
) -> RowSource | None:
    """A source of rows, where X is one or should be read as one; None for anything else.

    Files of which a user says what their ``columns`` are come as frames.
    """
    if isinstance(X, RowSource):
        if y is not None or sample_weight is not None:
            raise DataError(
                "A source of rows brings its targets and weights along. y or sample_weight were "
                "given too. Leave them out, or name their columns in open_rows."
            )
        if columns and isinstance(X, ArrowRows) and not X.is_framed:
            return X.with_columns(X.names or (), framed=True)
        return X
    if y is None:
        return None
    if isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes > IN_MEMORY_BYTES:
        return ArrayRows(X, y, sample_weight)
    if issparse(X) and X.ndim == 2 and X.shape[0]:
        return SparseRows(X, y, sample_weight)
    return None


def matched(source: RowSource, names: Sequence[str], *, framed: bool) -> RowSource:
    """The columns that a model was fitted on, in their order; others are left out with a note.

    Raises DataError where one is missing. ``framed`` says that the model takes frames.
    """
    there = source.names or ()
    missing = [name for name in names if name not in there]
    if missing:
        raise DataError(
            f"Every feature of the model must be a column. There is no {missing[0]!r}; there are "
            f"{few(list(there))}. {hint(missing[0], list(there))}"
        )
    further = [name for name in there if name not in names]
    if further:
        warnings.warn(
            ColumnsWarning(
                f"Rows should have the columns of the fit, and no others. They have "
                f"{few(further)} too. Went on without."
            ),
            stacklevel=4,
        )
    if isinstance(source, ArrowRows):
        return source.with_columns(names, framed=framed)
    return source if tuple(names) == there else _Ordered(source, names)


def is_small(source: RowSource) -> bool:
    """Whether the rows are read once and then trained on as arrays are."""
    return expected() == 1 and source.fits_in_memory()


def pieces_as_they_are(source: RowSource) -> Iterator[Piece]:
    """All rows, some at a time; those of a table with text as a frame."""
    if isinstance(source, ArrowRows) and source.is_framed:
        for block in source.blocks:
            yield from source.frames(block, Wanted(rows_a_piece(source)))
    else:
        yield from (piece for _, piece in pieces_of(source, source.blocks))


def joined(rows: Sequence[Any]) -> Any:
    """Arrays, or tables of Arrow, as one."""
    if isinstance(rows[0], np.ndarray):
        return np.concatenate(rows)
    import pyarrow as pa

    return pa.concat_tables(rows)


def with_class_weight(source: RowSource, class_weight: Any) -> RowSource:
    """The same rows, each of which counts as its class does, too."""
    if class_weight is None:
        return source
    check_class_weight(class_weight, is_column=source.is_column)
    counts = LabelCounts()
    for block, piece in pieces_of(source, source.blocks, features=False):
        mass = np.ones(len(piece.X)) if piece.weight is None else piece.weight
        counts.add(np.asarray(piece.y), mass, block.file)
    labels = counts.labels()
    each = np.array([counts.mass[label] for label in labels.tolist()])
    return Weighted(source, labels, class_factors(class_weight, labels, each))


# What a source that wraps another has from it.
KEPT = ("blocks", "n_features", "names", "is_column", "n_bytes", "memory", "cache")


class _Ordered(RowSource):
    """Rows of another source with some of its columns, in another order."""

    def __init__(self, source: RowSource, names: Sequence[str]) -> None:
        self._source = source
        for name in KEPT:
            setattr(self, name, getattr(source, name))
        self._order = [(source.names or ()).index(name) for name in names]
        self.names, self.n_features = tuple(names), len(names)

    def read(self, block: Block, wanted: Wanted) -> Iterator[Piece]:
        for piece in self._source.read(block, wanted):
            yield piece._replace(X=piece.X[:, self._order]) if wanted.features else piece

    def fingerprint(self) -> dict[str, Any]:
        return {**self._source.fingerprint(), "columns": list(self.names or ())}


class Weighted(RowSource):
    """Rows of another source, each of which counts as its class does, too."""

    def __init__(
        self, source: RowSource, labels: NDArray[Any], factors: NDArray[np.float64]
    ) -> None:
        self._source, self.labels, self.factors = source, labels, factors
        for name in (*KEPT, "table", "examples"):
            setattr(self, name, getattr(source, name))

    def read(self, block: Block, wanted: Wanted) -> Iterator[Piece]:
        """Those of the other source, with other weights."""
        for piece in self._source.read(block, wanted):
            # labels without weight are not known, and count nothing whatever their factor is
            code = np.searchsorted(self.labels, np.asarray(piece.y))
            factor = self.factors[code.clip(max=len(self.factors) - 1)]
            weight = factor if piece.weight is None else piece.weight * factor
            yield piece._replace(weight=weight)

    def fingerprint(self) -> dict[str, Any]:
        """That of the other source, and what classes count."""
        factors = dict(zip(map(str, self.labels.tolist()), self.factors.tolist(), strict=True))
        return {**self._source.fingerprint(), "class_weight": factors}
