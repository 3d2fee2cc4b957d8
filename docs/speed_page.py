"""docs/speed.md, from dated records."""

from collections.abc import Mapping
from typing import Any

from results_page import recipe

from benchmarks.speed.study import speed_panels, speed_tables
from benchmarks.tables.small import MOST_ROWS, small_tables
from protopinv.report.figures import plot, save_figure

Record = Mapping[str, Any]

PROSE = """\
Every figure comes from a dated record in [benchmarks/records](../benchmarks/records);
`python -m benchmarks speed` makes one. Times are medians. Epochs, steps and predictions are timed
in turns with the peer in the same process, because machines are noisy: look at ratios first. A fit
from host arrays is timed by itself, ours once a seed and the peer once. The floor is what the
products with rows would take at the machine's own measured rate, or moving the rows at its
bandwidth if that takes longer; solves, losses and updates are not in it.

The quick fit of ours was chosen on held-out rows, among nine on the CPU and 24 on the GPU, then
scored on the test set once for each of five seeds. A peer *at its defaults* was not chosen at all,
so that line favours us; a peer that is *best of nine* was chosen on the same rows as ours.{tuned}

The ratio to the paper's listing on a CPU moves with the machine. The MLP in our own loop shares our
kernels for its data pass and its update, so what lies between it and our step is the price of the
solves; by torch's own operations it is slower than ours.
"""

SMALL = """\
Seconds of a default fit on a whole table of up to {most_rows:,} rows, against scikit-learn's
MLPClassifier at its defaults, once on features as they came and once on scaled ones. Medians of
{repeats} repeats, in turns in one process. The ratio is our time to theirs. Accuracies are those of
the same folds, cross-validated.

"""


def speed_page(newest: Mapping[str, Record]) -> tuple[str, dict[str, bytes]]:
    """The page and its figures."""
    lines = ["# Speed", "", *PROSE.format(tuned=_untuned(newest.get("speed-cpu"))).splitlines()]
    drawn: dict[str, bytes] = {}
    for device in ("cuda", "cpu"):
        if (record := newest.get(f"speed-{device}")) is None:
            continue
        lines += ["", f"## {record['environment']['device']}", "", *speed_tables(record)]
        if "scaling/n" in record["cells"]:
            name = f"speed-{device}.svg"
            drawn[name] = save_figure(plot(speed_panels(record), columns=4))
            lines += ["", f"![Seconds of an epoch against sizes](figures/{name})"]
        lines += ["", f"<sub>{recipe(record)}</sub>"]
    if (record := newest.get("small-cpu")) is not None:
        prose = SMALL.format(most_rows=MOST_ROWS, repeats=record["plan"]["repeats"])
        lines += ["", "## Small tables", "", *prose.splitlines(), *small_tables(record)]
        lines += ["", "`python -m benchmarks small --wheels FOLDER` makes these tables."]
        lines += ["", f"<sub>{recipe(record)}</sub>"]
    return "\n".join(lines) + "\n", drawn


def _untuned(record: Record | None) -> str:
    """A word where the newest record has no tuned peer yet."""
    fit = {} if record is None else record["cells"].get("fit", {}).get("seconds", {})
    return "" if "tuned peer" in fit else " The record below has no such line yet."
