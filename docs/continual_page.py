"""docs/continual.md, from dated records."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from results_page import recipe
from river_page import choosing, river_panels, river_text, river_verdict

from benchmarks.continual.river_text import river_table
from benchmarks.continual.study import RIVER
from benchmarks.continual.text import TABLES, WHO, cells, names
from benchmarks.continual.worlds import CHANGES, DEGREES
from benchmarks.tasks import DATASETS
from protopinv.report import Panel, Series, plot, save_figure

Record = Mapping[str, Any]

START = """\
# Learning that continues

A fitted model can learn more rows, and classes and categories it has never seen, without the rows
it was fitted on:

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
[0, 1, 2, 3, 4, 5, 6, 7, 8, 9] 0.95
```

`classes_` stays sorted, and the columns of `predict_proba` follow it. All of this works for
`ProtoPINVRegressor`, for several labels a row, for frames, for sources of rows (`open_rows`), for
means of several banks, and after `load`. `examples/eleventh_class.py` adds a class to a model from
a file by two lines.

## What is kept of the rows

A *replay memory* takes the place of the rows. The features that the network sees are cut into the
48 directions in which the first rows vary most, and the rest, the *tail*. Along the directions
every class is a mixture of up to ten Gaussians, stored as sums: the number of rows, their weight,
their mean and their scatter matrix, in float64. In the tail a class has a mean and a variance for
every feature. No rows are stored: a Gaussian stands for 25 rows at least, unless a class has fewer.
A model file holds no training rows either, unless `save(path, examples=True)` asks for them;
`save(path, memory=False)` leaves the memory out too.

The memory has at most 138,500 numbers, and at most a quarter of those of the rows;
`ProtoPINVClassifier(memory=...)` sets another limit, and 0 keeps nothing. New rows become Gaussians
of their own. Where there are too many, the two of a class whose union loses least are united.

`partial_fit` then

1. measures for every class how *unlike* its new rows are to those remembered: by the distance of
   the two means in deviations (Mahalanobis), less what chance makes of it, as the share of both
   that a linear rule could tell apart. Rows of the same kind are at 0, rows of elsewhere near 1,
   and a class without new rows is at 1,
2. draws rows to replay from the memory, for each class in proportion: none where new rows are like
   the old ones and stand for them, and up to two for every new row and 2,000 at least where they
   are not,
3. labels replayed rows with the predictions of the network before the update (knowledge
   distillation); with a new class these are half of the label, the other half is the class for
   which the row was drawn,
4. grows every bank by ten prototypes for each new class,
5. trains the banks on new and replayed rows. With a new class, or with rows from elsewhere, it
   takes four tenths of the epochs of a fit at three tenths of its rate. With rows like those before
   it is less: two to eight passes, at a rate that falls with the share of all rows so far that are
   new and with the share that came after the fit. A fitted network is hardly moved by a few more
   rows, and one that learns from many small calls keeps learning,
6. predicts, after several calls with rows like those before, by the mean of the banks of about the
   last ten calls; training resumes from the last one. Before each call both are scored on its rows,
   which neither has seen: if the last bank is clearly better, the distribution has shifted, and the
   mean begins anew. With a `decay` the mean forgets as much as the memory does,
7. adds the new rows to the memory.

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
tell drawn rows from real ones by them. The projection is that of the first fit, and so is the scale
of a column until all rows so far spread more than twice as far as it says, or the column begins to
vary at all. Then its scale is that of all rows so far, and prototypes and memory move to the new
unit. Either way this is an affine map, so rows in another place are learned all the same. What
bends the tails of columns (`squash`, `clip`) was made for the first rows too: where all columns
move by a hundred deviations, rows can hardly be told apart any more, and a new fit is due.

## New categories

A category of a [table](tables.md) may bring values it has never seen. One that at least three rows
of a call have is learned, as it would be in a fit:

```python
import pandas as pd
from protopinv import ProtoPINVRegressor

