"""Tables as text that reads well in a terminal and in Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from protopinv.bench.paper import TableRow, table_rows

NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion"}


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns between bars."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]

    def joined(cells: Sequence[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    return [joined(header), f"|{'|'.join('-' * (width + 2) for width in widths)}|"] + [
        joined(row) for row in rows
    ]


def paper_table(*records: Mapping[str, Any]) -> list[str]:
    """Table 1 from one or more records; each says where it was measured."""
    datasets = list(dict.fromkeys(name for r in records for name in r["plan"]["datasets"]))
    header = ["method", "trained", "shipped", "fit", "on", *(f"{NAMES[d]} %" for d in datasets)]
    rows = [
        _table_row(row, record["environment"]["device"], datasets)
        for record in records
        for row in table_rows(record)
    ]
    return markdown(header, rows)


def _table_row(row: TableRow, device: str, datasets: Sequence[str]) -> list[str]:
    cells = [row.method.title, f"{row.trained:,}", f"{row.shipped:,}", f"{row.seconds:.2f} s"]
    return [*cells, device, *(_score(row, dataset) for dataset in datasets)]


def _score(row: TableRow, dataset: str) -> str:
    score = row.scores.get(dataset)
    if score is None:
        return ""
    said = row.method.paper.get(dataset)
    return f"{score} (n = {score.n})" + (f"; paper {said}" if said is not None else "")
