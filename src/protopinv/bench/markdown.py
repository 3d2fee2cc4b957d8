"""Tables as text that reads well in a terminal and in Markdown."""

from collections.abc import Sequence


def markdown(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, aligned: bool = True
) -> list[str]:
    """Columns between bars, aligned unless their cells are sentences."""
    lines = [header, *rows] if aligned else [header]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]

    def joined(cells: Sequence[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    return [joined(header), f"|{'|'.join('-' * (width + 2) for width in widths)}|"] + [
        joined(row) for row in rows
    ]