shops = pd.DataFrame({"kind": ["book", "food"] * 150, "size": np.arange(300) % 7})
prices = 10.0 * (shops["kind"] == "food") + shops["size"]
seller = ProtoPINVRegressor(effort="quick", random_state=0).fit(shops, prices)
flowers = pd.DataFrame({"kind": "flower", "size": np.arange(20) % 7})
seller.partial_fit(flowers, 30.0 + flowers["size"])
print(seller.table_)
print(f"{seller.predict(flowers[:1])[0]:.0f}")
```

```text
kind  category, 3 values (book, food, flower), a column each
size  number, mostly 0 to 6
30
```

Where values have *a column each*, the new one has a column too, up to 30 of them in all, and the
network has one more input. All earlier rows are zero there, and so is every prototype. So the wider
network, before it is trained, answers rows without the new value as it did, up to rounding (nearly
so with `normalize_inputs`). The new input is not shifted, and its scale is the median of those that
the other columns of its category have. A value that was too rare for a column of its own gets one
once it comes often enough. Training takes the epochs and the rate of a call with a new class,
because weights that start at zero have much to learn.

Where values have *an average of the target*, the new one has the average over its rows in this
call, leaning towards the vector that values never seen have; no row sees its own target, as in a
fit. The network stays as wide as it was. Averages of known values stay what they were.

Values with fewer rows stay unknown, and so do those of a column that the fit has left out. A source
larger than memory is learned 50,000 rows at a time, and rows are counted within these. New columns
may take a memory beyond its limit: there is always room for a Gaussian of every class.

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
DEFAULTS = """\
Two classes at a time as above, by a model whose user sets nothing, against one fit of all rows.
Images come as rows of 784 columns, and as images. Such columns share one range, and have one scale.
Of the tables a third of the rows is held out, another third for every seed. `letter`, whose 26
classes come in 13 calls, ends furthest behind. Accuracy at the end, mean and deviation over
{seeds} seeds:

"""
ROWS = """\
A model of ten elevenths of the training rows learns the rest by one call, next to a fit of all rows
at once; the cost is the time of that call, by that of the fit, once for the model of the other
tables and once with every parameter at its default. And all rows in 50 calls, from the first on,
with the sizes of the network set to those of a fit of all rows: a first call of few rows would
choose smaller ones. Test accuracy:

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
    "defaults": "New classes at the defaults",
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
        records = _found(part, newest)
        if not records:
            continue
        record = records[0]
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
        for more in records[1:]:
            lines += [*TABLES[part](more), "", f"<sub>{recipe(more)}</sub>", ""]
        lines += choosing(record) if part == RIVER else []
    return "\n".join(lines).rstrip() + "\n", figures


def _found(part: str, newest: Mapping[str, Record]) -> list[Record]:
    """The record of a part, or those of single data sets as one; from a GPU if there is one.

    The defaults are measured on images on a GPU, and on tables on two cores.
    """
    found = [_on(device, part, newest) for device in ("cuda", "cpu")]
    there = [record for record in found if record is not None]
    return there if part == "defaults" else there[:1]


def _on(device: str, part: str, newest: Mapping[str, Record]) -> Record | None:
    whole = newest.get(f"continual-{part}-{device}")
    names = (f"continual-{part}-{dataset}-{device}" for dataset in DATASETS)
    apart = [newest[name] for name in names if name in newest]
    if whole is None and not apart:
        return None
    first = apart[0] if whole is None else whole
    cells = {key: cell for record in apart for key, cell in record["cells"].items()}
    return {**first, "cells": {**first["cells"], **cells}}


def _text(part: str, record: Record) -> str:
    if part == RIVER:
        return river_text(record)
    changes = " and ".join(map(str, CHANGES))
    degrees = ", ".join(map(str, DEGREES[:-1])) + f" and {DEGREES[-1]}"
    texts = {
        "classes": CLASSES,
        "defaults": DEFAULTS,
        "rows": ROWS,
        "domains": DOMAINS,
        "drift": DRIFT,
        "tried": TRIED,
    }
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
        panels = [_stages(record, place, 2, "classes seen", 2, out) for place in places]
        return [replace(panel, legend=n == 0) for n, panel in enumerate(panels)]
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
