"""The part of docs/continual.md on river's streams, from its record."""

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.continual.decays import RECENT
from benchmarks.continual.river_text import (
    decays_table,
    is_error,
    kinds_of,
    of_seeds,
)
from benchmarks.continual.streams import ABRUPT, BATCH_ROWS, BATCHES, GRADUAL, LATER
from protopinv.report import Panel, Series

Record = Mapping[str, Any]
# Lines that can be told apart, by short names; the table has all.
SHOWN = {
    "never": "first batch",
    "decay 0": "decay=0",
    "decay 0.3": "decay=0.3",
    "decay 1": "everything",
    "forest": "river's forest",
}

STREAMS = f"""\
[river](https://riverml.xyz) is a package for models that learn from streams. It generates some and
brings data with it. Four of these:

- *Agrawal, abrupt*: {BATCHES} batches of {BATCH_ROWS} rows. Loans are granted by a rule of age and
  salary among nine features; in the middle, within about {ABRUPT} rows, it becomes another rule.
- *SEA, gradual*: as many rows. The sum of two features of three is compared with a threshold, 7 at
  first and 9.5 at the end; the second takes over in {GRADUAL:,} rows. 10 % of labels are wrong.
- *TrumpApproval*: 950 days in batches of 50. From the date and five polls of how many Americans
  approve of their president follows the mean that a newspaper published. The error is the mean
  absolute one, in percentage points.
- *ImageSegments*: 2,200 patches of photographs in batches of 100, seven classes, in an order that
  means nothing. Nothing changes here, so this is the price of a decay.

Everybody predicts a batch before learning it, and only learns the first. Ours has
`effort="quick"`; the learners of river {{version}} have its defaults, behind a `StandardScaler` for
numbers and for linear models, and learn one row at a time, in the same order. *Row by row* they
also predict each row just before they learn it, which takes targets that are known before the next
row comes.
Accuracy in percent, mean and deviation over {{seeds}} seeds; each is another draw of a stream that
is generated, and begins {LATER} rows later in data:
"""
CHOOSING = f"""\
### How to choose a decay

Let models with several decays follow the stream side by side, and compare their scores on batches
they have not learned yet. No rows need to be held out for that, as every batch is predicted before
it is learned. When to choose matters. What comes after the first third of each stream, if the decay
is chosen among 0, 0.1, 0.3, 0.6 and everything, for every seed

- never, which is the default, 0,
- once, by the mean score in the first third,
- before every batch, by the mean score in the last {RECENT}: that model predicts, and all learn,
- by those who know the end:
"""
LESSON = ""


def river_text(record: Record) -> str:
    """What the streams are, and who follows them."""
    version = record["environment"]["versions"]["river"]
    return STREAMS.format(version=version, seeds=record["plan"]["seeds"])


def river_panels(record: Record) -> list[Panel]:
    """A stream each."""
    return [_panel(record, kind, legend=n == 0) for n, kind in enumerate(kinds_of(record))]


def _panel(record: Record, kind: str, *, legend: bool) -> Panel:
    lower, series = is_error(record, kind), []
    for name, label in SHOWN.items():
        tracks = zip(*(cell["after"] for cell in of_seeds(record, kind, name)), strict=True)
        means = [(1 if lower else 100) * statistics.mean(values) for values in tracks]
        batches = [batch + 2 for batch in range(len(means))]  # the first is only learned
        series.append(Series(label, batches, means))
    return Panel(kind, "batch", "error" if lower else "percent", series, legend=legend)


def choosing(record: Record) -> list[str]:
    """How to choose a decay, with what was measured."""
    return [*CHOOSING.splitlines(), "", *decays_table(record), "", *LESSON.splitlines()]
