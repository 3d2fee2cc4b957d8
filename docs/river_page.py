"""The part of docs/continual.md on river's streams, from its record."""

import statistics
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.continual.drift import ABRUPT, BATCH_ROWS, BATCHES, GRADUAL, LATER
from benchmarks.continual.river_text import (
    RECENT,
    WHO,
    ahead_of,
    decays_table,
    is_error,
    kinds_of,
    of_seeds,
)
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

- *Agrawal, abrupt*: {BATCHES} batches of {BATCH_ROWS} rows of nine features. Loans are granted by
  age alone; in the middle, within about {ABRUPT} rows, it is by age, salary and loan.
- *SEA, gradual*: as many rows. The sum of two features of three is compared with a threshold, 7 at
  first and 9.5 at the end; the second takes over in {GRADUAL:,} rows. 10 % of labels are wrong.
- *TrumpApproval*: 950 days in batches of 50. From the date and five polls of how many Americans
  approve of their president follows what FiveThirtyEight's model made of them. The error is the
  mean absolute one, in percentage points.
- *ImageSegments*: 2,200 patches of photographs in batches of 100, seven classes, in an order that
  means nothing. Nothing changes here, so this is the price of a decay.

Everybody predicts a batch before learning it, and only learns the first. Ours has
`effort="quick"`; the learners of river {{version}} have its defaults, behind a `StandardScaler` for
numbers and for linear models, and learn one row at a time, in the same order. *Row by row* they
also predict each row just before they learn it, which takes targets that are known before the next
row comes. Their trees are made for longer streams than these. Accuracy in percent, mean and
deviation over {{seeds}} seeds: each is another draw of a stream that is generated, and begins
{LATER} rows later in data:
"""
CHOOSING = f"""\
### How to choose a decay

Let models with several decays follow the stream side by side, and let the one that was best in the
last few batches predict the next. No rows need to be held out for that, as every batch is predicted
before it is learned:

```python
from copy import deepcopy

models = {{decay: deepcopy(model) for decay in (0.0, 0.3, 0.6)}}
scores = {{decay: [] for decay in models}}
for rows, labels in batches:
    for decay, each in models.items():
        scores[decay].append(evaluate(each, rows, labels).accuracy)
        each.partial_fit(rows, labels, decay=decay)
best = max(models, key=lambda decay: np.mean(scores[decay][-{RECENT}:]))  # predicts the next batch
```

What follows is the score after the first third of each stream above, if the decay is one of 0, 0.1,
0.3, 0.6 and everything, chosen for every seed

- not at all, but left at the default, 0,
- once, by the mean score in the first third,
- before every batch, by the mean score in the last {RECENT},
- by somebody who knows what will come:
"""
LESSON = """\
Where a change is still to come, the first third cannot know of it: a decay chosen there is behind
on both generated streams. Choosing before every batch comes within two points of what hindsight
would have chosen, and within 0.05 of its error. It costs a model for every decay. Where there can
be only one, `decay=0.6` is within one point of the best decay on all of these streams, and within
0.05 of its error; on *ImageSegments*, where nothing changes, that is its price.

A decay is forgotten at every call, so smaller batches need a smaller one: what one call with 0.6
forgets, two calls with 0.37 forget together.
"""


def river_text(record: Record) -> str:
    """What the streams are, and who follows them."""
    version = record["environment"]["versions"]["river"]
    return STREAMS.format(version=version, seeds=record["plan"]["seeds"])


def river_verdict(record: Record) -> list[str]:
    """Where river's forest is ahead of ours, by the means of the table."""
    batches, rows = (_ahead(record, score) for score in (None, "row by row"))
    told = (
        f"By these means river's forest is ahead {batches}. "
        f"Predicting row by row, it is ahead {rows}."
    )
    return textwrap.wrap(told, 100, break_on_hyphens=False)


def _ahead(record: Record, score: str | None) -> str:
    behind = {kind: ahead_of(record, kind, score) for kind in kinds_of(record)}
    places = [
        f"on *{k}* of {_listed([WHO[n] for n in ours])}" for k, ours in behind.items() if ours
    ]
    return "; ".join(places) or "nowhere"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([part for part in (", ".join(names[:-1]), names[-1]) if part])


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
    return [*CHOOSING.splitlines(), "", *decays_table(record), "", *LESSON.splitlines(), ""]
