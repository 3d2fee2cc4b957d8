"""docs/continual.md, from dated records."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from results_page import recipe
from river_page import choosing, river_panels, river_text, river_verdict

from benchmarks.continual.river_text import river_table
from benchmarks.continual.study import RIVER
from benchmarks.continual.text import TABLES, WHO, cells, names
from benchmarks.continual.worlds import CHANGES, DEGREES
from protopinv.bench.tasks import DATASETS
from protopinv.report import Panel, Series, plot, save_figure

Record = Mapping[str, Any]

START = """\
# Learning that continues

A fitted model can learn more rows, and classes it has never seen, without those it was fitted on:

```python
import numpy as np
from sklearn.datasets import load_digits
from protopinv import ProtoPINVClassifier, evaluate

X, y = load_digits(return_X_y=True)
train = np.arange(len(y)) < 1300
known, late = train & (y < 8), train & (y >= 8)
model = ProtoPINVClassifier(effort="quick", random_state=0).fit(X[known], y[known])
model.partial_fit(X[late], y[late])  # two classes it has never seen; the other rows are gone
print(model.classes_.tolist(), f"{model.score(X[~train], y[~train]):.2f}")
```

```text
[0, 1, 2, 3, 4, 5, 6, 7, 8, 9] 0.92
```

`classes_` stays sorted, and the columns of `predict_proba` follow it. All of this works for
`ProtoPINVRegressor`, for several labels a row, for frames, for sources of rows (`open_rows`), for
means of several banks, and after `load`. `examples/eleventh_class.py` adds a class to a model from
a file by two lines.

## What is kept of the rows

A *memory* takes the place of the rows. The features that the network sees are cut into the 48
directions in which the first rows vary most, and the rest, the *tail*. Along the directions every
class is a mixture of up to ten Gaussians, stored as sums: the number of rows, their weight, their
mean and their scatter matrix, in float64. In the tail a class has a mean and a variance for every
feature. No rows are stored: a Gaussian stands for 25 rows at least, unless a class has fewer.
The *examples* in a model file are rows; `save` has options to leave them out, and the memory too.

The memory has at most 138,500 numbers, and at most a quarter of those of the rows;
`ProtoPINVClassifier(memory=...)` sets another limit, and 0 keeps nothing. New rows become Gaussians
of their own. Where there are too many, the two of a class whose union loses least are united.

`partial_fit` then

1. draws rows from the memory, two for every new row and 2,000 at least,
2. asks the network that there was what it says of them. That is what a drawn row should be
   answered; with a new class it is half of it, the other half being the row's own class,
3. grows every bank by ten prototypes for each new class,
4. trains the banks on new and drawn rows, with a new class for four tenths of the epochs of a fit
   at three tenths of its rate. Without one it is less, the fewer of all rows so far are new: down
   to seven hundredths of the epochs, and the rate by the square root of that share,
5. adds the new rows to the memory.

If anything is wrong with what was given, the model stays as it was.

**What is exact.** The sums of the memory are those of all rows, whatever the calls they came in,
until a new class turns the directions (of a source larger than memory, a fit keeps those of a
sample, scaled to all of its rows).
`forget(label)` takes out all that the memory has of a class, and leaves the outputs of the other
classes as they were, up to rounding. **What is not.** Rows that are drawn are like those that are
gone, not the same; so a network that learned in two calls is another one than after a fit of
everything. Hidden units that a forgotten class has shaped stay as they are. When a new class comes,
the directions are turned so that they serve it too: along a direction that is new, old classes are
known as well as their tails were. From then on the network does not look at tails, because it could
tell drawn rows from real ones by them. Scaling and projection are those of the first fit.
A category that a table has never seen is one of its unknown ones.

## Larger and smaller banks

`grow(n)` adds prototypes at rows drawn from the memory, where they say what the network says.
`freeze()` keeps those there are where they are, whatever comes later. `prune(n)` leaves the `n`
that matter most, each weighed by how far outputs move without it, and returns what that cost: how
far outputs moved and how many answers stayed the same. With `max_prototypes` a bank is pruned
to make room whenever a class comes.
"""
CLASSES = """\
Two classes at a time, five times, one head, no task labels; each seed has another order of the
classes. Rows of earlier stages are gone, but for what the last column counts besides the network
(700 images of 8 bits are as many bytes as 137,200 numbers of 32 bits). Features, or the filters of
the stem, are made from the first two classes. Final accuracy on the official test sets, mean and
deviation over {seeds} seeds:

"""
ROWS = """\
A model of ten elevenths of the training rows learns the rest by one call, next to a fit of all rows
at once; the cost is the time of that call, by that of the fit. And all rows in 50 calls, from the
first on, with the sizes of the network set to those of a fit of all rows: a first call of few rows
would choose smaller ones. Test accuracy:

"""
DOMAINS = """\
All classes from the start, in images that are turned further and further: a fifth of the training
rows at each of {degrees} degrees. Accuracy at the end, over test images at all of these:

