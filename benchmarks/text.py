"""Tables, times and scores as text that reads well in a terminal and in Markdown."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


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


def readable(time: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if time >= size:
            return f"{time / size:.3g} {unit}"
    return f"{time / 1e-6:.3g} µs"


@dataclass(frozen=True)
class Score:
    """Mean and deviation over n seeds."""

    mean: float
    sd: float | None
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.sd is None else f"{self.mean:.2f} ± {self.sd:.2f}"


def over_seeds(values: Sequence[float]) -> Score:
    """Mean and standard deviation."""
    sd = statistics.stdev(values) if len(values) > 1 else None
    return Score(statistics.mean(values), sd, len(values))


def percent(values: Sequence[float]) -> Score:
    """Mean and standard deviation of shares, in percent."""
    return over_seeds([100 * value for value in values])
