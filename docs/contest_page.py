"""The part of docs/accuracy.md on tables: everybody's defaults, and what each rule is worth."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from contest_figures import difference_figure
from results_page import recipe

from benchmarks.rules import DEFAULTS
from benchmarks.tables.contest import LEAST_OF_A_LABEL
from benchmarks.tables.contestants import OURS
from benchmarks.tables.standings import LEVEL, LOWEST_R2, Result, contest_of, field_of, results
from benchmarks.tables.suite import HALVES, Half, Task
from benchmarks.tables.text import (
    absence_lines,
    bands_table,
    difference_line,
    each_table,
    log_loss_table,
    reference_of,
    standings_table,
    tasks_of,
)

Record = Mapping[str, Any]
NONE_YET = "No record of this contest has been made yet."
NO_RULES_YET = "No record of what each rule is worth has been made yet."

CONTEST = """\
Nobody is tuned: each contestant has its defaults, and all have the same number of threads.
Networks, machines and linear models get scaled columns; trees and protopinv get them as they came.
Where a contestant takes one target only, there is a model for each. `scikit-mlp-folds` is
scikit-learn's MLP with its epochs chosen in four folds; `realmlp`, `tabm` and `xrfm` are those of
pytabkit, which hold out a fifth of the rows.

Tables are dealt into two halves by a hash of their source. Rules of ours are chosen on the
development half; the confirmation half is scored at the end.