"""
DRIFT = """\
A stream of 60 batches of 200 rows, whose classes lie on either side of a plane, with 5 % of labels
wrong; after batches {changes} the plane is another one. Each batch is predicted, and then learned:

```python
batches = [(X[train][start : start + 260], y[train][start : start + 260]) for start in (0, 260)]
for rows, labels in batches:
    accuracy = evaluate(model, rows, labels).accuracy
    model.partial_fit(rows, labels, decay=0.3)  # three tenths of the memory are forgotten
```

"""
TRIED = """\
The first table's task on 6,000 held-out training rows, with one thing changed at a time:

"""
TITLES = {
    "classes": "New classes",
    "rows": "More rows",
    "domains": "Another domain",
    "drift": "A world that changes",
    RIVER: "Streams of river",
    "tried": "What was tried",
}


def continual_page(newest: Mapping[str, Record]) -> tuple[str, dict[str, bytes]]:
    """The page, and its figures by name."""
    lines, figures = [*START.splitlines(), ""], {}
    for part, title in TITLES.items():
        record = _found(part, newest)
        if record is None:
            continue
        level = "###" if part == RIVER else "##"
        lines += [f"{level} {title}", "", *_text(part, record).splitlines(), ""]
        lines += [*(river_table if part == RIVER else TABLES[part])(record), ""]
        lines += [*river_verdict(record), ""] if part == RIVER else []
        panels = _panels(part, record)
        if panels:
            name = f"continual-{part}.svg"
            figures[name] = save_figure(plot(panels, columns=min(2, len(panels))))
            lines += [f"![{title}](figures/{name})", ""]
        lines += [f"`python -m benchmarks continual --parts {part}` makes this.", ""]
        lines += [f"<sub>{recipe(record)}</sub>", ""]
        lines += choosing(record) if part == RIVER else []
    return "\n".join(lines).rstrip() + "\n", figures


def _found(part: str, newest: Mapping[str, Record]) -> Record | None:
    """The record of a part, or those of single data sets as one; from a GPU if there is one."""
    for device in ("cuda", "cpu"):
        whole = newest.get(f"continual-{part}-{device}")
        names = (f"continual-{part}-{dataset}-{device}" for dataset in DATASETS)
        apart = [newest[name] for name in names if name in newest]
        if whole is not None or apart:
            first = apart[0] if whole is None else whole
            cells = {key: cell for record in apart for key, cell in record["cells"].items()}
            return {**first, "cells": {**first["cells"], **cells}}
    return None


def _text(part: str, record: Record) -> str:
    if part == RIVER:
        return river_text(record)
    changes = " and ".join(map(str, CHANGES))
    degrees = ", ".join(map(str, DEGREES[:-1])) + f" and {DEGREES[-1]}"
    texts = {"classes": CLASSES, "rows": ROWS, "domains": DOMAINS, "drift": DRIFT, "tried": TRIED}
    return (
        texts[part]
        .replace("{seeds}", str(record["plan"]["seeds"]))
        .replace("{degrees}", degrees)
        .replace("{changes}", changes)
        .rstrip()
    )


def _panels(part: str, record: Record) -> list[Panel]:
    """Accuracy after every stage, call or batch."""
    if part == "classes":
        places = list(dict.fromkeys("/".join(key.split("/")[:2]) for key in record["cells"]))
        # fine-tuning falls so far that the others could not be told apart
        out = ("joint", "fine-tuning")
        return [_stages(record, place, 2, "classes seen", 2, out) for place in places]
    if part == "domains":
        return [_stages(record, place, 1, "stages", 1) for place in names(record, 0)]
    if part == "rows":
        return [_calls(record, dataset) for dataset in names(record, 0)]
    if part == "drift":
        series = [_mean(name, cells(record, name)) for name in names(record, 0)]
        return [Panel("accuracy on the next batch", "batch", "percent", series)]
    if part == RIVER:
        return river_panels(record)
    return []


def _stages(
    record: Record,
    place: str,
    depth: int,
    label: str,
    step: int,
    out: Sequence[str] = ("joint",),
) -> Panel:
    series = []
    for name in names(record, depth):
        found = cells(record, *place.split("/"), name)
        if found and name not in out:
            series.append(_mean(WHO[name].replace("`", ""), found, step))
    return Panel(place.replace("/", ", "), label, "percent", series)


def _calls(record: Record, dataset: str) -> Panel:
    found = cells(record, dataset, "small calls")
    whole = [cell["refit"] for cell in cells(record, dataset, "a tenth more")]
    calls = _mean("calls", found)
    level = [100 * statistics.mean(whole)] * len(calls.y)
    return Panel(dataset, "call", "percent", [calls, Series("all at once", calls.x, level)])


def _mean(label: str, found: Sequence[Mapping[str, Any]], step: int = 1) -> Series:
    """The mean over seeds after every stage."""
    after = [
        100 * statistics.mean(values) for values in zip(*(c["after"] for c in found), strict=True)
    ]
    return Series(label, [step * (t + 1) for t in range(len(after))], after)