Scores are cross-validated. A contestant's score on a table is its mean over folds and seeds; an R2
below {lowest:g} counts as {lowest:g}. *Normalised* is the mean over tables of a
score that is 0 for the worst contestant there and 1 for the best. Up to {level:g} points are level;
*p* is that of Wilcoxon's signed-rank test over tables. *All fits* is the time of one fit of every
table, *times* its ratio where both were timed, *a row* the time of predicting a single one. Times
taken on another machine than those of our defaults, or with more or fewer threads, are left out.
Who failed on a table has the score of the worst there. Who stayed away from a table has no rank,
but is still compared at the others. Classes with fewer rows than there are folds are left out of a
table, and so are labels with fewer than {least_of_a_label}.
"""
TITLES: dict[Task, str] = {
    "classification": "Classes",
    "regression": "Numbers",
    "multi-label": "Several labels",
}
WORTH = """\
One rule of a quick fit changed at a time, on the development half; wins are those of the change.
`effort="balanced"` screens four architectures, and also trains longer, with more prototypes and
wider layers. One seed more or less moves a table too, so look at many tables.
"""


LOST_BY = 0.01
WHY = """\
Trees tend to win where a target jumps with a column or depends on a few of many categories: a
smooth network needs many units for one step. Networks tend to win where the target is smooth and
where columns act together.
"""
TRIED = """\
Tried on the development half and not kept: more than four architectures, other ridges and learning
rates for each, wider layers on small tables, a Huber loss for regression by default (better
medians, worse R2), an ensemble of the best three architectures (a little better, but it is no
longer one plain network), all columns clipped as RealMLP does (level for classification, worse for
regression, see below; `scaling="clip"`), and a lower learning rate with batches.
"""

AFTERWARDS = """\
Two rules were changed after this half had been scored, because of what it showed. Tables of more
than 300 columns were projected by PCA, and `ames`, with 301, fell over that border; up to 1,000
columns are now seen as they are. That concerns `ames` and `fars`. The log loss of *balanced* and
*best* was above that of a linear model on `twonorm`, where a plane separates the classes; the
smooth architecture has no label smoothing now, and candidates are compared after temperature
scaling, as was found on the development half. All figures here are from before; the half is not
scored again.
"""
EARLIER = """\
This half was measured before batches had an even size and before their learning rate became that
of all rows; what the rules are worth, further below, was measured after.
"""


def contest_section(newest: Mapping[str, Record]) -> tuple[list[str], dict[str, bytes]]:
    """Both halves and the imbalanced tables, and their figures by file name."""
    found = {
        (half, imbalanced): contest_of(newest.values(), half, imbalanced=imbalanced)
        for imbalanced in (False, True)
        for half in reversed(HALVES)  # what nothing was chosen on comes first
    }
    known = [record for record in found.values() if record is not None]
    lines = ["", "## Tables, without tuning"]
    drawn: dict[str, bytes] = {}
    if known:
        lines += ["", *_prose()]
    for (half, imbalanced), record in found.items():
        if record is not None:
            part, figures = _half(record, half, imbalanced=imbalanced)
            lines += part
            drawn |= figures
        elif not imbalanced:
            lines += ["", f"### {half.capitalize()} half", "", NONE_YET, _command(half, "")]
    return lines, drawn


def _prose() -> list[str]:
    return CONTEST.format(
        lowest=LOWEST_R2, level=100 * LEVEL, least_of_a_label=LEAST_OF_A_LABEL
    ).splitlines()


def _folds(plan: Record) -> str:
    """What is scored, and beside how many other fits."""
    counts = [scored for _, scored in plan["scored_folds"][1:]] + [1]
    steps = [
        f"{scored} of them from {rows:,} rows on"
        for (rows, _), scored in zip(plan["scored_folds"], counts, strict=True)
    ]
    text = f"{plan['folds']} folds for each of {plan['seeds']} seeds, {', '.join(steps)}."
    jobs = plan.get("jobs", 1)
    return text if jobs == 1 else f"{text} {jobs} fits at a time, with a core each."


def _command(half: str, option: str) -> str:
    return f"`python -m benchmarks contest --wheels FOLDER --half {half}{option}` makes it."


def _half(record: Record, half: Half, *, imbalanced: bool) -> tuple[list[str], dict[str, bytes]]:
    found = results(record)
    against = reference_of(record["plan"]["contestants"])
    title = f"{half.capitalize()} half" + (", imbalanced tables" if imbalanced else "")
    plan = record["plan"]
    lines = ["", f"### {title}", "", _folds(plan)]
    drawn: dict[str, bytes] = {}
    for task in tasks_of(found):
        name = f"contest-{half}{'-imbalanced' if imbalanced else ''}-{task}.svg"
        part, figure = _task(found, task, against, name)
        lines += part
        drawn |= {} if figure is None else {name: figure}
        if imbalanced:
            lines += _balanced(found, against)
    if not imbalanced:
        lines += ["", f"Where `{against}` is more than {100 * LOST_BY:g} point behind a peer:", ""]
        lines += [*_lost(found, against), "", *WHY.splitlines()]
    if losses := log_loss_table(found):
        lines += ["", "How sure they are, where all say so:", "", *losses]
    if absent := absence_lines(found):
        lines += ["", "Who has no score where, and what was left out:", "", *absent]
    if not imbalanced:
        lines += ["", *(EARLIER + TRIED if half == "development" else AFTERWARDS).splitlines()]
    lines += ["", _command(half, " --imbalanced" if imbalanced else ""), ""]
    lines += [f"<sub>{recipe(part)}{_peers(part)}</sub>  " for part in record["parts"]]
    return lines, drawn


def _task(
    found: Sequence[Result], task: Task, against: str, name: str
) -> tuple[list[str], bytes | None]:
    field = field_of(found, task)
    figure = difference_figure(field, OURS)
    lines = ["", f"**{TITLES[task]}.** {difference_line(field)}", ""]
    lines += standings_table(field, against)
    if figure is not None:
        lines += ["", f"![Mean ranks and their critical difference](figures/{name})"]
    lines += ["", "By the size of the tables:", "", *bands_table(found, task)]
    lines += ["", "<details><summary>Every table</summary>", "", *each_table(found, task)]
    return [*lines, "", "</details>"], figure


def _lost(found: Sequence[Result], against: str) -> list[str]:
    """Every table where a peer is clearly ahead, and by how much the best of them is."""
    lines = []
    for task in tasks_of(found):
        field = field_of(found, task)
        if against not in field.contestants:
            continue
        peers = [name for name in field.contestants if name not in OURS]
        for place, table in enumerate(field.tables):
            by_name = {name: float(field.column(name)[place]) for name in peers}
            known = {name: score for name, score in by_name.items() if not math.isnan(score)}
            if not known:
                continue
            best = max(known, key=lambda name: known[name])
            behind = known[best] - float(field.column(against)[place])
            if behind > LOST_BY:
                lines.append(f"- {table}: {100 * behind:.1f} points behind {best}")
    return lines or ["- nowhere"]


def _balanced(found: Sequence[Result], against: str) -> list[str]:
    """The same standings by balanced accuracy."""
    field = field_of(found, "classification", measure="balanced_accuracy")
    lines = ["", "A rare class is easily passed over, so here is balanced accuracy: the share of"]
    lines += ["right answers in a class, averaged over classes.", ""]
    return [*lines, *standings_table(field, against, timed=False)]


def _peers(record: Record) -> str:
    versions = record["plan"].get("peers", {})
    return "".join(f", {name} {number}" for name, number in versions.items())


def rules_worth(record: Record | None) -> list[str]:
    """What each rule is worth, against the defaults."""
    if record is None:
        return [NO_RULES_YET, "`python -m benchmarks rules --wheels FOLDER` makes it."]
    found = results(record)
    lines = WORTH.splitlines()
    for task in tasks_of(found):
        field = field_of(found, task)
        lines += ["", f"**{TITLES[task]}.** {difference_line(field)}", ""]
        lines += standings_table(field, DEFAULTS)
    lines += ["", *absence_lines(found)]
    return [*lines, "", f"<sub>{recipe(record)}</sub>"]
